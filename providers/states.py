"""State of every provider's prices, without asking one: live, shipped, or why not refreshed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from planner.types import Offer
from providers import snapshot
from providers.age import age_s
from providers.base import PriceAdapter
from providers.refresh import ProviderRow
from providers.snapshot import Failure, Snapshot

NO_ADAPTER = "no live adapter"


def states(
    offers: Sequence[Offer],
    snapshots: Iterable[Snapshot],
    adapters: Mapping[str, PriceAdapter],
    environment: Mapping[str, str],
    now: datetime,
    where: Path,
) -> tuple[ProviderRow, ...]:
    """One row for each provider of ``offers``, sorted: how many of them, how old, live or not, and why."""
    counts = Counter(o.provider for o in offers)
    live = {s.provider: s for s in snapshots}
    rows = []
    for provider, number in sorted(counts.items()):
        kept = live.get(provider)
        seen = kept.seen if kept else _newest(o for o in offers if o.provider == provider)
        failure = snapshot.last_failure(provider, where)
        row = _row(provider, number, age_s(seen, now), kept, failure)
        rows.append(row or _not_live(provider, number, age_s(seen, now), adapters.get(provider), environment))
    return tuple(rows)


def _newest(offers: Iterable[Offer]) -> datetime | None:
    """Latest date of a price; ``None`` where no price has one."""
    return max((o.price_seen for o in offers if o.price_seen is not None), default=None)


def _row(
    provider: str, number: int, age: float | None, kept: Snapshot | None, failure: Failure | None
) -> ProviderRow | None:
    """Row of a provider that was asked, well or not; ``None`` where it never was."""
    again = f"plan prices refresh {provider}"
    if failure is not None and (kept is None or failure.time > kept.seen):
        rest = "last good prices still in use" if kept else "the shipped catalog serves"
        return ProviderRow(provider, number, age, "failed", again, f"{failure.reason}; {rest}")
    if kept is None:
        return None
    return ProviderRow(provider, number, age, "ok", unknown_gpus=kept.unknown_gpus, notes=kept.notes)


def _not_live(
    provider: str,
    number: int,
    age: float | None,
    adapter: PriceAdapter | None,
    environment: Mapping[str, str],
) -> ProviderRow:
    """Row of a provider whose shipped prices serve: no adapter, no credentials, or not asked yet."""
    if adapter is None:
        return ProviderRow(provider, number, age, "shipped", reason=NO_ADAPTER)
    missing = adapter.unavailable(environment)
    if missing is not None:
        return ProviderRow(provider, number, age, "skipped", missing.hint, missing.reason)
    return ProviderRow(
        provider, number, age, "shipped", f"plan prices refresh {provider}", "not refreshed yet"
    )
