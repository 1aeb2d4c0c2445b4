"""The screens, line by line. ``pytest --snapshot-update`` rewrites the golden files after a wanted change."""

from datetime import datetime, timedelta

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from planner.cli.screens import estimate as screens_estimate
from planner.cli.screens import suggest as screens_suggest
from planner.cli.screens import tables as screens_tables
from planner.cli.text import Terminal
from planner.hardware.gpus import gpu
from planner.results import Candidate, Estimate, Plan, Suggestion
from planner.runs.what_if import Outlook

WIDTHS = pytest.mark.parametrize("width", [80, 100])
GPU = gpu("H100-SXM5-80GB").model_copy(
    update={
        "usable_memory_bytes": int(79.1 * 2**30),
        "usable_memory_basis": "reported",
        "memory_bandwidth_bytes_per_s": 3.35e12,
        "fp32_flops_per_s": 66.9e12,
        "bf16_flops_per_s": 989.4e12,
        "fp8_flops_per_s": 1978.9e12,
        "link_kind": "nvswitch4",
    }
)
OLD_GPU = GPU.model_copy(
    update={
        "id": "RTX 3060",
        "gpu_class": "consumer",
        "usable_memory_basis": "estimated",
        "fp8_flops_per_s": None,
        "ecc": False,
        "link_kind": "none",
    }
)


