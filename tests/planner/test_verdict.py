"""Prediction against measurement, check by check."""

import csv
from datetime import date
from decimal import Decimal
from importlib.resources import files
from typing import get_args

import pytest

from planner import answers, api
from planner.probed import (
    Check,
    Depth,
    Failure,
    PrecisionCheck,
    ProbeVerdict,
    Reading,
    SkippedCollective,
)
from planner.types import Band, Layout
from planner.verdict import Subject, judge, limits, of_plan
from planner.verdict.limits import LimitName, limit, upper
from planner.verdict.own import own_collectives
from planner.verdict.subject import cut_run, estimate, num_params
from tests.clusters import tools
from tests.planner import probe_tools as t


def check(verdict: ProbeVerdict, name: str) -> Check:
    found = [c for c in verdict.checks if c.name.startswith(name)]
    assert found, f"no check {name!r} among {[c.name for c in verdict.checks]}"
    return found[0]


def judged(**changed: object) -> ProbeVerdict:
    return judge(t.subject(), t.result(**changed))


def names(verdict: ProbeVerdict, passed: bool | None) -> list[str]:
    return [c.name for c in verdict.checks if c.passed is passed]


def test_what_is_as_predicted_passes_every_check() -> None:
    verdict = judged()
    assert verdict.verdict == "pass"
    assert names(verdict, False) == []
    assert verdict.likely_cause == ""
    assert verdict.advice == ()


def test_nothing_measured_fails_every_check_and_says_why() -> None:
    empty = t.result(hardware=(), collectives=(), memory=(), steps=None, num_params=None)
    verdict = judge(t.subject(), empty)
    assert verdict.verdict == "fail"
    assert {c.passed for c in verdict.checks} == {False}
    assert all(c.why.startswith("not measured") for c in verdict.checks)


def test_a_probe_of_no_checks_does_not_pass() -> None:
    one = t.subject().model_copy(update={"phases": ()})
    assert judge(one, t.result()).verdict == "fail"


# ------------------------------------------------------------------------------------ machines


def test_a_missing_rank_fails() -> None:
    ranks = check(judged(hardware=t.hardware(3)), "ranks")
    assert (ranks.measured, ranks.limit, ranks.passed) == (3.0, 4.0, False)


def test_a_failed_reading_fails_with_its_node_and_reason() -> None:
    bad = Reading(name="throttle reasons", value=None, passed=False, why="nvidia-smi is not installed")
    readings = check(judged(hardware=t.hardware(readings=(bad,))), "hardware readings")
    assert readings.passed is False
    assert readings.why == "node-0: throttle reasons: nvidia-smi is not installed"


def test_a_reading_that_nothing_is_expected_of_is_not_counted() -> None:
    shown = Reading(name="disk", value="90 GiB")
    readings = check(judged(hardware=t.hardware(readings=(shown,))), "hardware readings")
    assert (readings.measured, readings.limit, readings.passed) == (0.0, 0.0, True)


def test_ranks_without_a_gpu_fail_a_plan_for_gpus() -> None:
    ranks = check(judged(hardware=t.hardware(backend="gloo")), "ranks")
    assert ranks.passed is False
    assert "L40S" in ranks.why


# ------------------------------------------------------------------------------------ collectives


def test_a_wrong_value_fails_and_names_operation_and_rank() -> None:
    first, *rest = t.timings(t.subject())
    wrong = first.model_copy(update={"correct": False, "wrong_ranks": (2,)})
    values = check(judged(collectives=(wrong, *rest)), "wrong values")
    assert values.passed is False
    assert "AllReduce" in values.why
    assert "rank 2" in values.why


@pytest.mark.parametrize(("speed", "passed"), [(1.0, True), (0.71, True), (0.69, False), (0.1, False)])
def test_bus_bandwidth_must_reach_its_share_of_what_is_expected(speed: float, passed: bool) -> None:
    verdict = judged(collectives=t.timings(t.subject(), speed))
    busbw = [c for c in verdict.checks if "busbw" in c.name]
    assert len(busbw) == 3  # two of the plan's own, and the largest AllReduce
    assert {c.passed for c in busbw} == {passed}


