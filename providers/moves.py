"""What moved: the prices of two points in time compared, and the price of an offer over time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from planner.types import Offer
from providers.base import Key, key


@dataclass(frozen=True, slots=True)
class Move:
    """A price that was another before. ``None``: was, or is, not known."""

    offer: Offer
    before_usd_per_hour: Decimal | None
    before_seen: datetime | None

    @property
    def change(self) -> float | None:
        """Change as a share of the price before; ``None`` where one of the two is not known."""
        now, before = self.offer.usd_per_hour, self.before_usd_per_hour
        return None if now is None or before is None else float(now / before) - 1


@dataclass(frozen=True, slots=True)
class Moves:
    """Prices that differ, sorted by how much; offers that are new; offers that are gone."""

    moved: tuple[Move, ...]
    new: tuple[Offer, ...]
    gone: tuple[Offer, ...]


def moves(before: Iterable[Offer], after: Iterable[Offer]) -> Moves:
    """Compare two lists of offers by key."""
    old = {key(o): o for o in before}
    now = {key(o): o for o in after}
    moved = [
        Move(o, old[k].usd_per_hour, old[k].price_seen)
        for k, o in now.items()
        if k in old and old[k].usd_per_hour != o.usd_per_hour
    ]
    return Moves(
        moved=tuple(sorted(moved, key=lambda m: (-abs(m.change or 0), key(m.offer)))),
        new=tuple(o for k, o in now.items() if k not in old),
        gone=tuple(o for k, o in old.items() if k not in now),
    )


@dataclass(frozen=True, slots=True)
class Point:
    """A price and when it was first seen."""

    seen: datetime | None
    usd_per_hour: Decimal | None


def over_time(lists: Iterable[Sequence[Offer]]) -> dict[Key, tuple[Point, ...]]:
    """Price of every offer over lists that are in the order of time: a point wherever it changed."""
    found: dict[Key, list[Point]] = {}
    for offers in lists:
        for offer in offers:
            points = found.setdefault(key(offer), [])
            if not points or points[-1].usd_per_hour != offer.usd_per_hour:
                points.append(Point(offer.price_seen, offer.usd_per_hour))
    return {k: tuple(points) for k, points in found.items()}
