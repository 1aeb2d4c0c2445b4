"""Steps on one rank: counts, times, losses; the same figures of several ranks joined; a user's own loop."""

import dataclasses
import sys
from types import ModuleType

import pytest
import torch

from clusters.probe import alone, entrypoint, measure, precision, spec, step
from clusters.probe.failures import WrongCountError
from clusters.probe.measure import RankSteps

CPU = torch.device("cpu")
MODEL = {
    "name": "small",
    "num_layers": 2,
    "hidden_size": 64,
    "num_heads": 4,
    "num_kv_heads": 4,
    "head_dim": 16,
    "ffn_size": 128,
    "vocab_size": 256,
}
torch.set_num_threads(1)


def run(training: dict | None = None, **layout) -> spec.Run:
    training = {"seq_len": 16, "precision": "fp32", **(training or {})}
    return spec.read_plan({"model": MODEL, "training": training, "layout": layout})


def silent(done: int, of: int) -> None:
    """Progress that nobody reads."""


# -------------------------------------------------------------------------------------- parameters


def test_the_model_that_is_built_is_counted():
    trainer = measure.built(run(), CPU, 0)
    assert measure.real_params(trainer) == measure.count_on_meta(run())


def test_adapters_are_not_counted_as_the_models():
    adapted = run({"method": "lora", "lora": {"rank": 4}})
    assert measure.real_params(measure.built(adapted, CPU, 0)) == measure.count_on_meta(run())


def test_a_model_that_was_built_otherwise_ends_the_probe(monkeypatch):
    honest = step.build

    def other(asked: spec.Run, *args: object, **more: object) -> step.Trainer:
        wider = dataclasses.replace(asked, model=dataclasses.replace(asked.model, vocab_size=512))
        return honest(wider, *args, **more)

    monkeypatch.setattr(step, "build", other)
    with pytest.raises(WrongCountError, match="the model that was built has"):
        measure.built(run(), CPU, 0)


def test_a_spec_that_the_planner_counts_otherwise_ends_the_probe():
    right = measure.count_on_meta(run())
    measure.check_count(run(), right)
    measure.check_count(run(), None)
    with pytest.raises(WrongCountError, match=f"has {right:,} parameters, the plan was reckoned with 7"):
        measure.check_count(run(), 7)


# -------------------------------------------------------------------------------------------- steps


def test_steps_after_warm_up_are_timed_and_every_loss_is_kept():
    told = []
    steps = measure.run_steps(
        measure.built(run(micro_batch=2, grad_accum=2), CPU, 0), 2, 3, 0, lambda *at: told.append(at)
    )
    assert len(steps.seconds) == len(steps.loader_seconds) == 3
    assert all(0 < load < whole for load, whole in zip(steps.loader_seconds, steps.seconds, strict=True))
    assert len(steps.loss) == 5
    assert list(steps.loss) == sorted(steps.loss, reverse=True)
    assert steps.tokens_per_step == 2 * 2 * 16
    assert told == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


def test_each_step_of_all_ranks_is_as_long_as_the_slowest_takes():
    ranks = [
        RankSteps(seconds=(1.0, 2.0, 3.0), loader_seconds=(0.1, 0.1, 0.1), loss=(5.0,), tokens_per_step=8),
        RankSteps(seconds=(2.0, 1.0, 4.0), loader_seconds=(0.3, 0.2, 0.1), loss=(5.0,), tokens_per_step=8),
    ]
    joined = measure.joined(ranks)
    assert joined.seconds == (2.0, 2.0, 4.0)
    assert joined.median_s_by_rank == (2.0, 2.0)
    assert joined.loader_s == 0.2


def test_bf16_stays_near_fp32_from_the_same_seed():
    check = precision.check(run({"precision": "bf16"}), CPU, 0, silent)
    assert check.precision == "bf16"
    assert check.loss != check.loss_fp32
    assert check.loss == pytest.approx(check.loss_fp32, rel=0.02)


def test_a_gpu_that_no_tool_can_read_has_no_device_memory(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert measure.device_bytes(torch.device("cuda")) is None


# -------------------------------------------------------------------------------------- a user's loop


def context(warmup: int = 2, count: int = 6, told: list | None = None) -> entrypoint.LoopContext:
    report = silent if told is None else lambda *at: told.append(at)
    return entrypoint.LoopContext({}, (0, 1, CPU), (warmup, count), 0, report)


def test_a_loop_is_told_when_enough_steps_are_done():
    told: list = []
    loop = context(told=told)
    steps = 1
    while loop.step_done(10.0 - steps):
        steps += 1
    measured = loop.measured(tokens_per_step=64)
    assert steps == 8
    assert len(measured.seconds) == len(measured.loader_seconds) == 6
    assert measured.loss == tuple(9.0 - i for i in range(8))
    assert told[-1] == (8, 8)


def test_the_first_step_never_counts_as_nobody_saw_it_begin():
    loop = context(warmup=0)
    assert loop.wanted == 7


def test_a_loop_that_goes_on_is_measured_where_it_was_asked():
    loop = context()
    for _ in range(20):
        loop.step_done(torch.tensor(1.0))
    assert len(loop.measured(1).seconds) == 6


def test_only_time_inside_loading_is_the_loaders():
    loop = context()
    for _ in range(8):
        loop.step_done(1.0)
    assert loop.measured(1).loader_seconds == (0.0,) * 6


def test_a_loop_that_ends_too_early_is_an_error():
    loop = context()
    loop.step_done(1.0)
    with pytest.raises(ValueError, match="ended after 1 steps, 8 were wanted"):
        loop.measured(1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module_of_ours:train", "No module named"),
        ("mine:no_such", "no attribute"),
        ("mine:NUMBER", "not a function"),
    ],
)
def test_an_entrypoint_that_is_not_there_is_refused(monkeypatch, name, said):
    mine = ModuleType("mine")
    mine.NUMBER = 7
    monkeypatch.setitem(sys.modules, "mine", mine)
    with pytest.raises(spec.RefusedError, match=said):
        entrypoint.load(name)


# ------------------------------------------------------------------------------------ one layer alone


@pytest.mark.parametrize("precision_", ["fp32", "bf16", "bf16-pure"])
def test_one_layer_is_timed_without_any_other_rank(precision_):
    seconds = alone.layer_seconds(run({"precision": precision_}, zero_stage=3, dp=8), CPU, free_bytes=1e9)
    assert seconds > 0


def test_a_layer_that_has_no_room_beside_others_is_not_timed():
    assert alone.layer_seconds(run(), CPU, free_bytes=1e5) is None
