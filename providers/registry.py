"""Names -> prices: collects offers of all providers, and says what was left out and how old the rest is.

Prices come from the shipped catalog and, where ``plan prices refresh`` has run, from the last good snapshots
over it (``served``). Nothing here imports an adapter or an SDK, or uses the network.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from planner.errors import UserError, did_you_mean
from planner.hardware.gpus import matching_ids
from planner.results import SkippedProvider
from planner.types import Offer
from providers.age import Ages, aged, ages, warning
from providers.base import UnknownGpu
from providers.catalog import NotOffered, not_offered, provider_rules
from providers.served import Served, served


@dataclass(frozen=True, slots=True)
class OfferSet:
    """Offers, sorted; providers that gave none, and why; what is worth a warning; ages, if asked for."""

    offers: tuple[Offer, ...]
    skipped: tuple[SkippedProvider, ...]
    num_unpriced: int
    warnings: tuple[str, ...] = ()
    not_offered: tuple[NotOffered, ...] = ()
    unknown_gpus: tuple[UnknownGpu, ...] = ()
    ages: Ages | None = None


def provider_names() -> tuple[str, ...]:
    """All providers that we know prices of, sorted."""
    return tuple(sorted({*provider_rules(), *(s.provider for s in served().snapshots)}))


def region_names() -> tuple[str, ...]:
    """All regions that an offer names, sorted."""
    return tuple(sorted({o.region for o in served().offers}))


def problems() -> tuple[str, ...]:
    """Price files that could not be used, and why; what serves instead."""
    return served().warnings


def _checked(names: Collection[str], known: Collection[str], what: str) -> frozenset[str]:
    """``names`` in the spelling of ``known``; ``UserError`` for one that is not known."""
    by_lower = {k.lower(): k for k in known}
    for name in names:
        if name.lower() not in by_lower:
            raise UserError(
                f"unknown {what} {name!r}{did_you_mean(name, known)}", f"--{what} any   takes all of them"
            )
    return frozenset(by_lower[n.lower()] for n in names)


def _skipped(offers: Sequence[Offer]) -> tuple[SkippedProvider, ...]:
    """List providers whose price lists were read and gave no offer at all."""
    have = {o.provider for o in offers}
    reasons: dict[str, list[str]] = {}
    for n in not_offered():
        if n.provider not in have:
            reasons.setdefault(n.provider, []).append(f"{n.count} prices left out: {n.reason}")
    return tuple(
        SkippedProvider.model_construct(provider=p, reason="; ".join(r)) for p, r in sorted(reasons.items())
    )


def _warnings(base: Served, found: Ages | None) -> tuple[str, ...]:
    """Lines for the header: files that could not be used, old prices."""
    line = warning(found) if found is not None else None
    return (*base.warnings, *((line,) if line else ()))


def offers(
    providers: Collection[str] = (),
    *,
    gpus: Collection[str] = (),
    regions: Collection[str] = (),
    market: Literal["any", "on-demand", "spot"] = "any",
    now: datetime | None = None,
) -> OfferSet:
    """Offers that fit the filters (empty = all): last good live ones over the catalog. No network, no clock.

    ``now`` (aware) is what ages are measured against; without it ``ages`` is ``None``, no age is warned of.
    Offers of unknown price are kept, with ``usd_per_hour`` None and a reason: they are counted, not ranked.
    Raises ``UserError`` for a provider, region or GPU that is not known.
    """
    wanted = _checked(providers, provider_names(), "provider")
    places = _checked(regions, region_names(), "region") if regions else frozenset()
    chosen = matching_ids(gpus) if gpus else frozenset()
    base = served()
    found = tuple(
        o
        for o in base.offers
        if (not wanted or o.provider in wanted)
        and (not places or o.region in places)
        and (not chosen or o.gpu in chosen)
        and (market == "any" or (o.market == "spot") == (market == "spot"))
    )
    measured = ages(found, now) if now is not None else None
    found = aged(found, now) if now is not None else found
    return OfferSet(
        offers=found,
        skipped=() if wanted else _skipped(base.offers),
        warnings=_warnings(base, measured),
        not_offered=tuple(n for n in not_offered() if not wanted or n.provider in wanted),
        unknown_gpus=tuple(u for s in base.snapshots for u in s.unknown_gpus),
        num_unpriced=sum(o.usd_per_hour is None for o in found),
        ages=measured,
    )
