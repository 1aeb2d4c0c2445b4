"""How old a price is. The present is passed in: nothing here reads a clock.

A price without a date counts as old: it may be of any age.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from planner.types import Offer

AgeMark = Literal["fresh", "marked", "old"]
MARKED_AFTER_S = 24 * 3600.0
OLD_AFTER_S = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages of a set of known prices. ``oldest`` and ``newest`` are ``None`` where no price has a date."""

    num_priced: int
    num_old: int
    num_undated: int
    oldest: datetime | None
    newest: datetime | None


def age_s(seen: datetime | None, now: datetime) -> float | None:
    """Seconds since ``seen``; ``None`` where that is not known; 0 for a time in the future (clock skew)."""
    return None if seen is None else max(0.0, (now - seen).total_seconds())


def age_days(offer: Offer, now: datetime) -> float | None:
    """Days since the price of ``offer`` was seen; ``None`` where that is not known."""
    seconds = age_s(offer.price_seen, now)
    return None if seconds is None else seconds / 86400


def begun_months(offer: Offer, now: datetime) -> int | None:
    """Months of 30 days that the age of a price has reached into; ``None`` where it has no date."""
    days = age_days(offer, now)
    return None if days is None else math.ceil(days / 30)


def aged(offers: Iterable[Offer], now: datetime) -> tuple[Offer, ...]:
    """Set ``price_age_months`` on dated offers: what the cost takes a price's drift from."""
    return tuple(
        o if (months := begun_months(o, now)) is None else o.model_copy(update={"price_age_months": months})
        for o in offers
    )


def mark(seen: datetime | None, now: datetime) -> AgeMark:
    """Say ``marked`` from 24 hours on, ``old`` from 30 days on and where the age is not known."""
    seconds = age_s(seen, now)
    if seconds is None or seconds > OLD_AFTER_S:
        return "old"
    return "marked" if seconds > MARKED_AFTER_S else "fresh"


def ages(offers: Iterable[Offer], now: datetime) -> Ages:
    """Count the old and the undated among the offers that have a price."""
    priced = [o for o in offers if o.usd_per_hour is not None]
    dates = [o.price_seen for o in priced if o.price_seen is not None]
    return Ages(
        num_priced=len(priced),
        num_old=sum(mark(o.price_seen, now) == "old" for o in priced),
        num_undated=len(priced) - len(dates),
        oldest=min(dates, default=None),
        newest=max(dates, default=None),
    )


def warning(found: Ages) -> str | None:
    """One line for the header where prices are older than 30 days, or of unknown age; else ``None``."""
    if not found.num_old:
        return None
    text = f"{found.num_old:,} of {found.num_priced:,} prices are older than 30 days"
    if found.num_undated:
        text += f", {found.num_undated:,} of them of unknown age"
    if found.oldest is not None:
        text += f" (oldest dated {found.oldest:%Y-%m-%d})"
    return text
