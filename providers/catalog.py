"""The shipped catalog: our own table of dated, sourced prices -> offers.

``data/catalog.csv`` holds one row per offer: USD per NODE-hour, never per GPU. ``data/sources.csv`` says
where a row comes from, under which licence, ``data/providers.csv`` how a provider bills, ``data/overlay.csv``
corrects slips of vendors (each dated and sourced), ``data/dropped.csv`` counts what was left out, and why.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files

from planner.hardware.gpus import gpu
from planner.hardware.links import links_for
from planner.types import Links, Offer
from providers.base import Key, key
from providers.checks import spot_is_on_demand, unbelievable, without_outliers

GIB = 2**30
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows of the catalog come from. ``licence``: of the source, not of the figures."""

    id: str
    title: str
    url: str
    licence: str


@dataclass(frozen=True, slots=True)
class Provider:
    """How a provider bills, and what its price leaves out. ``None``: not seen."""

    id: str
    title: str
    min_billing_s: int | None
    billing_increment_s: int | None
    not_included: tuple[str, ...]
    source: str
    note: str


@dataclass(frozen=True, slots=True)
class NotOffered:
    """Rows of price lists that are not offers for training: how many of one provider, and why."""

    provider: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Correction:
    """One row of the overlay. ``*`` in region or market: all of them."""

    provider: str
    instance_type: str
    region: str
    market: str
    field: str
    value: str
    date: str
    source: str
    reason: str


