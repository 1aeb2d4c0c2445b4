"""Refresh of live prices: every provider in a thread of its own, so that all take as long as the slowest.

A provider that fails leaves its last good snapshot and its age as they are, and the others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from planner.types import Offer
from providers import snapshot
from providers.age import age_s
from providers.base import AnswerError, Parsed, PriceAdapter, UnknownGpu, key, violations
from providers.snapshot import Failure, Snapshot

State = Literal["ok", "shipped", "skipped", "failed"]
LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """State of one provider's prices. ``age_s``: seconds since its last good prices, ``None`` if unknown."""

    provider: str
    num_offers: int
    age_s: float | None
    state: State
    hint: str = ""
    reason: str = ""
    unknown_gpus: tuple[UnknownGpu, ...] = ()
    notes: tuple[str, ...] = ()


Progress = Callable[[ProviderRow], None]
Clock = Callable[[], datetime]


def refresh(
    adapters: Sequence[PriceAdapter],
    environment: Mapping[str, str],
    now: Clock,
    where: Path,
    progress: Progress = lambda row: None,
    limit_s: float = LIMIT_S,
) -> tuple[ProviderRow, ...]:
    """Ask all ``adapters`` at once and keep what is good; one row each, sorted by provider.

    ``progress`` is called in this thread with each row as it is ready. A provider that has not answered
    after ``limit_s`` seconds has failed; what it answers later is not kept.
    """
    rows: dict[str, ProviderRow] = {}
    asked: dict[Future[tuple[Parsed, datetime]], PriceAdapter] = {}
    with_all = ThreadPoolExecutor(max_workers=max(1, len(adapters)), thread_name_prefix="prices")
    for adapter in adapters:
        missing = adapter.unavailable(environment)
        if missing is None:
            asked[with_all.submit(_ask, adapter, environment, now)] = adapter
        else:
            found = _last(adapter.provider, where, now())
            rows[adapter.provider] = _row(adapter, found, "skipped", hint=missing.hint, reason=missing.reason)
            progress(rows[adapter.provider])
    try:
        for future in as_completed(asked, timeout=limit_s):
            adapter = asked.pop(future)
            rows[adapter.provider] = _finished(adapter, future, where, now())
            progress(rows[adapter.provider])
    except TimeoutError:
        for adapter in asked.values():
            late = f"no answer within {limit_s:.0f} s"
            rows[adapter.provider] = _failed(adapter, late, where, now())
            progress(rows[adapter.provider])
    with_all.shutdown(wait=False, cancel_futures=True)
    return tuple(rows[p] for p in sorted(rows))


def _ask(adapter: PriceAdapter, environment: Mapping[str, str], now: Clock) -> tuple[Parsed, datetime]:
    """Fetch and parse. The prices are as old as the moment before they were asked for."""
    seen = now()
    parsed = adapter.parse(adapter.fetch(environment), seen)
    breaches = violations(parsed.offers)
    if breaches:
        raise AnswerError(f"offers break the contract: {breaches[0]}")
    return parsed, seen


def _finished(
    adapter: PriceAdapter, future: Future[tuple[Parsed, datetime]], where: Path, now: datetime
) -> ProviderRow:
    """Keep what a provider answered, or say how it failed."""
    error = future.exception()
    if isinstance(error, AnswerError):
        return _failed(adapter, str(error), where, now)
    if error is not None:  # a defect of the adapter must not fail the others: its type says where to look
        return _failed(adapter, f"the adapter failed ({type(error).__name__}: {error})", where, now)
    parsed, seen = future.result()
    offers = _with_missing(parsed, adapter.provider, where)
    fresh = Snapshot(adapter.provider, seen, adapter.complete, offers, parsed.unknown_gpus, parsed.notes)
    try:
        snapshot.save(fresh, where)
    except OSError as problem:
        return _row(adapter, None, "failed", reason=f"cannot write {where} ({problem.strerror})")
    return ProviderRow(
        adapter.provider,
        len(offers),
        age_s(seen, now),
        "ok",
        unknown_gpus=parsed.unknown_gpus,
        notes=parsed.notes,
    )


def _with_missing(parsed: Parsed, provider: str, where: Path) -> tuple[Offer, ...]:
    """Offers, and for regions that did not answer everything the last good ones, with the age they have."""
    before = snapshot.load(provider, where).snapshot if parsed.missing_regions else None
    if before is None:
        return parsed.offers
    new = {key(o) for o in parsed.offers}
    kept = [o for o in before.offers if o.region in parsed.missing_regions and key(o) not in new]
    return tuple(sorted((*parsed.offers, *kept), key=key))


def _failed(adapter: PriceAdapter, reason: str, where: Path, now: datetime) -> ProviderRow:
    """Remember the failure; the last good prices stay in use."""
    try:
        snapshot.record_failure(Failure(adapter.provider, now, reason), where)
    except OSError:
        reason = f"{reason}; nor can {where} be written"
    return _row(adapter, _last(adapter.provider, where, now), "failed", reason=reason)


def _last(provider: str, where: Path, now: datetime) -> tuple[int, float | None] | None:
    """Offers and age of the last good snapshot; ``None`` where there is none."""
    found = snapshot.load(provider, where).snapshot
    return None if found is None else (len(found.offers), age_s(found.seen, now))


def _row(
    adapter: PriceAdapter,
    last: tuple[int, float | None] | None,
    state: State,
    *,
    hint: str = "",
    reason: str = "",
) -> ProviderRow:
    """Row of a provider that was not refreshed: its last good prices, or those of the catalog, serve."""
    rest = "the shipped catalog serves" if last is None else "the last good prices stay in use"
    number, age = last or (0, None)
    return ProviderRow(adapter.provider, number, age, state, hint, f"{reason}; {rest}")
