"""Groups of measured runs: errors, sources, sizes."""

import math
from dataclasses import replace

import pytest

from planner.trust import accuracy
from planner.trust.accuracy import KEYS, error, macro_median, table
from planner.trust.features import Features
from planner.trust.residuals import Residual, shipped_rows


def a_row(source: str, log_ratio: float, quantity: str = "step", **changed: object) -> Residual:
    plain = dict(
        gpu="L4", method="full", precision="bf16", framework="plan", zero_stage=0, recompute=0, tp=1, pp=1,
        cp=1, ep=1, offload=0, moe=0, params=1e9, gpus=1.0, nodes=1.0, seq_len=2048.0, micro_tokens=2048.0,
    )  # fmt: skip
    return Residual(quantity, source, Features(**{**plain, **changed}), log_ratio)


def test_a_step_that_took_longer_than_predicted_is_a_speed_predicted_too_high() -> None:
    assert error(a_row("a", math.log(1.25))) == pytest.approx(0.25)
    assert error(a_row("a", math.log(1.25), "device")) == pytest.approx(-0.2)


def test_a_source_of_many_runs_does_not_drown_one_of_few() -> None:
    rows = [a_row("many", 0.0) for _ in range(96)] + [a_row("few", math.log(1.5)) for _ in range(4)]
    assert macro_median(rows) == pytest.approx(0.25)
    assert macro_median(rows[:3]) is None


def test_every_group_of_every_kind_is_in_the_table() -> None:
    rows = table(shipped_rows())
    assert {row.by for row in rows} == set(KEYS)
    assert {row.quantity for row in rows} == {"memory", "time"}
    for quantity in ("memory", "time"):
        everything = next(row for row in rows if row.quantity == quantity and row.by == "all")
        assert all(row.num_runs <= everything.num_runs for row in rows if row.quantity == quantity)


def test_groups_are_by_size_layout_and_scale() -> None:
    run = a_row("a", 0.0, params=2e9, gpus=16.0, nodes=2.0, tp=2, pp=4, zero_stage=1).features
    assert (accuracy.size(run), accuracy.layout(run), accuracy.scale(run)) == (
        "1 to 10 B", "tp + pp", "multi-node",
    )  # fmt: skip


def test_what_a_source_gets_from_the_constants_of_the_others_stands_beside_what_is_shipped() -> None:
    rows = [replace(a_row("a", 0.0), left_out=math.log(1.2)) for _ in range(4)]
    (found,) = [row for row in table(rows) if row.by == "all"]
    assert (found.macro_median, found.p90) == (0.0, 0.0)
    assert found.left_out_macro_median == pytest.approx(0.2)
    assert found.left_out_p90 == pytest.approx(0.2)
    (without,) = [row for row in table([a_row("a", 0.0)] * 4) if row.by == "all"]
    assert without.left_out_macro_median is None
    assert without.left_out_p90 is None