def test_faster_than_the_wire_cannot_be_right() -> None:
    verdict = judged(collectives=t.timings(t.subject(), 5.0))
    busbw = check(verdict, "AllReduce busbw")
    assert busbw.passed is False
    assert "faster than the wire" in busbw.why


def test_a_collective_of_the_plan_that_was_not_timed_fails_with_the_reason() -> None:
    asked = t.subject()
    own = own_collectives(asked.run)[0]
    left = tuple(c for c in t.timings(asked) if c.op != own.op)
    why = SkippedCollective(op=own.op, scope="all", bytes=own.bytes, why="would take 90 s of 60 s")
    missing = check(judged(collectives=left, skipped=(why,)), "AllGather busbw")
    assert missing.passed is False
    assert "would take 90 s of 60 s" in missing.why


def test_one_rank_has_no_collectives_to_judge() -> None:
    alone = t.run(Layout(dp=1, micro_batch=1, grad_accum=4))
    alone = alone.model_copy(update={"shape": alone.shape.model_copy(update={"gpus_per_node": 1})})
    asked = Subject(predicted=estimate(alone))
    speed, held = asked.predicted.speed, asked.predicted.memory
    assert speed is not None
    assert held is not None
    verdict = judge(
        asked,
        t.result(
            asked,
            collectives=(),
            steps=t.steps(speed.step_s.mid, 1, 1.0, tokens=4 * 2048),
        ),
    )
    assert not [c for c in verdict.checks if "busbw" in c.name]


def test_a_slow_host_is_named() -> None:
    hosts = t.hardware(3, 1)
    verdict = judged(hardware=hosts, pairs=t.pairs(slow_rank=2))
    assert check(verdict, "slowest pair").passed is False
    assert "node-2" in verdict.likely_cause
    assert "20 MB/s" in verdict.likely_cause


# ------------------------------------------------------------------------------------ memory


def reserved_limit() -> tuple[float, float]:
    predicted = t.subject().predicted.memory
    assert predicted is not None
    assert predicted.usable_bytes is not None
    return upper(predicted.reserved_bytes), predicted.usable_bytes * 0.8


def test_memory_is_bounded_by_the_stretched_prediction_and_the_safe_limit() -> None:
    stretched, safe = reserved_limit()
    assert check(judged(), "peak memory reserved").limit == min(stretched, safe)
    over = check(judged(memory=t.memory(min(stretched, safe) * 1.01)), "peak memory reserved")
    assert over.passed is False
    assert "rank 3" in over.why


def test_a_plan_that_was_predicted_too_small_fails() -> None:
    asked = t.subject()
    held = asked.predicted.memory
    assert held is not None
    halved = {
        k: Band(**{e: v / 2 for e, v in held.reserved_bytes.model_dump().items()})
        for k in ("reserved_bytes",)
    }
    small = asked.model_copy(
        update={"predicted": asked.predicted.model_copy(update={"memory": held.model_copy(update=halved)})}
    )
    memory = check(judge(small, t.result()), "peak memory reserved")
    assert memory.passed is False
    assert "more than was predicted" in memory.why


def test_a_rank_that_does_not_say_its_memory_fails_the_check() -> None:
    memory = check(
        judged(memory=tuple(r.model_copy(update={"reserved_bytes": None}) for r in t.memory(1e9))),
        "peak memory reserved",
    )
    assert memory.passed is False
    assert memory.measured is None


def test_allocated_memory_is_shown_and_decides_nothing() -> None:
    assert check(judged(), "peak memory allocated").passed is None


