"""The screens of ``plan prices``: offers, providers, prices over time, what moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from planner import units
from planner.cli import text
from planner.cli.text import Column, Terminal
from planner.types import Offer
from providers.age import age_s, mark
from providers.base import Key, key
from providers.moves import Move, Moves, Point
from providers.refresh import ProviderRow
from providers.states import NO_ADAPTER

if TYPE_CHECKING:
    from planner.cli.prices.listing import Listing

NOTHING = "–"
MOST_MOVES = 40
MOST_NAMES = 6
_MARKS = {"fresh": "", "marked": " *", "old": " OLD"}
_SOURCES = {"live": "live API", "shipped": "catalog", "own": "your list"}
_LINKS = (("nvlink", "NVLink"), ("xgmi", "xGMI"), ("pcie", "PCIe"))


@dataclass(frozen=True, slots=True)
class _Line:
    """Offers that differ in their place only, as one line of the table."""

    offer: Offer
    places: tuple[str, ...]


def prices(listing: Listing, rows: Sequence[ProviderRow], now: datetime, term: Terminal) -> str:
    """Draw the table of offers, what is not shown, and the providers."""
    lines = _grouped(listing.offers)
    shown = lines[: listing.most]
    drawn = text.table(
        _columns(listing, shown, term), [_cells(x, listing, now, term) for x in shown], term.width
    )
    foot = [*_foot(listing, len(lines), len(shown)), *_ages(shown, now)]
    return "\n".join(
        [
            *(drawn if shown else ["No offer fits."]),
            *(line for sentence in foot for line in text.paragraph(sentence, term)),
            *([""] if rows else []),
            *_providers(rows, term),
            *_remarks(rows, term),
        ]
    )


def _grouped(offers: Iterable[Offer]) -> list[_Line]:
    """Put offers of one type, market, price and age into one line, in the order of the first of them."""
    found: dict[tuple[object, ...], list[Offer]] = {}
    for o in offers:
        same = (o.provider, o.instance_type, o.market, o.usd_per_hour, o.unknown_why, o.price_seen)
        found.setdefault(same, []).append(o)
    return [_Line(group[0], tuple(o.zone or o.region for o in group)) for group in found.values()]


def _columns(listing: Listing, shown: Sequence[_Line], term: Terminal) -> list[Column]:
    if listing.missing:
        return [
            Column("OFFER", 16),
            Column("REGION", 9),
            Column("MARKET"),
            Column("PRICE UNKNOWN, BECAUSE", 20),
        ]
    return [
        Column("OFFER", 18),
        Column("GPUS", max((len(_gpus(x.offer)) for x in shown), default=0)),
        *([Column("LINK"), Column("REGION", 9)] if term.wide else []),
        Column("$/GPU/h", right=True),
        Column("$/h", right=True),
        Column("AGE"),
        *([Column("SOURCE")] if term.wide else []),
    ]


def _cells(line: _Line, listing: Listing, now: datetime, term: Terminal) -> list[str]:
    offer = line.offer
    if listing.missing:
        return [_name(offer), _places(line.places), offer.market, str(offer.unknown_why)]
    more = [_link(offer), _places(line.places)] if term.wide else []
    return [
        _name(offer),
        text.keep(_gpus(offer)),
        *more,
        _usd(offer.usd_per_hour, offer.gpus_per_node),
        _usd(offer.usd_per_hour),
        text.keep(_age(offer, now)),
        *([text.keep(_SOURCES[offer.origin])] if term.wide else []),
    ]


def _name(offer: Offer) -> str:
    """Provider and type, with the market where it is not on demand, and whether it was sold out."""
    market = "" if offer.market == "on-demand" else f" {offer.market}"
    sold_out = " (sold out)" if offer.available is False else ""
    return f"{offer.provider} {offer.instance_type}{market}{sold_out}"


def _gpus(offer: Offer) -> str:
    return f"{offer.gpus_per_node}× {offer.gpu}"


def _places(places: Sequence[str]) -> str:
    return text.keep(places[0] + (f" +{len(places) - 1}" if len(places) > 1 else ""))


def _link(offer: Offer) -> str:
    """Kind of link inside the node."""
    return next((kind for start, kind in _LINKS if offer.links.intra.startswith(start)), NOTHING)


def _usd(price: Decimal | None, gpus: int = 1) -> str:
    return NOTHING if price is None else f"{price / gpus:,.2f}"


def _age(offer: Offer, now: datetime) -> str:
    return units.age(age_s(offer.price_seen, now)) + _MARKS[mark(offer.price_seen, now)]


def _foot(listing: Listing, num_lines: int, num_shown: int) -> list[str]:
    """What is not shown, and how to see it."""
    parts = [f"Shown {num_shown} of {num_lines}" + (" (--all)." if num_shown < num_lines else ".")]
    if listing.num_spot:
        parts.append(f"Spot: {listing.num_spot} (--spot).")
    if listing.num_unknown and not listing.missing:
        parts.append(f"Price unknown: {listing.num_unknown} (--missing).")
    return [" ".join(parts)]


def _ages(shown: Sequence[_Line], now: datetime) -> list[str]:
    """Say what the marks mean, where there are any."""
    marks = [mark(line.offer.price_seen, now) for line in shown if line.offer.usd_per_hour is not None]
    said = []
    if "marked" in marks:
        said.append("* older than 24 hours.")
    if "old" in marks:
        number = marks.count("old")
        said.append(
            f"OLD: {number} of {len(marks)} prices shown are older than 30 days or of unknown age. "
            "Ask again: plan prices refresh"
        )
    return said


# ---------------------------------------------------------------------------------- providers


def _providers(rows: Sequence[ProviderRow], term: Terminal) -> list[str]:
    """Table of the providers that can be asked; a line of those whose prices only the catalog has."""
    columns = [Column("PROVIDER"), Column("OFFERS", right=True), Column("AGE"), Column("STATE", 20)]
    asked = [r for r in rows if r.reason != NO_ADAPTER]
    rest = [f"{r.provider} {r.num_offers}" for r in rows if r.reason == NO_ADAPTER]
    cells = [[r.provider, units.whole(r.num_offers), text.keep(_row_age(r)), _state(r)] for r in asked]
    last = text.paragraph(f"Catalog only, {NO_ADAPTER}: {', '.join(rest)}.", term) if rest else []
    return [*(text.table(columns, cells, term.width) if cells else []), *last]


def _row_age(row: ProviderRow) -> str:
    return NOTHING if row.age_s is None else units.age(row.age_s)


def _state(row: ProviderRow) -> str:
    words = {"ok": "ok", "shipped": "shipped", "skipped": "not refreshed", "failed": "failed"}[row.state]
    reason = f": {row.reason}" if row.reason else ""
    hint = f"   hint: {row.hint}" if row.hint and row.state != "ok" else ""
    return f"{words}{reason}{hint}"


def progress(row: ProviderRow) -> str:
    """Say in one line that a provider is done, as it happens."""
    if row.state == "ok":
        return f"{row.provider}: {row.num_offers:,} offers"
    return f"{row.provider}: {_state(row)}"


def closing(rows: Sequence[ProviderRow], term: Terminal) -> str:
    """Draw the table at the end of a refresh, with notes and GPU strings that are not in our table."""
    return "\n".join([*_providers(rows, term), *_remarks(rows, term)])


def _remarks(rows: Sequence[ProviderRow], term: Terminal) -> list[str]:
    """Notes of providers, and GPU strings that are not in our table: counted, not offered."""
    lines: list[str] = []
    for row in rows:
        for note in row.notes:
            lines += text.paragraph(f"{row.provider}: {note}", term)
        if row.unknown_gpus:
            names = [f"{u.name} ({u.count})" for u in row.unknown_gpus[:MOST_NAMES]]
            rest = len(row.unknown_gpus) - len(names)
            more = f" and {rest} more" if rest else ""
            lines += text.paragraph(f"{row.provider}: not in our GPU table: {', '.join(names)}{more}", term)
    return lines


# ---------------------------------------------------------------------------------- over time


def history(offers: Sequence[Offer], points: Mapping[Key, tuple[Point, ...]], term: Terminal) -> str:
    """Draw the prices of each offer over time, the change against the price before."""
    rows: list[list[str]] = []
    for offer in offers:
        before: Decimal | None = None
        for i, point in enumerate(points.get(key(offer), ())):
            name = [_name(offer), offer.zone or offer.region] if i == 0 else ["", ""]
            date = "unknown" if point.seen is None else f"{point.seen:%Y-%m-%d}"
            change = _change(before, point.usd_per_hour)
            rows.append([*name, date, _usd(point.usd_per_hour, offer.gpus_per_node), change])
            before = point.usd_per_hour
    columns = [
        Column("OFFER", 18),
        Column("REGION", 9),
        Column("SEEN"),
        Column("$/GPU/h", right=True),
        Column("CHANGE", right=True),
    ]
    return "\n".join(text.table(columns, rows, term.width)) if rows else "No offer fits."


def _change(before: Decimal | None, now: Decimal | None) -> str:
    return "" if before is None or now is None else units.signed_percent(float(now / before) - 1)


def moved(found: Moves, now: datetime, term: Terminal) -> str:
    """Draw what moved, the largest change first, and count what is new or gone."""
    columns = [
        Column("OFFER", 18),
        Column("REGION", 9),
        Column("WAS $/h", right=True),
        Column("NOW $/h", right=True),
        Column("CHANGE", right=True),
        Column("SINCE"),
    ]
    rows = [_move_cells(m, now) for m in found.moved[:MOST_MOVES]]
    lines = text.table(columns, rows, term.width) if rows else ["No price moved."]
    rest = len(found.moved) - len(rows)
    more = f"{rest} more moved (--json). " if rest else ""
    return "\n".join([*lines, f"{more}New offers: {len(found.new)}. Gone: {len(found.gone)}."])


def _move_cells(move: Move, now: datetime) -> list[str]:
    offer = move.offer
    return [
        _name(offer),
        text.keep(offer.zone or offer.region),
        _usd(move.before_usd_per_hour),
        _usd(offer.usd_per_hour),
        _change(move.before_usd_per_hour, offer.usd_per_hour) or NOTHING,
        text.keep(units.age(age_s(move.before_seen, now))),
    ]
