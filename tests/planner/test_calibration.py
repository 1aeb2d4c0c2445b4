"""The user's measured runs: read from run descriptions, and correct what is near them."""

import json
from typing import Any

import pytest

from planner import api
from planner.calibration import calibration, known_with, own_figures
from planner.errors import UserError
from planner.runs import parse_line

LINE = {
    "id": "mine", "kind": "full-finetune", "model": {"params": 3e9}, "gpu": "L40S", "gpus": 4,
    "gpus_per_node": 4, "interconnect": "PCIe", "layout": {"dp": 4, "tp": 1, "pp": 1, "sharding": "zero3"},
    "micro_batch": 2,
    "grad_accum": 4, "global_batch": 32, "seq_len": 2048, "precision": "bf16-mixed", "optimizer": "adamw",
    "recompute": "full", "framework": "HF Trainer",
}  # fmt: skip


def line(**changed: Any) -> str:
    return json.dumps({**LINE, **changed})


def predicted(**changed: Any) -> float:
    estimate = api.estimate([parse_line(line(**changed))])[0]
    assert estimate.speed is not None
    return estimate.speed.tokens_per_s_per_gpu.mid


def slow(share: float, **changed: Any) -> str:
    """A line of a machine that reaches ``share`` of the predicted speed."""
    return line(measured={"tokens_per_s_per_gpu": share * predicted(**changed)}, **changed)


def test_a_machine_that_is_slower_than_predicted_is_predicted_slower_after_one_run() -> None:
    own = own_figures([slow(0.6)])
    known = known_with([figure.residual for figure in own])
    other = line(micro_batch=4, grad_accum=2)
    speed = api.estimate([parse_line(other)], known=known)[0].speed
    truth = 0.6 * predicted(micro_batch=4, grad_accum=2)
    assert speed is not None
    assert abs(speed.tokens_per_s_per_gpu.mid / truth - 1) < 0.6 * (1 / 0.6 - 1)
    assert sum(value for _, value in speed.parts_s) == pytest.approx(speed.step_s.mid)


def test_memory_is_corrected_in_every_kind_and_part() -> None:
    plain = api.estimate([parse_line(line())])[0].memory
    assert plain is not None
    peak = 1.4 * plain.reserved_bytes.mid / 2**30
    own = own_figures([line(measured={"peak_memory_gib": peak, "memory_kind": "reserved"})])
    known = known_with([figure.residual for figure in own])
    memory = api.estimate([parse_line(line())], known=known)[0].memory
    assert memory is not None
    ratio = memory.device_bytes.mid / plain.device_bytes.mid
    assert 1.1 < ratio < 1.4
    assert memory.allocated_bytes.mid / plain.allocated_bytes.mid == pytest.approx(ratio)
    assert sum(value for _, value in memory.parts_bytes) == pytest.approx(memory.device_bytes.mid)


def test_errors_fall_and_the_figure_from_the_others_is_shown_too() -> None:
    batches = ({"micro_batch": 1, "grad_accum": 8}, {}, {"micro_batch": 4, "grad_accum": 2})
    found = calibration(own_figures([slow(0.7, **changed) for changed in batches]))
    assert len(found.figures) == 3
    assert found.median_error("before") == pytest.approx(1 / 0.7 - 1, abs=0.01)
    assert found.median_error("after") < found.median_error("left_out") < found.median_error("before")


def test_a_step_time_counts_as_a_speed() -> None:
    tokens = 32 * 2048 / 4
    by_rate = own_figures([line(measured={"tokens_per_s_per_gpu": 2000.0})])[0].residual.log_ratio
    by_time = own_figures([line(measured={"step_time_s": tokens / 2000.0})])[0].residual.log_ratio
    assert by_rate == pytest.approx(by_time)


@pytest.mark.parametrize(
    "measured",
    [
        None, {}, [], {"peak_memory_gib": "61"}, {"peak_memory_gib": -1}, {"tokens_per_s_per_gpu": 0},
        {"tokens_per_s_per_gpu": True}, {"peak_memory_gib": 1e300},
        {"peak_memory_gib": 30, "memory_kind": "all"}, {"tokens_per_s_per_gpu": 1e9}, {"oom": True},
    ],
)  # fmt: skip
def test_what_was_not_measured_or_cannot_be_is_refused_with_the_line(measured: object) -> None:
    with pytest.raises(UserError, match="line 2: "):
        own_figures([slow(0.9), line(measured=measured)])


@pytest.mark.parametrize("text", ["", "\n \n", "{", '{"id": 1}'])
def test_a_file_without_runs_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        own_figures(text.splitlines())