@pytest.mark.parametrize("field", ["num_alloc_retries", "num_ooms"])
def test_a_retry_and_an_oom_fail_also_where_a_rank_says_nothing(field: str) -> None:
    name = "alloc retries" if "retries" in field else "OOMs"
    held = t.result().memory
    once = (held[0].model_copy(update={field: 1}), *held[1:])
    assert check(judged(memory=once), name).passed is False
    silent = (held[0].model_copy(update={field: None}), *held[1:])
    unknown = check(judged(memory=silent), name)
    assert unknown.passed is False
    assert unknown.measured is None


def test_another_number_of_parameters_fails() -> None:
    assert check(judged(num_params=123), "parameters").passed is False


# ------------------------------------------------------------------------------------ speed and loss


def test_a_step_within_the_stretched_band_passes_and_beyond_it_fails() -> None:
    predicted = t.subject().predicted.speed
    assert predicted is not None
    most = upper(predicted.step_s)
    assert predicted.step_s.high < most
    assert check(judged(steps=t.steps(most * 0.999)), "step time").passed is True
    assert check(judged(steps=t.steps(most * 1.001)), "step time").passed is False


def test_the_slowest_rank_may_take_a_tenth_more() -> None:
    predicted = t.subject().predicted.speed
    assert predicted is not None
    for slowest, passed in ((1.09, True), (1.11, False)):
        found = check(judged(steps=t.steps(predicted.step_s.mid, slowest=slowest)), "slowest rank")
        assert found.passed is passed
        assert found.why == "rank 3 on node-0"


@pytest.mark.parametrize("loss", [(9.0, 9.1, 9.2, 9.3), (9.0,), ()])
def test_a_loss_that_does_not_fall_fails(loss: tuple[float, ...]) -> None:
    steps = t.result().steps
    assert steps is not None
    assert check(judged(steps=steps.model_copy(update={"loss": loss})), "loss falls").passed is False


@pytest.mark.parametrize(("apart", "passed"), [(0.001, True), (0.02, False)])
def test_losses_in_the_plans_precision_stay_within_its_roundoff(apart: float, passed: bool) -> None:
    both = PrecisionCheck(precision="bf16", loss_fp32=(10.0, 9.0), loss=(10.0, 9.0 * (1 + apart)))
    found = check(judged(precision=both), "loss in bf16")
    assert found.limit == 4 * 2**-8
    assert found.passed is passed


def test_a_comparison_that_was_asked_for_and_is_missing_fails() -> None:
    asked = t.subject().model_copy(update={"check_precision": True})
    assert check(judge(asked, t.result()), "loss in bf16").passed is False


def test_losses_of_runs_that_differ_in_length_are_no_comparison() -> None:
    both = PrecisionCheck(precision="bf16", loss_fp32=(10.0,), loss=(10.0, 9.0))
    assert check(judged(precision=both), "loss in bf16").passed is False


# ------------------------------------------------------------------------------------ money


def test_the_run_is_priced_again_from_the_measured_step() -> None:
    predicted = t.subject().predicted.speed
    assert predicted is not None
    same, slower = judged().repriced, judged(steps=t.steps(predicted.step_s.mid * 1.5)).repriced
    assert same is not None
    assert slower is not None
    assert same.cost_usd is not None
    assert slower.cost_usd is not None
    assert slower.cost_usd.mid / same.cost_usd.mid == pytest.approx(1.5, rel=0.05)


def test_a_run_that_gets_too_dear_fails_by_its_budget() -> None:
    cheap = judged().repriced
    assert cheap is not None
    assert cheap.cost_usd is not None
    for budget, passed in ((cheap.cost_usd.mid * 1.01, True), (cheap.cost_usd.mid * 0.99, False)):
        asked = t.subject().model_copy(update={"budget_usd": Decimal(budget)})
        verdict = judge(asked, t.result())
        assert check(verdict, "cost of the run").passed is passed
        assert verdict.repriced is not None
        assert verdict.repriced.within_budget is passed


def test_without_an_offer_the_cost_is_unknown() -> None:
    verdict = judge(t.subject().model_copy(update={"offer": None}), t.result())
    assert verdict.repriced is not None
    assert verdict.repriced.cost_usd is None
    assert not [c for c in verdict.checks if c.name == "cost of the run"]


