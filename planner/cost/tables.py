"""What a run costs besides the price of the node: rates of providers, overheads, interruptions, as data.

``data/costs.csv``: USD per unit of disk, checkpoint storage, traffic, addresses and head nodes.
``data/overheads.csv``: start-up, probe, restart, checkpoint writing, failures. ``data/interruptions.csv``:
how often a spot node is taken away. Every row has a source and a date; a rate without one is unknown, not 0.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from planner.types import Offer

TAIL_OF_80_PERCENT = 1.2816  # standard deviations that leave a tenth on either side of a normal distribution

Item = Literal["disk", "checkpoints", "download", "upload", "address", "head"]


@dataclass(frozen=True, slots=True)
class Rate:
    """A row of ``data/costs.csv``."""

    item: str
    provider: str
    usd: Decimal
    unit: str
    date: str
    source: str
    note: str


@dataclass(frozen=True, slots=True)
class Drift:
    """A row of ``data/price_drift.csv``: how far a listed price may be from what is paid, in logarithms."""

    log_sd_of_place: float
    log_variance_per_month: float
    months_if_undated: int


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A figure with its 80 % interval."""

    low: float
    mid: float
    high: float


def _rows(name: str) -> list[dict[str, str]]:
    """Read the rows of a data file."""
    text = files("planner").joinpath(f"data/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@lru_cache(maxsize=1)
def rates() -> dict[tuple[str, str], Rate]:
    """Return all rates by (item, provider)."""
    return {
        (r["item"], r["provider"]): Rate(**{**r, "usd": Decimal(r["usd"])})  # type: ignore[arg-type]
        for r in _rows("costs.csv")
    }


def rate(item: Item, provider: str) -> Rate | None:
    """Find what ``provider`` asks for ``item``; ``None`` where that is not known."""
    return rates().get((item, provider))


@lru_cache(maxsize=1)
def overheads() -> dict[str, Uncertain]:
    """Return all overheads by name; units stand in the name and in the table."""
    return {
        r["name"]: Uncertain(float(r["low"]), float(r["mid"]), float(r["high"]))
        for r in _rows("overheads.csv")
    }


@lru_cache(maxsize=1)
def _interruptions() -> tuple[tuple[str, str, Uncertain], ...]:
    """Rows of ``data/interruptions.csv``, the particular ones first."""
    found = [
        (
            r["provider"],
            r["gpu"],
            Uncertain(
                float(r["low_per_node_hour"]), float(r["mid_per_node_hour"]), float(r["high_per_node_hour"])
            ),
        )
        for r in _rows("interruptions.csv")
    ]
    return tuple(sorted(found, key=lambda row: (row[0] == "*") + (row[1] == "*")))


def interruptions_per_hour(offer: Offer) -> Uncertain:
    """How often an hour one node of ``offer`` is taken away: 0 unless it is spot. Failures are not in it."""
    if offer.market != "spot":
        return Uncertain(0.0, 0.0, 0.0)
    for provider, gpu, found in _interruptions():
        if provider in ("*", offer.provider) and (gpu == "*" or offer.gpu.startswith(gpu)):
            return found
    raise LookupError("data/interruptions.csv has no row for all")


@lru_cache(maxsize=1)
def _drifts() -> dict[str, Drift]:
    """Return the rows of ``data/price_drift.csv`` by market."""
    return {
        r["market"]: Drift(
            float(r["log_sd_of_place"]), float(r["log_variance_per_month"]), int(r["months_if_undated"])
        )
        for r in _rows("price_drift.csv")
    }


@lru_cache(maxsize=1024)
def price_factor(market: str, age_months: int | None) -> float:
    """What a listed price may have grown by: the 80 % interval is price / factor to price x factor.

    A random walk since it was seen, and for spot the scatter of places; an unknown age counts as old.
    """
    drift = _drifts()[market]
    months = drift.months_if_undated if age_months is None else age_months
    sd = math.hypot(drift.log_sd_of_place, math.sqrt(drift.log_variance_per_month * months))
    return math.exp(TAIL_OF_80_PERCENT * sd)
