"""From fields of a JSON answer to offers: the one place where a price per GPU becomes one per node.

A row that is not of the documented form raises ``UnreadError`` and is counted; the rest of the answer stands.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from importlib.resources import files
from typing import TypeVar, cast

from planner.hardware.gpus import gpu as gpu_of
from planner.hardware.links import links_for
from planner.types import Links, Market, Offer
from providers.base import AnswerError, Key, Parsed, UnknownGpu, key, sort_key
from providers.catalog import GIB, provider_rules, shipped
from providers.checks import unbelievable
from providers.names import gpu_id

T = TypeVar("T")
Json = Mapping[str, object]
MEMORY_TOLERANCE = 0.15


class UnreadError(ValueError):
    """A row is not of the form that the provider documents."""


def member(row: Json, *path: str) -> object:
    """Value at a path of names. Raises ``UnreadError`` where a name is missing."""
    found: object = row
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            raise UnreadError(f"no {'.'.join(path)}")
        found = found[name]
    return found


def text(row: Json, *path: str) -> str:
    """Text that is not empty. Raises ``UnreadError`` for anything else."""
    found = member(row, *path)
    if not isinstance(found, str) or not found.strip():
        raise UnreadError(f"{'.'.join(path)} is not a text")
    return found.strip()


def whole(row: Json, *path: str) -> int:
    """Whole number, also as text. Raises ``UnreadError`` for anything else."""
    found = number(member(row, *path))
    if found is None or found != found.to_integral_value():
        raise UnreadError(f"{'.'.join(path)} is not a whole number")
    return int(found)


def rows(row: Json, *path: str) -> Sequence[Json]:
    """List of objects. Raises ``UnreadError`` for anything else."""
    found = member(row, *path)
    if not isinstance(found, list) or not all(isinstance(r, Mapping) for r in found):
        raise UnreadError(f"{'.'.join(path)} is not a list of objects")
    return found


def number(value: object) -> Decimal | None:
    """Read a finite number, also as text; ``None`` for anything else. A float counts as it is printed."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        read = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return read if read.is_finite() else None


def gib_bytes(value: object) -> int | None:
    """GiB as bytes; ``None`` where the figure is missing or not above 0."""
    found = number(value)
    return int(found * GIB) if found is not None and found > 0 else None


@dataclass(frozen=True, slots=True)
class Price:
    """USD per hour of one node, or why it is not known: exactly one of the two."""

    usd_per_hour: Decimal | None
    why: str | None = None


def node_price(value: object, *, gpus: int = 1) -> Price:
    """Price of a node; ``gpus``: how many GPUs of a node a price *per GPU* is multiplied by."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return Price(None, "the provider states no price")
    read = number(value)
    if read is None:
        return Price(None, f"price {str(value)[:20]!r} is not a number")
    price = (read * gpus).normalize() + 0  # no trailing zeros, no exponent
    doubt = unbelievable(price)
    return Price(None, doubt) if doubt else Price(price)


@dataclass(frozen=True, slots=True)
class Node:
    """A machine as a provider sells it. ``None``: not stated."""

    gpu: str
    gpus_per_node: int
    links: Links
    vcpus: int | None = None
    host_memory_bytes: int | None = None
    local_disk_bytes: int | None = None
    max_nodes: int | None = None


@lru_cache(maxsize=1)
def _known() -> dict[tuple[str, str], Node]:
    """Machines of the shipped catalog."""
    return {
        (o.provider, o.instance_type): Node(
            gpu=o.gpu,
            gpus_per_node=o.gpus_per_node,
            links=o.links,
            vcpus=o.vcpus,
            host_memory_bytes=o.host_memory_bytes,
            local_disk_bytes=o.local_disk_bytes,
            max_nodes=o.max_nodes,
        )
        for o in shipped()
    }


def known_node(provider: str, instance_type: str) -> Node | None:
    """Machine of that name in the shipped catalog (with its corrections); ``None`` for a new one."""
    return _known().get((provider, instance_type))


def known_types(provider: str) -> tuple[str, ...]:
    """Instance types of a provider in the shipped catalog, sorted."""
    return tuple(sorted(t for p, t in _known() if p == provider))


@lru_cache(maxsize=1)
def _regions() -> tuple[tuple[str, str], ...]:
    """Rows of ``data/regions.csv``."""
    content = files("providers").joinpath("data/regions.csv").read_text(encoding="utf-8")
    return tuple((r["provider"], r["region"]) for r in csv.DictReader(content.splitlines()))


def regions_of(provider: str) -> tuple[str, ...]:
    """Regions that a provider is asked for, from ``data/regions.csv``."""
    return tuple(r for p, r in _regions() if p == provider)


def new_node(
    gpu: str,
    gpus_per_node: int,
    *,
    vcpus: int | None = None,
    host_memory_bytes: int | None = None,
    local_disk_bytes: int | None = None,
    intra: str = "",
    inter: str = "ethernet",
    network_gbit_per_s: float | None = None,
    max_nodes: int | None = None,
) -> Node:
    """Machine of a GPU id; links as ``planner.hardware.links`` reads them, slow where nothing is said."""
    links = links_for(
        gpu_of(gpu),
        gpus_per_node,
        intra_node=intra,
        inter_node_fabric=inter,
        network_gbit_per_s=network_gbit_per_s,
    )
    return Node(gpu, gpus_per_node, links, vcpus, host_memory_bytes, local_disk_bytes, max_nodes)


def live_offer(
    provider: str,
    instance_type: str,
    node: Node,
    price: Price,
    *,
    region: str,
    market: str,
    seen: datetime,
    source: str,
    zone: str | None = None,
    available: bool | None = None,
    note: str = "",
) -> Offer:
    """Offer that was seen at ``seen``, with the provider's billing rules."""
    rules = provider_rules().get(provider)
    return Offer(
        provider=provider,
        instance_type=instance_type,
        region=region,
        zone=zone,
        market=cast("Market", market),
        gpu=node.gpu,
        gpus_per_node=node.gpus_per_node,
        links=node.links,
        vcpus=node.vcpus,
        host_memory_bytes=node.host_memory_bytes,
        local_disk_bytes=node.local_disk_bytes,
        usd_per_hour=price.usd_per_hour,
        unknown_why=price.why,
        min_billing_s=rules.min_billing_s if rules else None,
        billing_increment_s=rules.billing_increment_s if rules else None,
        not_included=rules.not_included if rules else (),
        max_nodes=node.max_nodes,
        price_seen=seen,
        source=source,
        origin="live",
        available=available,
        note=note,
    )