# ------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize("kind", get_args(Failure.model_fields["kind"].annotation))
def test_every_kind_of_failure_is_a_failed_check_in_words(kind: str) -> None:
    failure = Failure.model_validate(
        {"kind": kind, "phase": "steps", "rank": 1, "node": "node-0", "message": "said so"}
    )
    found = check(judged(failures=(failure,), steps=None), "steps phase")
    assert found.passed is False
    assert found.why


def test_an_oom_names_rank_phase_and_bytes_and_what_would_fit_fits() -> None:
    verdict = judged(failures=(t.oom(),), memory=(), steps=None)
    told = check(verdict, "steps phase").why
    assert told == "rank 3 on node-0 ran out of memory: asked for 2.00 GiB, 0.50 GiB free"
    assert check(verdict, "step time").why == f"not measured: {told}"
    assert verdict.advice


def test_what_is_advised_fits_when_the_planner_is_asked_again() -> None:
    verdict = judged(failures=(t.oom(),), memory=(), steps=None)
    predicted = t.subject().predicted.memory
    assert predicted is not None
    assert predicted.usable_bytes is not None
    factor = predicted.usable_bytes / predicted.reserved_bytes.mid
    advised = [a.partition(":")[0] for a in verdict.advice]
    by_name = {o.name: o.estimate for o in api.what_if(t.run())}
    known = [by_name[name] for name in advised if name in by_name]
    assert known
    for found in known:
        again = answers.evaluate([found.run])[0][0]
        assert again.reserved_bytes.mid * factor <= predicted.usable_bytes * 0.8


def test_enough_memory_gets_no_advice() -> None:
    assert judged(memory=t.memory(1e9)).advice == ()


def test_likely_cause_is_the_reading_that_tells_most() -> None:
    bad = (
        Reading(name="clocks", value="900 MHz", expected="2520 MHz", passed=False),
        Reading(name="P2P matrix", value=None, passed=False, why="off between 0-1 and 2-3"),
    )
    verdict = judged(hardware=t.hardware(readings=bad), collectives=t.timings(t.subject(), 0.2))
    assert verdict.likely_cause.startswith("GPUs talk through host memory (P2P matrix on node-0")


def test_a_healthy_speed_has_no_cause_to_look_for() -> None:
    bad = (Reading(name="P2P matrix", value=None, passed=False, why="off"),)
    assert judged(hardware=t.hardware(readings=bad)).likely_cause == ""


# ------------------------------------------------------------------------------------ parts of the run


def test_fewer_layers_are_compared_with_the_prediction_for_those() -> None:
    part = estimate(cut_run(t.run(), 4))
    assert part.memory is not None
    assert part.speed is not None
    four = t.result(
        num_layers=4,
        num_params=num_params(t.run(), 4),
        memory=t.memory(part.memory.reserved_bytes.mid),
        steps=t.steps(part.speed.step_s.mid),
    )
    verdict = judge(t.subject(), four)
    assert verdict.verdict == "pass"
    memory = check(verdict, "peak memory reserved")
    assert memory.predicted == part.memory.reserved_bytes
    assert "4 of" in memory.why
    whole = verdict.repriced
    same = judged().repriced
    assert whole is not None
    assert same is not None
    assert whole.hours.mid == pytest.approx(same.hours.mid, rel=0.01)


def test_two_depths_give_the_peak_of_the_whole_model() -> None:
    layers = t.run().model.num_layers
    depths = tuple(Depth(num_layers=n, memory=t.memory(2e9 + n * 1e9), steps=None) for n in (2, 4))
    verdict = judge(t.subject(), t.result(num_layers=4, num_params=num_params(t.run(), 4), depths=depths))
    whole = check(verdict, "peak memory, whole model")
    assert whole.measured == pytest.approx(2e9 + layers * 1e9)
    assert whole.why == f"extrapolated: 2 and 4 of {layers} layers ran"


