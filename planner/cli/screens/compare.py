"""The screen of ``plan compare``: owning and renting side by side, and where the one overtakes the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal

from planner import units
from planner.cli import text
from planner.cli.prices.comparison import Comparison, Rent
from planner.cli.text import Column, Terminal
from providers.age import age_s, mark

NEVER = "never"
_MARKS = {"fresh": "", "marked": " *", "old": " OLD"}


def comparisons(found: Sequence[Comparison], now: datetime, term: Terminal) -> str:
    """Draw all machines, one under the other."""
    return "\n\n".join("\n".join(_one(each, now, term)) for each in found)


def _one(c: Comparison, now: datetime, term: Terminal) -> Iterator[str]:
    yield from text.paragraph(
        f"Own {c.name}, {c.machines} {'machine' if c.machines == 1 else 'machines'}; figures are of one, "
        f"at {_hours(c.hours_used_per_month)} of use a month",
        term,
    )
    yield from text.paragraph(_cloud(c, now), term)
    yield ""
    yield from _sides(c, term)
    yield ""
    yield from text.paragraph(verdict(c), term)
    if c.rents:
        yield from ("", *_rents(c, now, term))
        yield from ("", *_by_use(c, term))
        yield from ("", *_by_fleet(c, term))
    for title, parts in (("Assumed", c.assumed), ("Not known, in no sum", c.unknown)):
        if parts:
            yield from text.paragraph(f"{title}: {'; '.join(parts)}.", term)


# ------------------------------------------------------------------------------------- side by side


def _sides(c: Comparison, term: Terminal) -> list[str]:
    """Purchase, operation, scaling and a month: owned, and at the cheapest offer."""
    rent = c.reference
    hourly = units.usd_per_hour(None if rent is None else float(rent.usd_per_hour))
    rows = [
        ["purchase", _purchase(c), "none"],
        ["operation", _operation(c), hourly],
        [
            "scaling",
            f"{_usd(None if _is_paid_for(c) else c.purchase_usd)} for each further machine",
            f"{hourly} for each further one",
        ],
        ["a month", _least(c, c.usd_per_month), _usd(rent.usd_per_month if rent else None)],
    ]
    return text.table([Column("", 10), Column("OWN", 30), Column("CLOUD", 24)], rows, term.width, " ")


def _cloud(c: Comparison, now: datetime) -> str:
    """Name the offer that the machine is set against."""
    if c.reference is None:
        return f"Cloud: no offer of {c.gpu} has a price"
    price = units.usd_per_hour(float(c.reference.usd_per_hour))
    return f"Cloud: {_place(c.reference)} ({c.reference.region}), {price}, price age {_age(c.reference, now)}"


def _is_paid_for(c: Comparison) -> bool:
    return c.purchase_usd == "0"


def _purchase(c: Comparison) -> str:
    if _is_paid_for(c):
        return "already paid for"
    if c.purchase_usd is None or c.lifetime_months is None:
        return "price not given"
    life = f"{float(c.lifetime_months):g} months"
    return f"{_usd(c.purchase_usd)} once: {_usd(c.purchase_usd_per_month)} a month over {life}"


def _operation(c: Comparison) -> str:
    parts = [
        f"{units.usd_per_hour(float(c.load_usd_per_hour))} under load",
        f"{units.usd_per_hour(_float(c.idle_usd_per_hour))} idle",
        "hosting unknown"
        if c.hosting_usd_per_month is None
        else f"hosting {_usd(c.hosting_usd_per_month)} a month",
    ]
    return " ".join(text.keep(p) for p in (f"{parts[0]},", f"{parts[1]},", parts[2]))


def _least(c: Comparison, amount: str) -> str:
    """Write a sum of own costs, a lower bound where parts are not known."""
    if not c.unknown:
        return _usd(amount)
    return f"≥ {_usd(amount)} + {units.UNKNOWN} {', '.join(c.unknown)}"


def verdict(c: Comparison) -> str:
    """Say in one sentence whether to own or to rent, and from which use on."""
    rent = c.reference
    if rent is None:
        return f"No offer of {c.gpu} has a price: nothing to compare with."
    if c.purchase_usd is None:
        return (
            f"A month owned: {_least(c, c.usd_per_month)}; rented: {_usd(rent.usd_per_month)}. "
            "Whether to buy is unknown without purchase_usd (0: already paid for)."
        )
    least = "at least " if c.unknown else ""
    if rent.break_even_hours_per_month is None:
        return f"Rent: {_place(rent)} is cheaper whatever the use."
    from_h = f"{least}{_hours(rent.break_even_hours_per_month)} of use a month"
    if rent.cheaper == "rent":
        return f"Rent: owning is cheaper only from {from_h}."
    if _is_paid_for(c):
        return f"Own: it is cheaper from {from_h}; it is already paid for."
    paid = "not within its life" if rent.payback_hours is None else f"after {least}{_payback(c, rent)}"
    return f"Own: it is cheaper from {from_h}; paid back {paid}."


def _payback(c: Comparison, rent: Rent) -> str:
    if rent.payback_hours is None:
        return NEVER
    months = float(rent.payback_hours) / float(c.hours_used_per_month)
    return f"{_hours(rent.payback_hours)} ({months:,.0f} months)"


# ------------------------------------------------------------------------------------- tables


def _rents(c: Comparison, now: datetime, term: Terminal) -> list[str]:
    """List the cheapest offers, one for each provider and market."""
    columns = [
        Column("RENT", 26 if term.wide else 20),
        *([Column("MACHINES")] if term.wide else []),
        Column("$/h", right=True),
        Column("A MONTH", right=True),
        Column("CHEAPER"),
        Column("BREAK-EVEN"),
        Column("PAID BACK AFTER", 10),
        Column("AGE"),
    ]
    rows = [_rent_cells(c, r, now, term) for r in c.rents]
    foot = (
        f"Cheapest offer of each provider and market, {len(c.rents)} of {c.num_offers} offers of {c.gpu}. "
        "BREAK-EVEN: use a month from which owning is cheaper. "
        "* older than 24 hours; OLD: older than 30 days, or of unknown age."
    )
    return [*text.table(columns, rows, term.width, " "), *text.paragraph(foot, term, " ")]


def _rent_cells(c: Comparison, r: Rent, now: datetime, term: Terminal) -> list[str]:
    bound = "≥ " if c.unknown else ""
    known, hours = r.cheaper != "unknown", r.break_even_hours_per_month
    back = f"{bound if r.payback_hours else ''}{_payback(c, r)}"
    return [
        _place(r),
        *([text.keep(f"{r.num_nodes} of {r.gpus_per_node}× GPU")] if term.wide else []),
        f"{float(r.usd_per_hour):,.2f}",
        _usd(r.usd_per_month),
        r.cheaper,
        text.keep((bound + _hours(hours) if hours else NEVER) if known else units.UNKNOWN),
        back if known else units.UNKNOWN,
        text.keep(_age(r, now)),
    ]


def _by_use(c: Comparison, term: Terminal) -> list[str]:
    """Show both lines at some hours of use."""
    columns = [
        Column("USE A MONTH", right=True),
        Column("OWN", right=True),
        Column("RENT", right=True),
        Column("CHEAPER"),
    ]
    rows = [
        [_hours(str(u.hours)), _sum(c, u.own_usd), _usd(u.rent_usd), _cheaper(c, u.own_usd, u.rent_usd)]
        for u in c.by_use
    ]
    return text.table(columns, rows, term.width, " ")


def _by_fleet(c: Comparison, term: Terminal) -> list[str]:
    """Show what more machines cost, bought and rented."""
    columns = [
        Column("MACHINES", right=True),
        Column("GPUS", right=True),
        Column("TO BUY", right=True),
        Column("OWN A MONTH", right=True),
        Column("RENT A MONTH", right=True),
    ]
    rows = [
        [
            str(f.machines),
            str(f.gpus),
            _usd(f.purchase_usd),
            _sum(c, f.own_usd_per_month),
            _usd(f.rent_usd_per_month),
        ]
        for f in c.by_fleet
    ]
    return text.table(columns, rows, term.width, " ")


def _cheaper(c: Comparison, own: str, rent: str | None) -> str:
    if rent is None or c.purchase_usd is None:
        return units.UNKNOWN
    return "own" if Decimal(own) < Decimal(rent) else "rent"


# ------------------------------------------------------------------------------------- small parts


def _sum(c: Comparison, amount: str) -> str:
    return f"{'≥ ' if c.unknown else ''}{_usd(amount)}"


def _place(rent: Rent) -> str:
    market = "" if rent.market == "on-demand" else f" {rent.market}"
    return f"{rent.provider} {rent.instance_type}{market}"


def _age(rent: Rent, now: datetime) -> str:
    """Age of a price, marked from a day on, loud from 30 days on."""
    return f"{units.age(age_s(rent.price_seen, now))}{_MARKS[mark(rent.price_seen, now)]}"


def _usd(value: str | None) -> str:
    return units.usd(_float(value))


def _hours(value: str) -> str:
    return f"{float(value):,.0f} h"


def _float(value: str | None) -> float | None:
    return None if value is None else float(value)
