"""Timed collectives on real gloo ranks: values, sizes and rates as nccl-tests counts them, and wrong sums."""

from typing import Any

import numpy as np
import pytest
import torch

from clusters.probe.collectives import (
    culprits,
    default_most_bytes,
    exchanges,
    groups,
    pairs,
    sweep_sizes,
    sweeping,
)
from clusters.probe.place import Place
from clusters.probe.results import CollectiveTiming
from planner.hardware import collectives as planned
from tests.clusters.probe.collective_ranks import on_ranks

OPS = set(exchanges.OPS)


SUMS = {"kind": "sweep", "sizes": [4096], "budget_s": 600, "repeats": 1}


@pytest.fixture(scope="module")
def four_ranks() -> dict[str, Any]:
    bucket = {"op": "all_reduce", "bytes": 3_000_000, "purpose": "gradient bucket"}
    layer = {"op": "reduce_scatter", "bytes": 500_000, "purpose": "reduce-scatter of one layer"}
    sweep = {"kind": "sweep", "sizes": [1024, 2**21], "own": [bucket, layer], "budget_s": 600}
    return on_ranks(
        [0, 0, 1, 1],
        {
            "sweep": sweep,
            "late": {**sweep, "budget_s": 0},
            "pairs": {"kind": "pairs", "bytes": 2**16, "budget_s": 600},
            "no time": {"kind": "pairs", "bytes": 2**16, "budget_s": 0},
            "wrong result": {**SUMS, "spoiler": 2, "spoilt": "output"},
            "wrong summand": {**SUMS, "spoiler": 0, "spoilt": "input"},
        },
    )


def test_every_collective_is_timed_and_right_over_each_group(four_ranks):
    timings = four_ranks["sweep"]["timings"]
    swept = {(t["op"], t["scope"], t["bytes"]) for t in timings if not t["purpose"]}
    wanted = OPS - {"reduce_scatter"}
    assert swept == {
        (op, scope, size)
        for op in wanted
        for scope in ("all", "node", "between-nodes")
        for size in (1024, 2**21)
    }
    assert all(t["correct"] and t["wrong_ranks"] == [] for t in timings)
    where = {t["scope"]: (t["ranks"], t["nodes"]) for t in timings}
    assert where == {"all": (4, 2), "node": (2, 1), "between-nodes": (2, 2)}


def test_rates_are_those_of_nccl_tests(four_ranks):
    for t in four_ranks["sweep"]["timings"]:
        factor = float(planned.bus_factor(t["op"], np.asarray(float(t["ranks"]))))
        assert t["algbw_bytes_per_s"] == pytest.approx(t["bytes"] / t["time_s"])
        assert t["busbw_bytes_per_s"] == pytest.approx(t["algbw_bytes_per_s"] * factor)


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
@pytest.mark.parametrize("op", exchanges.OPS)
def test_bus_factors_are_the_planners(op, ranks):
    assert exchanges.bus_factor(op, ranks) == pytest.approx(planned.bus_factor(op, np.asarray(float(ranks))))


def test_the_plans_own_sizes_are_timed_over_all_ranks(four_ranks):
    own = [t for t in four_ranks["sweep"]["timings"] if t["purpose"]]
    assert [(t["op"], t["scope"], t["bytes"], t["purpose"]) for t in own] == [
        ("all_reduce", "all", 3_000_000, "gradient bucket")
    ]


def test_what_gloo_has_not_is_skipped_with_its_reason_never_timed_as_something_else(four_ranks):
    skipped = four_ranks["sweep"]["skipped"]
    assert {s["op"] for s in skipped} == {"reduce_scatter"}
    assert all("AllReduce in its place" in s["why"] for s in skipped)
    assert any(s["bytes"] == 500_000 for s in skipped)


def test_nothing_is_timed_once_the_time_is_used_up(four_ranks):
    late = four_ranks["late"]
    assert late["timings"] == []
    assert all(
        "0 s given to collectives were used up" in s["why"]
        for s in late["skipped"]
        if s["op"] != "reduce_scatter"
    )
    assert len(late["skipped"]) == len(four_ranks["sweep"]["timings"]) + len(four_ranks["sweep"]["skipped"])


def test_progress_counts_up_to_all_of_them(four_ranks):
    said = four_ranks["sweep"]["said"]
    assert said[0][0] == 0
    assert said[-1][0] == said[-1][1] == len(said) - 1


def test_pairs_of_nodes_and_of_ranks_inside_are_timed_slowest_first(four_ranks):
    found = four_ranks["pairs"]
    assert {(p["rank_a"], p["rank_b"]) for p in found} == {(0, 2), (0, 1), (2, 3)}
    rates = [p["busbw_bytes_per_s"] for p in found]
    assert rates == sorted(rates)
    assert four_ranks["no time"] == []


def wrong(found: dict[str, Any]) -> dict[tuple[str, str], list[int]]:
    return {(t["op"], t["scope"]): t["wrong_ranks"] for t in found["timings"] if not t["correct"]}


