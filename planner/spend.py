"""What a launch has spent so far: its own transitions and price points, never today's catalog.

A price point says what one unit of an item costs from a moment on, and how many of them bill; it holds until
the next point of the same item, or until the launch is gone. Nodes and the head are billed as the offer says:
at least ``min_billing_s``, in steps of ``billing_increment_s`` (both for each time that they run on end);
disks and addresses by the second. What has no price stays out of the sum and is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby, pairwise

from planner.launched import Launch, PricePoint
from planner.types import Record

_STEPPED = ("node", "head")
_HOUR = Decimal(3600)
_CENTS = Decimal("0.0001")


class SpentLine(Record):
    """One item at one price. ``billed_s`` holds what rounding up adds; ``usd``: ``None`` without a price."""

    item: str
    since: datetime
    until: datetime
    quantity: int
    usd_per_hour: Decimal | None
    billed_s: float
    usd: Decimal | None
    source: str


class Spent(Record):
    """Sum of what has a price, the lines behind it, and the items that have none."""

    usd: Decimal
    lines: tuple[SpentLine, ...]
    unknown: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether everything that bills has a price."""
        return not self.unknown


class _Piece(Record):
    point: PricePoint
    until: datetime

    @property
    def seconds(self) -> float:
        return (self.until - self.point.since).total_seconds()


def spent(launch: Launch, now: datetime) -> Spent:
    """Work out what a launch has spent until ``now``, or until it was gone."""
    end = min(now, ended(launch) or now)
    lines: list[SpentLine] = []
    for item in dict.fromkeys(p.item for p in launch.prices):
        points = sorted((p for p in launch.prices if p.item == item), key=lambda p: p.since)
        lines += _once(points, end)
        for stretch in _stretches(points, end):
            lines += _lines(stretch, launch)
    return Spent(
        usd=sum((line.usd for line in lines if line.usd is not None), Decimal(0)),
        lines=tuple(lines),
        unknown=tuple(dict.fromkeys(line.item for line in lines if line.usd is None)),
    )


def ended(launch: Launch) -> datetime | None:
    """When the launch was gone; ``None`` while it is not."""
    return launch.transitions[-1].at if launch.state == "gone" else None


def usd_per_hour(launch: Launch) -> Decimal | None:
    """What everything that bills now costs in an hour; ``None`` where one of it has no price."""
    latest = {p.item: p for p in sorted(launch.prices, key=lambda p: p.since)}
    billing = [p for p in latest.values() if p.quantity > 0]
    if any(p.usd_per_hour is None for p in billing):
        return None
    return sum((p.quantity * p.usd_per_hour for p in billing if p.usd_per_hour is not None), Decimal(0))


def lost_usd(launch: Launch, now: datetime) -> Decimal:
    """What lost work adds to the cost of a run: the hours that are done again, and the new starts.

    Lost work whose time is not known adds its new start only.
    """
    total = Decimal(0)
    for lost in launch.lost:
        before = launch.model_copy(
            update={"prices": tuple(p for p in launch.prices if p.since < lost.at and p.since <= now)}
        )
        if lost.seconds is not None:
            total += (usd_per_hour(before) or Decimal(0)) * Decimal(str(lost.seconds)) / _HOUR
        again = [t.at for t in launch.transitions if t.state == "committed" and t.at >= lost.at]
        start = min(again, default=now)
        total += max(Decimal(0), spent(launch, start).usd - spent(launch, lost.at).usd)
    return total.quantize(_CENTS, rounding=ROUND_HALF_UP)


def billed_s(run_s: float, min_billing_s: int | None, increment_s: int | None) -> float:
    """Seconds that are billed for ``run_s``; a rule that is not known adds nothing."""
    step = increment_s or 0
    stepped = math.ceil(round(run_s / step, 6)) * step if step else run_s
    return max(stepped, float(min_billing_s or 0))


def _once(points: Sequence[PricePoint], end: datetime) -> list[SpentLine]:
    """What was paid up front, at the first point that says so."""
    first = next((p for p in points if p.usd_once is not None and p.since <= end), None)
    if first is None:
        return []
    return [
        SpentLine(
            item=first.item,
            since=first.since,
            until=end,
            quantity=first.quantity,
            usd_per_hour=None,
            billed_s=0.0,
            usd=first.usd_once,
            source=first.source,
        )
    ]


def _stretches(points: Sequence[PricePoint], end: datetime) -> list[list[_Piece]]:
    """Times in which an item ran on end; the pieces of one differ in price or number."""
    ends = [b.since for _, b in pairwise(points)] + [max(end, points[-1].since)]
    pieces = [
        _Piece(point=p, until=min(until, end)) for p, until in zip(points, ends, strict=True) if p.since < end
    ]
    return [list(g) for runs, g in groupby(pieces, key=lambda p: p.point.quantity > 0) if runs]


def _lines(stretch: Sequence[_Piece], launch: Launch) -> list[SpentLine]:
    """Lines of one stretch; what rounding up adds stands in the last."""
    total = sum(p.seconds for p in stretch)
    extra = 0.0
    if stretch[0].point.item in _STEPPED:
        extra = billed_s(total, launch.min_billing_s, launch.billing_increment_s) - total
    last = len(stretch) - 1
    return [_line(piece, piece.seconds + (extra if i == last else 0.0)) for i, piece in enumerate(stretch)]


def _line(piece: _Piece, seconds: float) -> SpentLine:
    point = piece.point
    usd = None
    if point.usd_per_hour is not None:
        exact = point.usd_per_hour * point.quantity * Decimal(str(seconds)) / _HOUR
        usd = exact.quantize(_CENTS, rounding=ROUND_HALF_UP)
    return SpentLine(
        item=point.item,
        since=point.since,
        until=piece.until,
        quantity=point.quantity,
        usd_per_hour=point.usd_per_hour,
        billed_s=seconds,
        usd=usd,
        source=point.source,
    )
