"""When a price is not believed: it becomes unknown, with its reason. Pure.

Rules: not above 0; a sentinel; a spot price that equals the on-demand price; outside 0.2 to 5 times the
middle of what other providers ask for that GPU in that market, unless ``data/overlay.csv`` explains it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from planner.types import Market, Offer
from providers.base import Key, key

LOWEST_RATIO = 0.2
HIGHEST_RATIO = 5.0
SENTINELS = frozenset({Decimal("700"), Decimal("0.00001")})


@dataclass(frozen=True, slots=True)
class Outlier:
    """A price per GPU-hour far from the middle of its GPU and market."""

    key: Key
    source: str
    usd_per_gpu_hour: float
    median_usd_per_gpu_hour: float


def unbelievable(price: Decimal) -> str | None:
    """Why ``price`` (USD per node-hour) cannot be a price; ``None`` if it can."""
    if not price.is_finite() or price <= 0:
        return f"price {price} is not above 0"
    if price in SENTINELS:
        return f"price {price} is a placeholder of the source"
    return None


def spot_is_on_demand(spot: Decimal | None, on_demand: Decimal | None) -> str | None:
    """Say that there is no spot market where the spot price equals the on-demand price."""
    same = spot is not None and on_demand is not None and spot == on_demand
    return "spot equals on-demand: no spot market there" if same else None


def usd_per_gpu_hour(offer: Offer) -> float | None:
    """Price of one GPU for an hour; ``None`` where the price is not known."""
    return None if offer.usd_per_hour is None else float(offer.usd_per_hour) / offer.gpus_per_node


def median(values: Sequence[float]) -> float:
    """Middle of at least one value (the standard library's ``statistics`` takes long to import)."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def medians(offers: Iterable[Offer]) -> dict[tuple[str, Market], float]:
    """Middle price per GPU-hour of each (GPU, market): the median over providers of each one's median.

    Every provider counts once, so that one with many regions does not outvote the rest.
    """
    prices: defaultdict[tuple[str, Market], defaultdict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for offer in offers:
        price = usd_per_gpu_hour(offer)
        if price is not None:
            prices[offer.gpu, offer.market][offer.provider].append(price)
    return {k: median([median(p) for p in by.values()]) for k, by in prices.items()}


def outliers(offers: Sequence[Offer]) -> tuple[Outlier, ...]:
    """Offers whose price per GPU-hour lies outside 0.2 to 5 times the middle of their GPU and market."""
    middle = medians(offers)
    found = []
    for offer in offers:
        price = usd_per_gpu_hour(offer)
        if price is None:
            continue
        mid = middle[offer.gpu, offer.market]
        if not LOWEST_RATIO * mid <= price <= HIGHEST_RATIO * mid:
            found.append(
                Outlier(
                    key=key(offer),
                    source=offer.source,
                    usd_per_gpu_hour=price,
                    median_usd_per_gpu_hour=mid,
                )
            )
    return tuple(found)


def without_outliers(offers: Sequence[Offer], explained: frozenset[Key]) -> tuple[Offer, ...]:
    """Make the price of every outlier unknown unless its key is ``explained``."""
    bad = {o.key: o for o in outliers(offers) if o.key not in explained}
    return tuple(_doubted(o, bad[key(o)]) if key(o) in bad else o for o in offers)


def doubted_against(
    offers: Iterable[Offer], middle: Mapping[tuple[str, Market], float], explained: frozenset[Key]
) -> tuple[Offer, ...]:
    """Make the price of every offer outside 0.2 to 5 times ``middle`` unknown, unless it is ``explained``.

    ``middle``: USD per GPU-hour of a GPU in a market. What has no middle is not judged.
    """
    done = []
    for offer in offers:
        price, mid = usd_per_gpu_hour(offer), middle.get((offer.gpu, offer.market))
        odd = (
            price is not None
            and mid is not None
            and not LOWEST_RATIO * mid <= price <= HIGHEST_RATIO * mid
            and key(offer) not in explained
        )
        if odd and price is not None and mid is not None:
            offer = _doubted(offer, Outlier(key(offer), offer.source, price, mid))
        done.append(offer)
    return tuple(done)


def _doubted(offer: Offer, outlier: Outlier) -> Offer:
    """``offer`` with its price unknown, and why."""
    why = (
        f"{outlier.usd_per_gpu_hour:.2f} per GPU-hour, where others ask "
        f"{outlier.median_usd_per_gpu_hour:.2f}: not believed"
    )
    return offer.model_copy(update={"usd_per_hour": None, "unknown_why": why})