def test_a_rank_left_with_a_wrong_sum_is_named(four_ranks):
    # rank 2 is the first of its node: it takes part in every group
    everywhere = [("all_reduce", scope) for scope in ("all", "node", "between-nodes")]
    assert wrong(four_ranks["wrong result"]) == {key: [2] for key in everywhere}


def test_a_rank_that_adds_a_wrong_value_is_named_where_more_than_two_sum(four_ranks):
    found = wrong(four_ranks["wrong summand"])
    assert found[("all_reduce", "all")] == [0]
    assert found[("all_reduce", "node")] == [0, 1], "of two ranks neither can be told from the other"
    assert found[("all_reduce", "between-nodes")] == [0, 2]


def test_one_rank_has_nothing_to_time():
    alone = Place(rank=0, device=torch.device("cpu"), node_of_rank=(0,), host_of_rank=("a",))
    assert groups.make_groups(alone) == ()


def test_sizes_go_from_one_kib_to_the_most_and_end_with_it():
    assert sweep_sizes(2**14) == (2**10, 2**12, 2**14)
    assert sweep_sizes(2**15) == (2**10, 2**12, 2**14, 2**15)
    assert default_most_bytes(torch.device("cpu")) == 64 * 2**20
    assert default_most_bytes(torch.device("cuda")) == 2**30


def timed(bytes_: int, seconds: float) -> CollectiveTiming:
    return CollectiveTiming(
        op="all_reduce",
        scope="all",
        ranks=2,
        nodes=1,
        bytes=bytes_,
        time_s=seconds,
        algbw_bytes_per_s=bytes_ / seconds,
        busbw_bytes_per_s=bytes_ / seconds,
        correct=True,
    )


def test_the_time_of_a_size_follows_the_line_of_those_before_it():
    seen = [timed(2**10, 0.1), timed(2**20 + 2**10, 0.3)]
    assert sweeping._one_run_s(2**21 + 2**10, seen) == pytest.approx(0.5)
    assert sweeping._one_run_s(2**12, seen) == 0.3
    assert sweeping._one_run_s(2**30, [timed(2**10, 0.1)]) == 0.1, "one size tells latency, not bandwidth"
    assert sweeping._one_run_s(2**30, [timed(2**10, 0.2), timed(2**20, 0.1)]) == 0.1
    assert sweeping._one_run_s(2**30, []) == 0


def test_a_size_that_would_overrun_is_skipped_with_seconds():
    assert sweeping._too_long(2.0, 9.0, 60.0) == ""
    assert sweeping._too_long(2.0, 7.0, 60.0) == "would take about 8 s, of 60 s given 7 s were left"
    assert sweeping._too_long(0.0, 0.1, 60.0) == ""


def test_a_size_that_does_not_fit_a_gpu_is_skipped_with_bytes():
    assert sweeping._too_large(2**30, 6.0 * 2**30) == ""
    assert sweeping._too_large(2**30, 5.0 * 2**30) == "needs about 6.0 GiB on each GPU, 5.0 GiB are free"


def test_slow_collectives_are_repeated_less_but_at_least_twice():
    assert sweeping._fitting(1.5, 5, 60.0) == 4
    assert sweeping._fitting(6.0, 5, 60.0) == 2
    assert sweeping._fitting(6.0, 1, 60.0) == 1
    assert sweeping._fitting(0.0, 5, 60.0) == 5


@pytest.mark.parametrize("count", [2, 3, 7, 16])
def test_in_a_tournament_each_meets_each_other_once_and_nobody_is_in_two_places(count):
    rounds = list(culprits.tournament_rounds(tuple(range(count))))
    met = [pair for pairs in rounds for pair in pairs]
    assert sorted(met) == [(a, b) for a in range(count) for b in range(a + 1, count)]
    for each in rounds:
        assert len({rank for pair in each for rank in pair}) == 2 * len(each)


@pytest.mark.parametrize(("count", "most"), [(17, 5), (64, 6), (1000, 10)])
def test_many_nodes_meet_in_few_rounds_and_nobody_is_left_out(count, most):
    rounds = list(culprits.meeting_rounds(tuple(range(count))))
    assert len(rounds) == most
    assert {rank for pairs in rounds for pair in pairs for rank in pair} == set(range(count))
    for each in rounds:
        assert len({rank for pair in each for rank in pair}) == 2 * len(each)


def test_ranks_of_all_nodes_meet_inside_their_nodes_at_once():
    place = Place(
        rank=0,
        device=torch.device("cpu"),
        node_of_rank=(0, 0, 0, 1, 1, 1),
        host_of_rank=("a",) * 3 + ("b",) * 3,
    )
    rounds = [set(each) for each in pairs.rounds(place)]
    assert rounds[0] == {(0, 3)}
    assert all(len(each) == 2 for each in rounds[1:])
    assert set().union(*rounds[1:]) == {(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)}
