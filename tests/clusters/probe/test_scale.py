"""How many layers a probe runs where all are too many."""

import pytest

from clusters.probe import scale, spec
from clusters.probe.model import count_on_meta

MODEL = {
    "name": "eight layers",
    "num_layers": 8,
    "hidden_size": 256,
    "num_heads": 4,
    "num_kv_heads": 4,
    "head_dim": 64,
    "ffn_size": 1024,
    "vocab_size": 1024,
}
MOE = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_size": 128, "dense_layers": 3}
FAST = 1e18
ROOMY = 1e15


def run(model=None, training=None, **layout) -> spec.Run:
    training = {"seq_len": 128, "precision": "fp32", **(training or {})}
    return spec.read_plan({"model": {**MODEL, **(model or {})}, "training": training, "layout": layout})


def limits(free_bytes=ROOMY, flops_per_s=FAST, predicted_bytes=None) -> scale.Limits:
    return scale.Limits(
        free_bytes=free_bytes, flops_per_s=flops_per_s, max_step_s=5.0, predicted_bytes=predicted_bytes
    )


def test_without_scale_all_layers_run_whatever_there_is():
    assert scale.depths(run(), "none", limits(free_bytes=1.0)) == (8,)


def test_a_model_that_fits_and_is_quick_is_not_cut():
    assert scale.depths(run(), "auto", limits()) == (8,)


def test_too_little_memory_cuts_to_two_depths_that_fit():
    whole = scale.state_bytes(run()) * scale.ACTIVATIONS / scale.SAFE_SHARE
    shallow, deep = scale.depths(run(), "auto", limits(free_bytes=0.6 * whole))
    assert 1 <= shallow < deep < 8
    needed = scale.state_bytes(scale.cut(run(), deep)) * scale.ACTIVATIONS
    assert needed <= scale.SAFE_SHARE * 0.6 * whole


def test_the_planners_figure_counts_before_our_own():
    assert len(scale.depths(run(), "auto", limits(free_bytes=10e9, predicted_bytes=9e9))) == 2
    assert scale.depths(run(), "auto", limits(free_bytes=10e9, predicted_bytes=7e9)) == (8,)


def test_a_step_that_takes_too_long_is_cut():
    slow = scale.step_flops(run()) / 5.0 / scale.STEP_EFFICIENCY
    assert scale.depths(run(), "auto", limits(flops_per_s=slow * 1.01)) == (8,)
    assert scale.depths(run(), "auto", limits(flops_per_s=slow * 0.7))[-1] < 8


def test_where_nothing_fits_the_smallest_is_tried_and_will_say_so():
    assert scale.depths(run(), "auto", limits(free_bytes=1.0)) == (1,)


@pytest.mark.parametrize(("asked", "expected"), [("4", (2, 4)), ("1", (1,)), ("8", (8,)), ("20", (8,))])
def test_a_number_of_layers_is_run_with_half_of_it(asked, expected):
    assert scale.depths(run(), asked, limits()) == expected


def test_every_pipeline_stage_keeps_as_many_layers_as_the_others():
    piped = run(pp=2, interleave=2, grad_accum=4)
    assert scale.depths(piped, "auto", limits(free_bytes=1.0)) == (4,)
    assert all(depth % 4 == 0 for depth in scale.depths(piped, "auto", limits(flops_per_s=1.0)))


def test_a_cut_model_keeps_experts_behind_its_dense_layers():
    assert scale.depths(run({"moe": MOE}), "auto", limits(free_bytes=1.0)) == (4,)


def test_a_cut_changes_layers_and_what_counts_layers_only():
    whole = run({"sliding_window": 64, "local_layers": 4}, {"frozen_layers": 6})
    part = scale.cut(whole, 4)
    assert (part.model.num_layers, part.model.local_layers, part.training.frozen_layers) == (4, 2, 4)
    assert part.layout == whole.layout
    each = (count_on_meta(whole) - count_on_meta(part)) / 4
    assert count_on_meta(scale.cut(whole, 5)) == count_on_meta(part) + each


@pytest.mark.parametrize(
    ("layout", "bytes_a_parameter"),
    [
        ({}, 16),
        ({"dp": 4}, 16),
        ({"dp": 4, "zero_stage": 1}, 8 + 8 / 4),
        ({"dp": 4, "zero_stage": 3}, 16 / 4),
        ({"dp": 4, "zero_stage": 3, "shard_group": 2}, 16 / 2),
        ({"pp": 2, "tp": 2}, 16 / 4),
    ],
)
def test_states_are_what_the_layout_leaves_on_a_rank(layout, bytes_a_parameter):
    assert scale.state_bytes(run(**layout)) == pytest.approx(count_on_meta(run()) * bytes_a_parameter)


def test_experts_that_are_not_chosen_are_not_multiplied_with():
    whole = run({"moe": MOE})
    total = count_on_meta(whole)
    idle = 5 * 6 * 3 * 256 * 128  # layers x experts not chosen x matrices of each
    assert scale.active_params(whole.model, total) == total - idle
