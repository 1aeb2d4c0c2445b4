"""Rent or buy: a machine of the user against the offers of its GPU, as records to draw or print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Literal

from planner.ownership import HOURS_A_MONTH, OwnedMachine, Ownership, break_even, ownership
from planner.types import Offer, Record

SCHEMA_VERSION = 1
USES_H = (50, 100, 200, 365, 730)
FLEETS = (1, 2, 4, 8)
Cheaper = Literal["own", "rent", "unknown"]


class Rent(Record):
    """An offer of the same GPU, as many of its machines as have the GPUs of the user's. Money is a string.

    ``usd_per_hour`` is of all ``num_nodes``. ``break_even_hours_per_month``: use from which owning is
    cheaper, null = never; ``payback_hours``: use that pays the purchase back, null = not in the machine's
    life. Both are null, and ``cheaper`` is unknown, without a purchase price.
    """

    provider: str
    instance_type: str
    region: str
    market: str
    gpus_per_node: int
    num_nodes: int
    usd_per_hour: str
    usd_per_month: str
    price_seen: datetime | None
    source: str
    cheaper: Cheaper
    break_even_hours_per_month: str | None
    payback_hours: str | None


class Use(Record):
    """A month with some hours of use: owned, and rented at the cheapest offer."""

    hours: int
    own_usd: str
    rent_usd: str | None


class Fleet(Record):
    """Several machines: to buy, and a month of them owned and rented at the cheapest offer."""

    machines: int
    gpus: int
    purchase_usd: str | None
    own_usd_per_month: str
    rent_usd_per_month: str | None


class Comparison(Record):
    """One machine of the user. ``unknown`` parts are in no sum: own figures are lower bounds then.

    ``reference``: the offer that ``cheaper``, ``by_use`` and ``by_fleet`` are about: the cheapest that is one
    machine with as many GPUs and cannot be taken away, if there is such a one.
    """

    name: str
    gpu: str
    gpus: int
    machines: int
    purchase_usd: str | None
    purchase_usd_per_month: str | None
    hosting_usd_per_month: str | None
    idle_usd_per_hour: str | None
    load_usd_per_hour: str
    hours_used_per_month: str
    lifetime_months: str | None
    usd_per_hour: str | None
    usd_per_month: str
    assumed: tuple[str, ...]
    unknown: tuple[str, ...]
    cheaper: Cheaper
    reference: Rent | None
    rents: tuple[Rent, ...]
    num_offers: int
    by_use: tuple[Use, ...]
    by_fleet: tuple[Fleet, ...]


class CompareDocument(Record):
    """``plan compare --json``."""

    schema_version: int
    comparisons: tuple[Comparison, ...]


def comparison(name: str, machine: OwnedMachine, offers: Sequence[Offer], top: int) -> Comparison:
    """Set ``machine`` against the cheapest offer of each provider and market, the first ``top`` of them."""
    cost = ownership(machine)
    fitting = [o for o in offers if o.gpu == machine.gpu and o.market != "owned" and o.usd_per_hour]
    rents = [_rent(machine, cost, o) for o in _cheapest(machine, fitting)]
    reference = min(rents, key=lambda r: (r.num_nodes > 1, r.market == "spot"), default=None)
    first = None if reference is None else Decimal(reference.usd_per_hour)
    used = cost.hours_used_per_month
    return Comparison(
        name=name,
        gpu=machine.gpu,
        gpus=machine.gpus,
        machines=machine.machines,
        purchase_usd=_money(machine.purchase_usd),
        purchase_usd_per_month=_money(cost.purchase_usd_per_month),
        hosting_usd_per_month=_money(cost.hosting_usd_per_month),
        idle_usd_per_hour=_money(cost.idle_usd_per_hour),
        load_usd_per_hour=_plain(cost.load_usd_per_hour),
        hours_used_per_month=_plain(used),
        lifetime_months=_money(cost.lifetime_months),
        usd_per_hour=_money(cost.usd_per_hour),
        usd_per_month=_plain(cost.month_usd(used)),
        assumed=cost.assumed,
        unknown=cost.unknown,
        cheaper="unknown" if reference is None else reference.cheaper,
        reference=reference,
        rents=tuple(rents[:top]),
        num_offers=len(fitting),
        by_use=tuple(_use(cost, hours, first) for hours in USES_H),
        by_fleet=tuple(_fleet(machine, cost, n, first) for n in FLEETS),
    )


def _nodes(machine: OwnedMachine, offer: Offer) -> int:
    """How many nodes of an offer have the GPUs of the machine: a larger one is rented whole."""
    return -(-machine.gpus // offer.gpus_per_node)


def _hourly(machine: OwnedMachine, offer: Offer) -> Decimal:
    """USD an hour of renting what the machine has."""
    return (offer.usd_per_hour or Decimal(0)) * _nodes(machine, offer)


def _cheapest(machine: OwnedMachine, offers: Iterable[Offer]) -> list[Offer]:
    """Cheapest offer of each provider and market, cheapest first; several machines only as a way out."""
    best: dict[tuple[str, str], Offer] = {}

    def order(offer: Offer) -> tuple[bool, Decimal, str, str]:
        several = _nodes(machine, offer) > 1
        return several, _hourly(machine, offer), offer.instance_type, offer.region

    for offer in sorted(offers, key=order):
        best.setdefault((offer.provider, offer.market), offer)
    return sorted(best.values(), key=lambda o: (_hourly(machine, o), o.provider, o.market))


def _rent(machine: OwnedMachine, cost: Ownership, offer: Offer) -> Rent:
    """Set one offer against the machine."""
    hourly = _hourly(machine, offer)
    used = cost.hours_used_per_month
    found = break_even(machine, cost, hourly)
    own_is_cheaper = cost.month_usd(used) < hourly * used
    return Rent(
        provider=offer.provider,
        instance_type=offer.instance_type,
        region=offer.region,
        market=offer.market,
        gpus_per_node=offer.gpus_per_node,
        num_nodes=_nodes(machine, offer),
        usd_per_hour=_plain(hourly),
        usd_per_month=_plain(hourly * used),
        price_seen=offer.price_seen,
        source=offer.source,
        cheaper=("own" if own_is_cheaper else "rent") if found.is_known else "unknown",
        break_even_hours_per_month=_money(found.hours_per_month),
        payback_hours=_money(found.hours_total),
    )


def _use(cost: Ownership, hours: int, rent: Decimal | None) -> Use:
    """Set a month of so many hours of use beside one that is rented."""
    at = min(Decimal(hours), HOURS_A_MONTH)
    rented = None if rent is None else rent * at
    return Use(hours=hours, own_usd=_plain(cost.month_usd(at)), rent_usd=_money(rented))


def _fleet(machine: OwnedMachine, cost: Ownership, n: int, rent: Decimal | None) -> Fleet:
    """Set so many machines at the stated use beside rented ones."""
    used = cost.hours_used_per_month
    return Fleet(
        machines=n,
        gpus=n * machine.gpus,
        purchase_usd=_plain(machine.purchase_usd * n)
        if machine.purchase_usd
        else None,  # 0: paid for, further ones not
        own_usd_per_month=_plain(cost.month_usd(used) * n),
        rent_usd_per_month=None if rent is None else _plain(rent * used * n),
    )


def _plain(value: Decimal) -> str:
    """Decimal digits to a hundredth of a cent, without an exponent."""
    rounded = value.quantize(Decimal("0.0001"), rounding=ROUND_HALF_EVEN)
    return f"{rounded.normalize():f}"


def _money(value: Decimal | None) -> str | None:
    return None if value is None else _plain(value)
