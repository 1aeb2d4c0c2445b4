"""The documents of ``plan prices``: what scripts rely on. Add fields freely; rename none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from planner.cli.json_output import money
from planner.types import Links, Market, Offer, Record
from providers.base import Key, key
from providers.moves import Moves, Point
from providers.refresh import ProviderRow

SCHEMA_VERSION = 1


class PriceDocument(Record):
    """One offer. The price is of one node, a string of decimal digits, or null with the reason."""

    provider: str
    instance_type: str
    region: str
    zone: str | None
    market: Market
    gpu: str
    gpus_per_node: int
    usd_per_hour: str | None
    unknown_why: str | None
    price_seen: datetime | None
    source: str
    origin: Literal["shipped", "live", "own"]
    links: Links
    vcpus: int | None
    host_memory_bytes: int | None
    local_disk_bytes: int | None
    min_billing_s: int | None
    billing_increment_s: int | None
    not_included: tuple[str, ...]
    available: bool | None
    note: str


class UnknownGpuDocument(Record):
    """A GPU string that is not in the table, and how often it was met."""

    name: str
    count: int


class ProviderDocument(Record):
    """State of one provider's prices."""

    provider: str
    num_offers: int
    age_s: float | None
    state: Literal["ok", "shipped", "skipped", "failed"]
    hint: str
    reason: str
    notes: tuple[str, ...]
    unknown_gpus: tuple[UnknownGpuDocument, ...]


class PricesDocument(Record):
    """``plan prices --json`` and ``plan prices refresh --json``."""

    schema_version: int
    offers: tuple[PriceDocument, ...]
    providers: tuple[ProviderDocument, ...]


class PointDocument(Record):
    """A price and when it was first seen."""

    seen: datetime | None
    usd_per_hour: str | None


class SeriesDocument(Record):
    """Prices of one offer over time, oldest first."""

    provider: str
    instance_type: str
    region: str
    zone: str | None
    market: Market
    prices: tuple[PointDocument, ...]


class HistoryDocument(Record):
    """``plan prices --history --json``."""

    schema_version: int
    history: tuple[SeriesDocument, ...]


class MoveDocument(Record):
    """A price that moved; ``change`` as a share of the price before."""

    offer: PriceDocument
    before_usd_per_hour: str | None
    before_seen: datetime | None
    change: float | None


class MovesDocument(Record):
    """``plan prices diff --json``."""

    schema_version: int
    moved: tuple[MoveDocument, ...]
    new: tuple[PriceDocument, ...]
    gone: tuple[PriceDocument, ...]


def prices_document(offers: Iterable[Offer], rows: Iterable[ProviderRow]) -> PricesDocument:
    """Document of offers and providers."""
    return PricesDocument(
        schema_version=SCHEMA_VERSION,
        offers=tuple(_price(o) for o in offers),
        providers=tuple(_provider(r) for r in rows),
    )


def history_document(offers: Sequence[Offer], points: Mapping[Key, tuple[Point, ...]]) -> HistoryDocument:
    """Document of prices over time."""
    found = tuple(
        SeriesDocument(
            provider=o.provider,
            instance_type=o.instance_type,
            region=o.region,
            zone=o.zone,
            market=o.market,
            prices=tuple(
                PointDocument(seen=p.seen, usd_per_hour=money(p.usd_per_hour)) for p in points.get(key(o), ())
            ),
        )
        for o in offers
    )
    return HistoryDocument(schema_version=SCHEMA_VERSION, history=found)


def moves_document(found: Moves) -> MovesDocument:
    """Document of what moved."""
    return MovesDocument(
        schema_version=SCHEMA_VERSION,
        moved=tuple(
            MoveDocument(
                offer=_price(m.offer),
                before_usd_per_hour=money(m.before_usd_per_hour),
                before_seen=m.before_seen,
                change=m.change,
            )
            for m in found.moved
        ),
        new=tuple(_price(o) for o in found.new),
        gone=tuple(_price(o) for o in found.gone),
    )


def _price(offer: Offer) -> PriceDocument:
    return PriceDocument(
        provider=offer.provider,
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        market=offer.market,
        gpu=offer.gpu,
        gpus_per_node=offer.gpus_per_node,
        usd_per_hour=money(offer.usd_per_hour),
        unknown_why=offer.unknown_why,
        price_seen=offer.price_seen,
        source=offer.source,
        origin=offer.origin,
        links=offer.links,
        vcpus=offer.vcpus,
        host_memory_bytes=offer.host_memory_bytes,
        local_disk_bytes=offer.local_disk_bytes,
        min_billing_s=offer.min_billing_s,
        billing_increment_s=offer.billing_increment_s,
        not_included=offer.not_included,
        available=offer.available,
        note=offer.note,
    )


def _provider(row: ProviderRow) -> ProviderDocument:
    return ProviderDocument(
        provider=row.provider,
        num_offers=row.num_offers,
        age_s=row.age_s,
        state=row.state,
        hint=row.hint,
        reason=row.reason,
        notes=row.notes,
        unknown_gpus=tuple(UnknownGpuDocument(name=u.name, count=u.count) for u in row.unknown_gpus),
    )
