"""The probe's job on real Ray: two CPU workers over gloo, whole and in every way that it can end early."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.probe import spec
from clusters.probe.model import count_on_meta
from planner.types import Layout, ModelSpec, TrainingSpec
from planner.verdict import cpu

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TINY = {
    "name": "tiny",
    "num_layers": 4,
    "hidden_size": 64,
    "num_heads": 4,
    "num_kv_heads": 4,
    "head_dim": 16,
    "ffn_size": 128,
    "vocab_size": 256,
}
# 25 M parameters: what is held is mostly the plan's, not code that was loaded
LARGE = {
    "name": "25M",
    "num_layers": 6,
    "hidden_size": 512,
    "num_heads": 8,
    "num_kv_heads": 8,
    "head_dim": 64,
    "ffn_size": 1536,
    "vocab_size": 4096,
}
ROOM = 120 * 2**20
WITHIN = 0.15


def plan(model: dict, **layout) -> dict:
    training = {"seq_len": 128, "precision": "fp32"}
    return {"run": {"model": model, "training": training, "layout": {"dp": 2, **layout}}}


def params(model: dict) -> int:
    return count_on_meta(spec.read_plan(plan(model)))


def asked(plan_: dict, *phases: str, **more) -> dict:
    return {
        "request": {
            "plan": plan_,
            "use_gpu": False,
            "num_workers": 2,
            "phases": phases,
            "max_collective_bytes": 2**16,
            "collectives_s": 60.0,  # of sizes that take a second: enough on a busy machine
            "probe_timeout_s": 300.0,
            **more,
        }
    }


CASES = {
    "whole": asked(
        plan(TINY),
        "hardware",
        "collectives",
        "memory",
        "steps",
        num_params=params(TINY),
        scale="2",
        check_precision=True,
        collectives=[{"op": "all_reduce", "bytes": 4096, "purpose": "gradient bucket"}],
    ),
    "ddp": asked(plan(LARGE, micro_batch=2), "memory"),
    "fsdp": asked(plan(LARGE, micro_batch=2, zero_stage=3), "memory"),
    "no memory": asked(plan(LARGE, micro_batch=2), "memory", memory_limit_bytes=ROOM),
    "wrong": asked(plan(TINY), "collectives", "steps", num_params=params(TINY) + 1) | {"spoilt": True},
    "killed": asked(plan(TINY), "memory", "steps", entrypoint="loops:trains_then_dies"),
    # the last one: its worker group is left to the end of Ray's job
    "late": asked(plan(TINY), "steps", entrypoint="loops:sleeps", probe_timeout_s=30.0),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    home = tmp_path_factory.mktemp("home")
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": f"{HERE}:{ROOT}", "TMPDIR": str(home)}
    done = subprocess.run(
        [sys.executable, str(HERE / "ray_cases.py")],
        input=json.dumps(CASES),
        capture_output=True,
        text=True,
        timeout=900,
        env=environment,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    left = [path.name for path in home.iterdir() if path.name.startswith("plan-probe-")]
    return json.loads(done.stdout.splitlines()[-1]) | {"left": left}


def only_failure(result: dict) -> dict:
    assert len(result["failures"]) == 1, result["failures"]
    return result["failures"][0]


# ------------------------------------------------------------------------------------------- the whole


def test_a_probe_measures_every_phase_on_every_rank(found):
    whole = found["whole"]
    assert whole["failures"] == []
    assert [each["rank"] for each in whole["hardware"]] == [0, 1]
    assert [each["rank"] for each in whole["memory"]] == [0, 1]
    assert all(each["reserved_bytes"] > 0 for each in whole["memory"])
    assert len(whole["steps"]["median_s_by_rank"]) == 2
    assert {"start", "memory", "steps"} <= set(whole["phase_s"])


def test_every_sum_was_right_and_the_plans_own_size_is_among_them(found):
    timings = found["whole"]["collectives"]
    assert all(each["correct"] for each in timings)
    assert [each["bytes"] for each in timings if each["purpose"] == "gradient bucket"] == [4096]


def test_a_cut_model_is_run_at_two_depths_and_says_so(found):
    whole = found["whole"]
    assert whole["num_layers"] == 2
    assert [each["num_layers"] for each in whole["depths"]] == [1, 2]
    assert whole["num_params"] == params({**TINY, "num_layers": 2})
    assert whole["depths"][1]["memory"] == whole["memory"]


def test_steps_are_at_least_six_and_their_loss_falls(found):
    steps = found["whole"]["steps"]
    assert len(steps["seconds"]) == 6
    assert steps["loss"][-1] < steps["loss"][0]
    assert steps["loss"][0] == pytest.approx(math.log(TINY["vocab_size"]), rel=0.05)
    assert steps["tokens_per_step"] == 2 * 128


def test_both_precisions_start_from_the_same_weights(found):
    check = found["whole"]["precision"]
    assert check["loss_fp32"] == pytest.approx(check["loss"], rel=1e-5)


# ------------------------------------------------------------------------------------- peak memory


@pytest.mark.parametrize(("name", "zero_stage"), [("ddp", 0), ("fsdp", 3)])
def test_peak_memory_is_what_the_planner_predicts(found, name, zero_stage):
    run = cpu.run(
        ModelSpec(**LARGE),
        TrainingSpec(seq_len=128, precision="fp32"),
        Layout(dp=2, micro_batch=2, zero_stage=zero_stage),
    )
    predicted = cpu.estimate(run).memory.allocated_bytes.mid
    for rank in found[name]["memory"]:
        assert rank["reserved_bytes"] == pytest.approx(predicted, rel=WITHIN)


def test_sharded_weights_are_seen_to_take_less(found):
    whole, sharded = (found[name]["memory"][0]["reserved_bytes"] for name in ("ddp", "fsdp"))
    assert sharded < 0.8 * whole


# ------------------------------------------------------------------------------------ how it ends early


def test_a_rank_without_memory_says_what_it_asked_for_and_what_was_free(found):
    for failure in found["no memory"]["failures"]:
        assert (failure["kind"], failure["phase"]) == ("oom", "memory")
        assert failure["rank"] in (0, 1)
        assert failure["bytes_asked"] > 0
        assert 0 <= failure["bytes_free"] <= ROOM
    assert found["no memory"]["failures"]
    assert found["no memory"]["memory"] == []


def test_a_model_of_another_size_ends_the_probe_and_keeps_what_came_before(found):
    result = found["wrong"]
    assert only_failure(result)["kind"] == "wrong-count"
    assert f"{params(TINY):,}" in only_failure(result)["message"]
    assert result["collectives"]
    assert result["steps"] is None


def test_a_rank_that_is_left_with_wrong_sums_is_named(found):
    sums = [each for each in found["wrong"]["collectives"] if each["op"] == "all_reduce"]
    assert sums
    assert all(not each["correct"] and each["wrong_ranks"] == [1] for each in sums)


def test_a_worker_that_is_killed_in_a_users_loop_is_lost_with_rank_and_node(found):
    failure = only_failure(found["killed"])
    assert (failure["kind"], failure["phase"], failure["rank"]) == ("worker-lost", "steps", 1)
    assert failure["node"]


def test_memory_of_a_users_loop_is_kept_when_its_steps_fail(found):
    assert [each["rank"] for each in found["killed"]["memory"]] == [0, 1]
    assert found["killed"]["steps"] is None
    assert found["killed"]["num_params"] is None


def test_a_loop_that_never_ends_is_left_at_the_deadline(found):
    assert only_failure(found["late"])["kind"] == "timeout"
    assert "30 s were over" in only_failure(found["late"])["message"]
    assert found["late"]["steps"] is None


def test_nothing_of_a_probe_is_left(found):
    assert found["left"] == []
    home = found["home"]
    assert not Path(home).exists()
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [command for command in commands if home.encode() in command]