def _rows(name: str) -> list[dict[str, str]]:
    """Rows of a data file."""
    text = files("providers").joinpath(f"data/{name}").read_text(encoding="utf-8")
    head, *rows = csv.reader(text.splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


def _int(text: str) -> int | None:
    """Read a whole number, ``None`` for an empty cell."""
    return int(text) if text else None


def _bytes(gib: str) -> int | None:
    """GiB as bytes, ``None`` for an empty cell."""
    return int(float(gib) * GIB) if gib else None


def seen(date: str) -> datetime | None:
    """Midnight UTC of ``YYYY-MM-DD``. Anything else has no known age: ``None``."""
    try:
        return datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None


@lru_cache(maxsize=1)
def sources() -> dict[str, Source]:
    """Return the sources of the catalog by id."""
    return {r["id"]: Source(**r) for r in _rows("sources.csv")}


@lru_cache(maxsize=1)
def provider_rules() -> dict[str, Provider]:
    """Return how each provider bills, by its id."""
    return {
        r["provider"]: Provider(
            id=r["provider"],
            title=r["title"],
            min_billing_s=_int(r["min_billing_s"]),
            billing_increment_s=_int(r["billing_increment_s"]),
            not_included=tuple(p for p in r["not_included"].split("|") if p),
            source=r["source"],
            note=r["note"],
        )
        for r in _rows("providers.csv")
    }


@lru_cache(maxsize=1)
def not_offered() -> tuple[NotOffered, ...]:
    """Return what was left out of the catalog, by provider and reason."""
    return tuple(
        NotOffered(provider=r["provider"], reason=r["reason"], count=int(r["count"]))
        for r in _rows("dropped.csv")
    )


@lru_cache(maxsize=1)
def overlay() -> tuple[Correction, ...]:
    """All corrections, in order."""
    return tuple(Correction(**r) for r in _rows("overlay.csv"))


@lru_cache(maxsize=1024)
def _links(gpu_id: str, gpus_per_node: str, intra: str, inter: str, gbit: str) -> Links:
    """Links of a row as ids of the planner's link table; one record for all rows that say the same."""
    return links_for(
        gpu(gpu_id),
        int(gpus_per_node),
        intra_node=intra,
        inter_node_fabric=inter,
        network_gbit_per_s=float(gbit) if gbit else None,
    )


@lru_cache(maxsize=256)
def _seen(date: str) -> datetime | None:
    """``seen``, remembered: the catalog has few dates."""
    return seen(date)


@lru_cache(maxsize=1)
def _blank() -> Offer:
    """Make an offer to copy: copying is the fastest way to many records that a test has validated."""
    return Offer.model_construct(
        provider="", instance_type="", region="", market="on-demand", gpu="", usd_per_hour=None, source=""
    )


def offer_of_row(row: dict[str, str]) -> Offer:
    """One row of ``catalog.csv`` as an offer. Not validated here, for speed: a test validates every row."""
    rules = provider_rules().get(row["provider"])
    source = sources()[row["source"]]
    price = Decimal(row["usd_per_hour"]) if row["usd_per_hour"] else None
    why = row["unknown_why"] or None
    if price is not None:
        why = unbelievable(price)
    return _blank().model_copy(
        update={
            "provider": row["provider"],
            "instance_type": row["instance_type"],
            "region": row["region"],
            "zone": row["zone"] or None,
            "market": row["market"],
            "gpu": row["gpu"],
            "gpus_per_node": int(row["gpus_per_node"]),
            "links": _links(
                row["gpu"], row["gpus_per_node"], row["intra"], row["inter"], row["network_gbps"]
            ),
            "vcpus": _int(row["vcpus"]),
            "host_memory_bytes": _bytes(row["memory_gib"]),
            "local_disk_bytes": _bytes(row["local_disk_gib"]),
            "usd_per_hour": None if why else price,
            "unknown_why": why,
            "min_billing_s": rules.min_billing_s if rules else None,
            "billing_increment_s": rules.billing_increment_s if rules else None,
            "not_included": rules.not_included if rules else (),
            "max_nodes": _int(row["max_nodes"]),
            "price_seen": _seen(row["price_date"]),
            "source": source.title,
            "source_licence": source.licence,
            "note": row["note"],
        }
    )


def newest(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """One offer per key: the one seen last. An undated one loses against any date; ties: the first stays."""
    kept: dict[Key, Offer] = {}
    for offer in offers:
        of = key(offer)
        have = kept.get(of)
        if have is None or (offer.price_seen or _LONG_AGO) > (have.price_seen or _LONG_AGO):
            kept[of] = offer
    return tuple(kept[of] for of in sorted(kept))


def _covers(correction: Correction, offer: Offer) -> bool:
    """Whether the correction speaks of this offer; provider and type are looked up before."""
    return correction.region in ("*", offer.region) and correction.market in ("*", offer.market)


def _as_gpu(offer: Offer, correction: Correction) -> Offer:
    return offer.model_copy(update={"gpu": correction.value})


def _as_count(offer: Offer, correction: Correction) -> Offer:
    return offer.model_copy(update={"gpus_per_node": int(correction.value)})


def _as_price(offer: Offer, correction: Correction) -> Offer:
    """Correct a price seen before the correction; one that was seen later stands."""
    if offer.price_seen is not None and offer.price_seen > (seen(correction.date) or _LONG_AGO):
        return offer
    price = Decimal(correction.value) if correction.value else None
    why = None if price is not None else correction.reason
    return offer.model_copy(update={"usd_per_hour": price, "unknown_why": why})


_CORRECT: dict[str, Callable[[Offer, Correction], Offer]] = {
    "gpu": _as_gpu,
    "gpus_per_node": _as_count,
    "usd_per_hour": _as_price,
}


def corrected(offers: Iterable[Offer], corrections: Iterable[Correction]) -> tuple[Offer, ...]:
    """Apply the overlay. An empty price makes it unknown, for the reason that the correction gives."""
    by_type: dict[tuple[str, str], list[Correction]] = {}
    for c in corrections:
        if c.field in _CORRECT:
            by_type.setdefault((c.provider, c.instance_type), []).append(c)
    done = []
    for offer in offers:
        for c in by_type.get((offer.provider, offer.instance_type), ()):
            if _covers(c, offer):
                offer = _CORRECT[c.field](offer, c)
        done.append(offer)
    return tuple(done)


def explained(offers: Iterable[Offer], corrections: Iterable[Correction]) -> frozenset[Key]:
    """Keys of offers whose odd price the overlay explains."""
    by_type: dict[tuple[str, str], list[Correction]] = {}
    for c in corrections:
        if c.field == "explained":
            by_type.setdefault((c.provider, c.instance_type), []).append(c)
    return frozenset(
        key(o) for o in offers for c in by_type.get((o.provider, o.instance_type), ()) if _covers(c, o)
    )


def without_false_spot(offers: Iterable[Offer], beside: Iterable[Offer] = ()) -> tuple[Offer, ...]:
    """Spot prices that equal the on-demand price of the same type and region become unknown.

    ``beside``: more offers whose on-demand prices count.
    """
    offers = tuple(offers)
    on_demand = {
        (o.provider, o.instance_type, o.region): o.usd_per_hour
        for o in (*beside, *offers)
        if o.market == "on-demand"
    }
    done = []
    for o in offers:
        why = None
        if o.market == "spot":
            why = spot_is_on_demand(o.usd_per_hour, on_demand.get((o.provider, o.instance_type, o.region)))
        done.append(o.model_copy(update={"usd_per_hour": None, "unknown_why": why}) if why else o)
    return tuple(done)


def believed(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Newest of each key, overlay applied, prices that cannot be true made unknown. Sorted."""
    offers = without_false_spot(corrected(newest(offers), overlay()))
    return without_outliers(offers, explained(offers, overlay()))


@lru_cache(maxsize=1)
def shipped() -> tuple[Offer, ...]:
    """All offers of the shipped catalog, sorted by provider, type, region, zone, market."""
    return believed(offer_of_row(row) for row in _rows("catalog.csv"))