def test_only_what_was_asked_for_is_judged() -> None:
    asked = t.subject().model_copy(update={"phases": ("hardware",)})
    verdict = judge(asked, t.result(collectives=(), memory=(), steps=None, num_params=None))
    assert verdict.verdict == "pass"
    assert [c.name for c in verdict.checks] == ["ranks", "hardware readings"]


def test_a_saved_plan_is_judged_by_the_figures_that_were_shown() -> None:
    plan = tools.plan()
    asked = of_plan(plan, Decimal(50))
    assert asked.predicted.memory == plan.candidate.memory
    assert asked.offer == plan.candidate.offer


def test_a_plan_on_cpu_workers_is_judged_by_memory_not_by_the_gpus_speed() -> None:
    asked = of_plan(tools.plan(), on_cpu=True)
    assert asked.on_cpu
    assert asked.num_ranks == 4
    assert asked.predicted.speed is None
    assert asked.predicted.memory is not None


# ------------------------------------------------------------------------------------ CPUs


def test_on_a_cpu_time_and_bandwidth_are_shown_and_memory_is_judged() -> None:
    asked = t.cpu_subject()
    verdict = judge(asked, t.cpu_result(asked))
    assert verdict.verdict == "pass"
    assert set(names(verdict, None)) == {"step time", "AllReduce busbw, gradient bucket"}
    assert check(verdict, "peak memory reserved").passed is True
    assert verdict.repriced is None


def test_on_a_cpu_too_much_memory_fails() -> None:
    asked = t.cpu_subject()
    held = asked.predicted.memory
    assert held is not None
    much = t.memory(held.reserved_bytes.mid * 1.5, 2, num_alloc_retries=None, num_ooms=None)
    verdict = judge(asked, t.cpu_result(asked, memory=much))
    assert check(verdict, "peak memory reserved").passed is False


# ------------------------------------------------------------------------------------ limits and sizes


def test_every_fixed_limit_has_a_value_a_source_and_a_date() -> None:
    text = files("planner").joinpath("data/probe_limits.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["name"] for row in rows] == sorted(
        {row["name"] for row in rows}, key=[r["name"] for r in rows].index
    )
    assert {row["name"] for row in rows} == set(get_args(LimitName))
    for row in rows:
        assert limit(row["name"]) == float(row["value"])  # type: ignore[arg-type]
        assert row["unit"]
        assert row["source"]
        date.fromisoformat(row["source_date"])


def test_fp32_has_no_bound_on_its_own_loss() -> None:
    assert limits.loss_bound("fp32") is None


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(dp=4), {("all_reduce", "gradient bucket")}),
        (
            Layout(dp=4, zero_stage=3),
            {("all_gather", "parameters of a layer"), ("reduce_scatter", "gradients of a layer")},
        ),
        (
            Layout(tp=4),
            {("all_gather", "activations of a layer"), ("reduce_scatter", "activations of a layer")},
        ),
        (Layout(tp=4, sequence_parallel=False), {("all_reduce", "activations of a layer")}),
        (Layout(pp=4, grad_accum=4), {("send_recv", "activations to a stage")}),
        (Layout(), set()),
    ],
)
def test_the_plans_own_collectives_follow_from_its_layout(
    layout: Layout, expected: set[tuple[str, str]]
) -> None:
    assert {(own.op, own.purpose) for own in own_collectives(t.run(layout))} == expected


def test_a_gradient_bucket_is_no_larger_than_all_gradients() -> None:
    small = t.cpu_subject().run
    (bucket,) = own_collectives(small)
    assert bucket.bytes == 25 * 2**20
    tiny = small.model_copy(
        update={"model": small.model.model_copy(update={"num_layers": 1, "vocab_size": 64})}
    )
    (bucket,) = own_collectives(tiny)
    assert bucket.bytes == 4 * num_params(tiny, 1)
