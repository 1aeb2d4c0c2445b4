"""What a probe measured becomes a measured run that ``plan calibrate`` reads."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from planner import api
from planner.calibration import own_figures
from planner.probed import MeasuredSteps, ProbeResult, RankHardware, RankMemory
from planner.runs import parse_run
from planner.trust.measured import measured_run
from planner.types import Run

GIB = 2**30
NODE = {
    "kind": "pretrain", "model": {"params": 1e9}, "gpu": "A100-SXM-40GB", "gpus": 4, "gpus_per_node": 4,
    "layout": {"dp": 4, "tp": 1, "pp": 1, "sharding": "zero3"}, "micro_batch": 2, "grad_accum": 8,
    "recompute": "none", "seq_len": 2048, "precision": "bf16-mixed",
}  # fmt: skip
ESTIMATE = api.estimate([parse_run(NODE)])[0]
RUN: Run = ESTIMATE.run


def hardware(backend: str = "nccl") -> tuple[RankHardware, ...]:
    where = {"node": 0, "host": "a", "device": "A100", "driver": None, "nic": None, "transport": None}
    return tuple(RankHardware(rank=rank, backend=backend, readings=(), **where) for rank in range(4))


def memory(*reserved: float | None) -> tuple[RankMemory, ...]:
    rest = {"device_bytes": 30.0 * GIB, "num_alloc_retries": 0, "num_ooms": 0}
    return tuple(
        RankMemory(rank=rank, allocated_bytes=20.0 * GIB, reserved_bytes=each, **rest)
        for rank, each in enumerate(reserved)
    )


def steps(seconds: tuple[float, ...], tokens: int) -> MeasuredSteps:
    return MeasuredSteps(
        seconds=seconds, median_s_by_rank=(seconds[0],) * 4, loader_s=0.0, tokens_per_step=tokens, loss=(1.0,)
    )


def result(**changed: Any) -> ProbeResult:
    plain = {
        "started": datetime(2026, 11, 30, 12, 0, tzinfo=UTC), "wall_s": 200.0, "phase_s": {}, "versions": {},
        "num_nodes": 1, "num_ranks": 4, "num_layers": RUN.model.num_layers, "num_params": None,
        "hardware": hardware(), "memory": memory(22.0 * GIB, 24.0 * GIB, 23.0 * GIB, 22.0 * GIB),
        "steps": steps((2.0, 9.0, 2.2, 1.8), 4 * 2 * 8 * 2048),
    }  # fmt: skip
    return ProbeResult(**(plain | changed))


def made(**changed: Any) -> dict[str, Any]:
    line = measured_run(RUN, result(**changed))
    assert line is not None
    return json.loads(line)


def test_the_fullest_rank_and_the_median_step_are_what_was_measured() -> None:
    measured = made()["measured"]
    assert measured["peak_memory_gib"] == 24.0
    assert measured["memory_kind"] == "reserved"
    assert measured["tokens_per_s_per_gpu"] == pytest.approx(4 * 2 * 8 * 2048 / 2.1 / 4)


def test_the_line_is_a_run_that_calibration_reads_as_the_run_that_was_probed() -> None:
    line = measured_run(RUN, result())
    assert line is not None
    figures = own_figures([line])
    assert [figure.residual.quantity for figure in figures] == ["reserved", "step"]
    again = api.estimate([parse_run(json.loads(line))])[0]
    assert again.run.model_copy(update={"id": RUN.id}) == RUN
    assert again.speed == ESTIMATE.speed


def test_memory_that_a_rank_does_not_state_is_taken_from_another_kind() -> None:
    assert (
        made(memory=memory(22.0 * GIB, None, 23.0 * GIB, 22.0 * GIB))["measured"]["memory_kind"]
        == "allocated"
    )


def test_a_step_of_fewer_micro_batches_is_compared_as_such() -> None:
    line = made(steps=steps((0.5,), 4 * 2 * 2 * 2048))
    assert line["layout"]["grad_accum"] == 2
    assert line["measured"]["tokens_per_s_per_gpu"] == pytest.approx(4 * 2 * 2 * 2048 / 0.5 / 4)


def test_a_step_of_tokens_that_no_number_of_micro_batches_makes_up_is_left_out() -> None:
    assert "tokens_per_s_per_gpu" not in made(steps=steps((0.5,), 1000))["measured"]


def test_fewer_layers_stand_in_the_line() -> None:
    assert made(num_layers=2)["model"]["num_layers"] == 2


def test_a_probe_on_cpus_or_one_that_measured_nothing_is_no_measured_run() -> None:
    assert measured_run(RUN, result(hardware=hardware("gloo"))) is None
    assert measured_run(RUN, result(hardware=())) is None
    assert measured_run(RUN, result(memory=(), steps=None)) is None
