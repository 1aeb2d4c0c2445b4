"""Refresh of all providers at once."""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from planner.types import Offer
from providers import snapshot
from providers.base import AnswerError, Parsed, Unavailable, UnknownGpu
from providers.refresh import ProviderRow, refresh

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
Build = Callable[..., Offer]


@dataclass(frozen=True)
class Fake:
    """An adapter that answers ``offers``, or raises ``error``, after ``wait_s``."""

    provider: str
    offers: tuple[Offer, ...] = ()
    error: Exception | None = None
    missing: Unavailable | None = None
    wait_s: float = 0
    complete: bool = True

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        return self.missing

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        time.sleep(self.wait_s)
        if self.error is not None:
            raise self.error
        return [b"{}"]

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        offers = tuple(
            o.model_copy(update={"provider": self.provider, "price_seen": seen}) for o in self.offers
        )
        return Parsed(offers, (UnknownGpu(self.provider, "Zeus", 1),), 0, ("a note",))


def run(where: Path, *adapters: Fake, now: datetime = NOW, **more: object) -> dict[str, ProviderRow]:
    return {r.provider: r for r in refresh(adapters, {}, lambda: now, where, **more)}


def test_good_prices_are_kept_with_the_time_they_were_asked_for(an_offer: Build, tmp_path: Path):
    row = run(tmp_path, Fake("north", (an_offer(),)))["north"]
    assert (row.state, row.num_offers, row.age_s) == ("ok", 1, 0)
    assert (row.unknown_gpus, row.notes) == ((UnknownGpu("north", "Zeus", 1),), ("a note",))
    kept = snapshot.load("north", tmp_path).snapshot
    assert kept is not None
    assert (kept.seen, kept.complete) == (NOW, True)


@pytest.mark.parametrize(
    "error", [AnswerError("HTTP 503"), KeyError("x"), RuntimeError("defect"), AttributeError("no")]
)
def test_one_that_fails_leaves_the_others_and_its_own_last_good_prices(
    error: Exception, an_offer: Build, tmp_path: Path
):
    run(tmp_path, Fake("south", (an_offer(),)))
    later = NOW + timedelta(days=2)
    rows = run(tmp_path, Fake("north", (an_offer(),)), Fake("south", error=error), now=later)
    assert {p: r.state for p, r in rows.items()} == {"north": "ok", "south": "failed"}
    assert rows["south"].num_offers == 1
    assert rows["south"].age_s == timedelta(days=2).total_seconds()
    assert "the last good prices stay in use" in rows["south"].reason
    kept = snapshot.load("south", tmp_path).snapshot
    assert kept is not None
    assert kept.seen == NOW
    failure = snapshot.last_failure("south", tmp_path)
    assert failure is not None
    assert failure.time == later


def test_a_region_that_does_not_answer_keeps_its_last_good_prices_and_their_age(
    an_offer: Build, tmp_path: Path
):
    both = (an_offer(region="r1"), an_offer(region="r2"))
    run(tmp_path, Fake("north", both))

    @dataclass(frozen=True)
    class Partly(Fake):
        def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
            return dataclasses.replace(super().parse(raw, seen), missing_regions=("r2",))

    later = NOW + timedelta(hours=5)
    row = run(tmp_path, Partly("north", (an_offer(region="r1"),)), now=later)["north"]
    assert (row.state, row.num_offers) == ("ok", 2)
    kept = snapshot.load("north", tmp_path).snapshot
    assert kept is not None
    assert {o.region: o.price_seen for o in kept.offers} == {"r1": later, "r2": NOW}


def test_one_without_credentials_is_skipped_with_its_hint(tmp_path: Path):
    missing = Unavailable("no credentials (NORTH_KEY)", "export NORTH_KEY=…")
    row = run(tmp_path, Fake("north", missing=missing))["north"]
    assert (row.state, row.hint, row.age_s) == ("skipped", "export NORTH_KEY=…", None)
    assert row.reason == "no credentials (NORTH_KEY); the shipped catalog serves"


def test_offers_that_break_the_contract_are_not_kept(an_offer: Build, tmp_path: Path):
    good = snapshot.save
    run(tmp_path, Fake("north", (an_offer(),)))
    bad = an_offer(gpu="H999")
    row = run(tmp_path, Fake("north", (bad,)), now=NOW + timedelta(hours=1))["north"]
    assert row.state == "failed"
    assert "break the contract" in row.reason
    kept = snapshot.load("north", tmp_path).snapshot
    assert kept is not None
    assert kept.seen == NOW
    assert snapshot.save is good


def test_all_are_asked_at_once(an_offer: Build, tmp_path: Path):
    together = threading.Barrier(4, timeout=10)

    @dataclass(frozen=True)
    class Waiting(Fake):
        def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
            together.wait()  # is passed only when four are here
            return [b"{}"]

    rows = run(tmp_path, *(Waiting(f"p{i}", (an_offer(),)) for i in range(4)))
    assert {r.state for r in rows.values()} == {"ok"}


def test_progress_is_told_of_each_as_it_is_ready(an_offer: Build, tmp_path: Path):
    told: list[str] = []
    run(
        tmp_path,
        Fake("slow", (an_offer(),), wait_s=0.3),
        Fake("quick", (an_offer(),)),
        Fake("none", missing=Unavailable("no key", "export KEY=…")),
        progress=lambda row: told.append(row.provider),
    )
    assert told == ["none", "quick", "slow"]


def test_one_that_does_not_end_has_failed_and_what_it_says_later_is_not_kept(an_offer: Build, tmp_path: Path):
    rows = run(tmp_path, Fake("slow", (an_offer(),), wait_s=0.5), Fake("quick", (an_offer(),)), limit_s=0.2)
    assert {p: r.state for p, r in rows.items()} == {"quick": "ok", "slow": "failed"}
    time.sleep(0.5)
    assert snapshot.load("slow", tmp_path).snapshot is None


def test_a_cache_that_cannot_be_written_is_said(an_offer: Build, tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    row = run(blocked / "prices", Fake("north", (an_offer(),)))["north"]
    assert row.state == "failed"
    assert "cannot write" in row.reason


def test_nothing_to_ask_is_no_error(tmp_path: Path):
    assert run(tmp_path) == {}
