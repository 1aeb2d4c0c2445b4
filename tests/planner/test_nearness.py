"""Bands by nearness: near runs count, crowds do not, and only own runs move the middle."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.hardware.gpus import gpus
from planner.layouts import layout_row
from planner.model.shapes import shape_for
from planner.trust.features import Features, features_of, table_features
from planner.trust.nearness import (
    Residuals,
    correction,
    none,
    own_runs,
    residuals,
    shipped,
    spreads,
    support,
    warnings,
)
from planner.trust.residuals import OWN, QUANTITIES, Quantity, Residual, shipped_rows
from planner.types import Layout, Links, Shape, TrainingSpec

RUN = Features(
    gpu="A100-SXM4-80GB", method="full", precision="bf16", framework="hf", zero_stage=0, recompute=0, tp=1,
    pp=1, cp=1, ep=1, offload=0, moe=0, params=7e9, gpus=8.0, nodes=1.0, seq_len=2048.0, micro_tokens=4096.0,
)  # fmt: skip


def width(quantity: Quantity, run: Features, known: Residuals) -> float:
    found = spreads(quantity, [run], known)
    return math.log(found.high[0] / found.low[0])


def rows(source: str, run: Features, *ratios: float) -> list[Residual]:
    return [Residual("step", source, run, math.log(ratio)) for ratio in ratios]


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_every_gpu_has_a_band_of_every_kind_around_what_is_predicted(quantity: Quantity) -> None:
    found = spreads(quantity, [replace(RUN, gpu=card.id) for card in gpus()], shipped())
    assert (found.low < 1).all()
    assert (found.middle == 1).all()
    assert (found.high > 1).all()
    assert (found.high / found.low < 10).all()


def test_runs_that_are_near_decide_more_than_runs_that_are_far() -> None:
    far = replace(RUN, gpu="RTX 4090", method="lora")
    exact, off = rows("a", RUN, 1.02, 0.98), rows("b", far, 1.6, 0.6)
    known = residuals(exact + off)
    assert width("step", RUN, known) < width("step", far, known) / 2


def test_a_source_with_many_runs_does_not_speak_for_all() -> None:
    few, many = rows("a", RUN, 1.4, 0.7), rows("b", RUN, *([1.01, 0.99] * 50))
    alone, together = residuals(few), residuals(few + many)
    pooled_share = 2 / 102
    share = width("step", RUN, together) / width("step", RUN, alone)
    assert share > pooled_share * 2


def test_a_band_is_wider_where_no_run_is_near_and_that_is_said() -> None:
    known = residuals(rows("a", RUN, 1.2, 0.8))
    other = replace(RUN, gpu="L40S", framework="megatron", tp=4, params=1e8)
    assert width("step", other, known) > width("step", RUN, known)
    assert warnings("L40S", known) == ("no measured run on L40S for memory and time: wider band",)
    assert warnings("A100-SXM4-80GB", known) == ("no measured run on A100-SXM4-80GB for memory: wider band",)
    assert support("step", RUN, known).num_runs == 2
    assert support("step", other, known).num_runs == 0


@pytest.mark.parametrize("quantity", ["device", "step"])
def test_a_gpu_that_nobody_measured_has_a_wider_band_than_its_like(quantity: Quantity) -> None:
    measured = {
        row.features.gpu for row in shipped_rows() if (row.quantity == "step") == (quantity == "step")
    }
    unseen = replace(RUN, gpu="A30")
    assert unseen.gpu not in measured
    assert width(quantity, unseen, shipped()) > 1.2 * width(quantity, RUN, shipped())


def test_without_any_run_the_formulas_answer_with_the_widest_band() -> None:
    found = spreads("step", [RUN], none())
    assert found.middle[0] == 1
    assert width("step", RUN, none()) > width("step", RUN, shipped())


def test_how_far_own_runs_move_a_run_is_said_and_nothing_without_them() -> None:
    own = [Residual("step", OWN, RUN, math.log(1.5))]
    known = residuals([*shipped_rows(), *own])
    said = correction(RUN, known)
    assert said is not None
    assert said.startswith("corrected by 1 run of your own: time +")
    assert said.endswith("memory ±0 %")
    assert correction(RUN, shipped()) is None
    assert (own_runs("step", RUN.gpu, known), own_runs("step", "L4", known)) == (1, 0)
    assert own_runs("device", RUN.gpu, known) == 0


def test_a_residual_that_grows_when_its_source_is_left_out_widens_the_band() -> None:
    plain = rows("a", RUN, 1.1, 0.9)
    left_out = [replace(row, left_out=2 * row.log_ratio) for row in plain]
    assert width("step", RUN, residuals(left_out)) == pytest.approx(
        1.5 * width("step", RUN, residuals(plain))
    )


def test_own_runs_move_the_middle_near_them_and_not_elsewhere() -> None:
    own = [Residual("step", OWN, RUN, math.log(1.5))]
    known = residuals([*shipped_rows(), *own])
    elsewhere = replace(RUN, gpu="RTX 4090", method="lora", framework="litgpt")
    here, there = spreads("step", [RUN, elsewhere], known).middle
    assert 1.1 < here < 1.5
    assert 1.0 <= there < 1.01


def test_more_own_runs_move_the_middle_further() -> None:
    def middle(num: int) -> float:
        own = [Residual("step", OWN, RUN, math.log(1.5))] * num
        return float(spreads("step", [RUN], residuals([*shipped_rows(), *own])).middle[0])

    assert 1 < middle(1) < middle(3) < middle(20) < 1.5


def test_an_own_run_that_is_off_by_noise_hardly_moves_anything() -> None:
    own = [Residual("step", OWN, RUN, math.log(1.03))]
    assert spreads("step", [RUN], residuals([*shipped_rows(), *own])).middle[0] < 1.005


def test_one_own_run_does_not_make_the_band_narrow() -> None:
    own = [Residual("step", OWN, RUN, math.log(1.5))]
    known = residuals([*shipped_rows(), *own])
    assert width("step", RUN, known) >= 0.5 * width("step", RUN, shipped())


@given(
    micro=st.sampled_from([1, 2, 8]), zero=st.sampled_from([0, 1, 2, 3]), tp=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "selective", "full"]), offload=st.sampled_from(["none", "optimizer"]),
)  # fmt: skip
def test_a_layout_has_the_same_band_in_the_search_and_alone(
    micro: int, zero: int, tp: int, recompute: str, offload: str
) -> None:
    layout = Layout(
        dp=8 // tp, tp=tp, zero_stage=zero, micro_batch=micro, recompute=recompute, offload=offload
    )  # type: ignore[arg-type]
    shape = Shape(gpu="L40S", gpus_per_node=8, num_nodes=1, links=Links(intra="pcie4-p2p", inter="ethernet"))
    model, training = shape_for(1e9), TrainingSpec(seq_len=2048)
    alone = features_of(model, training, layout, shape)
    table = np.array([layout_row(layout)] * 3).T
    for quantity, figure in (("device", "device"), ("step", "step")):
        kinds, of = table_features(model, training, [shape], table, np.zeros(3, dtype=int), figure=figure)
        found, wanted = spreads(quantity, kinds, shipped()), spreads(quantity, [alone], shipped())
        assert len(kinds) == 1
        assert of.tolist() == [0, 0, 0]
        assert found.high[0] == pytest.approx(wanted.high[0])
        assert found.low[0] == pytest.approx(wanted.low[0])