class Screen(SingleFileSnapshotExtension):
    """One text file a screen."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def golden(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(Screen)


def longest(screen: str) -> int:
    return max(map(len, screen.splitlines()))


@WIDTHS
def test_suggest_ranks_what_fits(
    width: int, suggestion: Suggestion, now: datetime, golden: SnapshotAssertion
) -> None:
    screen = screens_suggest.suggestion(suggestion, now, Terminal(width))
    assert longest(screen) <= width
    assert screen == golden


@WIDTHS
def test_suggest_says_what_would_make_it_fit(
    width: int, nothing_fits: Suggestion, now: datetime, golden: SnapshotAssertion
) -> None:
    screen = screens_suggest.suggestion(nothing_fits, now, Terminal(width))
    assert longest(screen) <= width
    assert screen == golden


@WIDTHS
def test_estimate_shows_where_memory_and_time_go(
    width: int, estimate: Estimate, candidates: tuple[Candidate, ...], golden: SnapshotAssertion
) -> None:
    unanswered = estimate.model_copy(update={"memory": None, "speed": None})
    what_if = [
        Outlook(name="8-bit optimizer", estimate=estimate, note="changes the numerics"),
        Outlook(name="recompute none", estimate=unanswered),
    ]
    screen = screens_estimate.estimate(
        estimate, 0.2, Terminal(width), candidates[1], what_if, "Confidence: high."
    )
    assert longest(screen) <= width
    assert screen == golden


@WIDTHS
def test_gpus_lists_facts_and_cheapest_offer(
    width: int, candidates: tuple[Candidate, ...], now: datetime, golden: SnapshotAssertion
) -> None:
    best = {GPU.id: candidates[0].offer}
    screen = screens_tables.gpus([GPU, OLD_GPU], best, now, Terminal(width))
    assert longest(screen) <= width
    assert screen == golden


@WIDTHS
def test_ls_lists_saved_plans(
    width: int, candidates: tuple[Candidate, ...], now: datetime, golden: SnapshotAssertion
) -> None:
    created = now - timedelta(minutes=12)
    plans = [Plan(id=c.id, created=created, command="plan suggest", candidate=c) for c in candidates]
    screen = screens_tables.plans(plans, now, Terminal(width))
    assert longest(screen) <= width
    assert screen == golden


def test_region_and_speed_go_first_at_80_columns(suggestion: Suggestion, now: datetime) -> None:
    wide = screens_suggest.suggestion(suggestion, now, Terminal(100))
    narrow = screens_suggest.suggestion(suggestion, now, Terminal(80))
    for title in ("REGION", "tok/s"):
        assert title in wide
        assert title not in narrow
    for title in (
        "VERDICT",
        "GPUS",
        "TIME",
        "COST USD",
        "PEAK GiB",
        "AGE",
        "OFFER",
        "LAYOUT",
        "LINK, SHARE",
    ):
        assert title in narrow


def test_colour_only_repeats_words(suggestion: Suggestion, now: datetime) -> None:
    plain = screens_suggest.suggestion(suggestion, now, Terminal(100))
    coloured = screens_suggest.suggestion(suggestion, now, Terminal(100, color=True))
    assert "\x1b[" not in plain
    assert "\x1b[32mok\x1b[0m" in coloured
    without_codes = coloured
    for code in ("0", "1", "31", "32", "33"):
        without_codes = without_codes.replace(f"\x1b[{code}m", "")
    assert without_codes == plain


def test_old_and_undated_prices_give_one_warning(suggestion: Suggestion, now: datetime) -> None:
    screen = screens_suggest.suggestion(suggestion, now, Terminal(100))
    assert screen.count("Warning:") == 1
    assert "1 older than 30 days (the oldest 40 d) and 1 of unknown age" in " ".join(screen.split())


def test_fresh_prices_give_no_warning(suggestion: Suggestion, now: datetime) -> None:
    fresh = suggestion.model_copy(update={"candidates": suggestion.candidates[:1]})
    assert "Warning:" not in screens_suggest.suggestion(fresh, now, Terminal(100))


def test_incomplete_cost_is_at_least_so_much(suggestion: Suggestion, now: datetime) -> None:
    assert "≥ 235 (207–263)" in screens_suggest.suggestion(suggestion, now, Terminal(100))


def test_no_candidate_at_all_still_draws(suggestion: Suggestion, now: datetime) -> None:
    empty = suggestion.model_copy(update={"candidates": ()})
    screen = screens_suggest.suggestion(empty, now, Terminal(100))
    assert "Nothing fits $200. No layout fits in the memory" in screen
    assert "nan" not in screen.lower().split()


def test_unknown_memory_of_a_gpu_is_said(suggestion: Suggestion, now: datetime) -> None:
    first = suggestion.candidates[0]
    memory = first.memory.model_copy(update={"usable_bytes": None, "fits": None, "safe": None})
    answer = suggestion.model_copy(update={"candidates": (first.model_copy(update={"memory": memory}),)})
    assert "memory of the GPU unknown" in screens_suggest.suggestion(answer, now, Terminal(100))


def test_estimate_without_answer_draws_the_reason(estimate: Estimate) -> None:
    empty = estimate.model_copy(
        update={"memory": None, "speed": None, "warnings": ("no figures for this GPU",)}
    )
    screen = screens_estimate.estimate(empty, 0.2, Terminal(100))
    assert "Note: no figures for this GPU" in screen
    assert "memory unknown" in screen


def test_the_screen_says_by_what_the_choices_are_ranked(suggestion: Suggestion, now: datetime) -> None:
    screen = screens_suggest.suggestion(suggestion, now, Terminal(100))
    assert "Ranked by verdict, then the upper end of cost, then time" in screen
    by_time = suggestion.goal.model_copy(update={"sort": "time"})
    screen = screens_suggest.suggestion(suggestion.model_copy(update={"goal": by_time}), now, Terminal(100))
    assert "Ranked by verdict, then time, then the upper end of cost" in screen


def test_one_of_a_thing_is_not_many(suggestion: Suggestion, now: datetime) -> None:
    rejection = suggestion.rejections[0].model_copy(update={"count": 1})
    alone = suggestion.model_copy(update={"num_offers": 1, "num_layouts": 1, "rejections": (rejection,)})
    screen = screens_suggest.suggestion(alone, now, Terminal(100))
    for said in (" 1 offer\n", "Did not make it: 1 candidate\n", "Tried 1 layout:"):
        assert said in screen
