"""One result from what ranks handed in, whole or in part."""

import pytest
import torch

from clusters.probe.collectives import Sweep
from clusters.probe.measure import RankSteps
from clusters.probe.outcome import result_of
from clusters.probe.place import Place
from clusters.probe.results import Failure, ProbeResult, RankMemory, SkippedCollective

PLACE = Place(rank=0, device=torch.device("cpu"), node_of_rank=(0, 1), host_of_rank=("a", "b"))
SKIPPED = SkippedCollective(op="all_reduce", scope="all", bytes=2**30, why="no time")


def memory(rank: int, held: float = 1e9) -> RankMemory:
    return RankMemory(
        rank=rank,
        allocated_bytes=None,
        reserved_bytes=held,
        device_bytes=None,
        num_alloc_retries=None,
        num_ooms=None,
    )


def steps(seconds: float) -> RankSteps:
    return RankSteps(seconds=(seconds,) * 6, loader_seconds=(0.01,) * 6, loss=(5.0, 4.0), tokens_per_step=64)


def whole(parts: dict, failures=()) -> ProbeResult:
    return result_of(
        parts,
        failures,
        whole=(8, 2),
        started="2026-11-30T12:00:00+00:00",
        phase_s={"steps": 1.0},
        wall_s=2.0,
        versions={"ray": "2.60.0"},
    )


def test_nothing_handed_in_is_an_empty_result_that_says_why():
    lost = Failure(kind="timeout", phase="start", rank=None, node=None)
    result = whole({}, [lost])
    assert (result.num_layers, result.num_nodes, result.num_params, result.steps) == (8, 1, None, None)
    assert result.failures == (lost,)


def test_parts_are_in_order_of_ranks_and_the_sweep_is_taken_apart():
    result = whole(
        {
            "place": {0: PLACE},
            "memory 8": {1: memory(1), 0: memory(0)},
            "params 8": {0: 1000},
            "collectives": {0: Sweep(timings=(), skipped=(SKIPPED,))},
        }
    )
    assert [each.rank for each in result.memory] == [0, 1]
    assert (result.num_nodes, result.num_params, result.skipped) == (2, 1000, (SKIPPED,))
    assert result.depths == ()


def test_memory_of_the_ranks_that_got_there_is_kept_but_no_steps_of_some():
    result = whole({"memory 8": {0: memory(0)}, "steps 8": {0: steps(1.0)}})
    assert [each.rank for each in result.memory] == [0]
    assert result.steps is None


def test_a_cut_model_is_the_result_of_the_deeper_run_and_both_are_depths():
    parts = {"depths": {0: (2, 4), 1: (2, 4)}, "params 2": {0: 20}, "params 4": {0: 40}}
    for layers in (2, 4):
        parts[f"memory {layers}"] = {rank: memory(rank, layers * 1e9) for rank in (0, 1)}
        parts[f"steps {layers}"] = {rank: steps(layers) for rank in (0, 1)}
    result = whole(parts)
    assert (result.num_layers, result.num_params, result.memory[0].reserved_bytes) == (4, 40, 4e9)
    assert [(each.num_layers, each.steps.seconds[0]) for each in result.depths] == [(2, 2), (4, 4)]


def test_a_depth_that_failed_is_no_depth():
    parts = {"depths": {0: (2, 4)}, "memory 2": {0: memory(0), 1: memory(1)}}
    result = whole(parts, [Failure(kind="oom", phase="memory", rank=1, node="b")])
    assert [each.num_layers for each in result.depths] == [2]
    assert (result.num_layers, result.memory) == (4, ())


@pytest.mark.parametrize(
    ("handed_in", "expected"),
    [({0: 0.5, 1: 0.75}, (0.5, 0.75)), ({0: 0.5}, ()), ({0: 0.5, 1: None}, ()), ({}, ())],
)
def test_a_layer_alone_counts_where_every_rank_timed_it(handed_in, expected):
    result = whole({"steps 8": {0: steps(1.0), 1: steps(1.0)}, "layer alone": handed_in})
    assert result.steps.layer_s_by_rank == expected