def has_memory(gpu: str, memory_gb: Decimal) -> bool:
    """Whether a stated memory is that of the GPU in our table, within 15 %."""
    return abs(float(memory_gb) / gpu_of(gpu).marketing_memory_gb - 1) <= MEMORY_TOLERANCE


@dataclass(slots=True)
class Collector:
    """What a ``parse`` gathers row by row: offers, GPU strings, rows that could not be read.

    ``missing``: regions that did not answer everything, and why.
    """

    provider: str
    offers: list[Offer] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    num_unread: int = 0
    first_unread: str = ""

    def each(self, found: Iterable[T], read: Callable[[T], Iterable[Offer]]) -> None:
        """Read every row; one that is not of the documented form is counted, with the first reason."""
        for row in found:
            try:
                self.offers.extend(read(row))
            except UnreadError as error:
                self.num_unread += 1
                self.first_unread = self.first_unread or str(error)

    def gpu(self, *names: str, memory_gb: Decimal | None = None) -> str | None:
        """GPU id of the first of ``names`` that is known; an unknown one is counted.

        Where a provider states the memory of a GPU, it must be that of our table, within 15 %: cards of one
        name with more and with less memory exist.
        """
        found = next((g for n in names if (g := gpu_id(self.provider, n)) is not None), None)
        if found is not None and memory_gb is not None and not has_memory(found, memory_gb):
            self.names.append(f"{names[-1]} ({memory_gb:.0f} GB)")
            return None
        if found is None:
            self.names.append(names[-1])
        return found

    def parsed(self) -> Parsed:
        """Everything, sorted, one offer a key. Raises ``AnswerError`` where not one offer could be read."""
        if not self.offers:
            unread = f"{self.num_unread} rows not read, first: {self.first_unread}"
            refused = ", ".join(f"{region} ({why})" for region, why in sorted(self.missing.items()))
            why = unread if self.num_unread else refused or "empty"
            raise AnswerError(f"no GPU offer in the answer ({why})")
        notes = [*self.notes]
        if self.missing:
            first = ", ".join(f"{region} ({why})" for region, why in sorted(self.missing.items())[:3])
            regions = "region" if len(self.missing) == 1 else "regions"
            notes.append(f"{len(self.missing)} {regions} did not answer everything: {first}")
        if self.num_unread:
            notes.append(f"{self.num_unread} rows not read, first: {self.first_unread}")
        return Parsed(
            offers=cheapest(self.offers),
            unknown_gpus=_counted(self.provider, self.names),
            num_unread=self.num_unread,
            notes=tuple(notes),
            missing_regions=tuple(sorted(self.missing)),
        )


def _counted(provider: str, names: Iterable[str]) -> tuple[UnknownGpu, ...]:
    """How often each GPU string was met."""
    return tuple(UnknownGpu(provider, n, c) for n, c in sorted(Counter(names).items()))


def cheapest(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """One offer per key, sorted: the cheapest that has a price; without any, the first."""
    kept: dict[Key, Offer] = {}
    for offer in offers:
        have = kept.get(key(offer))
        if have is None or _usd(offer) < _usd(have):
            kept[key(offer)] = offer
    return tuple(sorted(kept.values(), key=sort_key))


def _usd(offer: Offer) -> Decimal:
    """Price for comparison; one that is not known is more than any."""
    return Decimal("Infinity") if offer.usd_per_hour is None else offer.usd_per_hour
