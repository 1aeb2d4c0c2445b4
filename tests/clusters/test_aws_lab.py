"""A launch on AWS through Ray's own launcher: moto as EC2, namespaces as instances, workers by the head."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clusters import lab, tools

WHY_NOT = lab.why_not()
ROOT = Path(__file__).parents[2]
CELLS = {  # what RunInstances answers through the real launcher, and how it is sorted
    "no capacity": ("capacity", "InsufficientInstanceCapacity"),
    "quota": ("quota", "VcpuLimitExceeded"),
    "UnauthorizedOperation": ("permission", "UnauthorizedOperation"),
}
SECRET = "planted/secret+of+somebody/0123456789abcd"
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What one launch of a head and a GPU node saw, from preflight until nothing is left."""
    where = tmp_path_factory.mktemp("lab")
    asked = {"plan": tools.plan(nodes=1).model_dump_json(), "gpus_per_node": 4}
    (where / "asked.json").write_text(json.dumps(asked))
    done = subprocess.run(
        ["env", f"WANDB_API_KEY={SECRET}",
         "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
         sys.executable, "-m", "tests.clusters.lab_aws", str(where)],
        cwd=ROOT, text=True, capture_output=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "fault" not in found, found["fault"]
    found["log"] = (where / "launch/launcher.log").read_text()
    return found


def test_every_check_before_the_bill_passes(seen: dict):
    assert all(c["passed"] for c in seen["before"]), seen["before"]


@pytest.mark.parametrize("cell", CELLS)
def test_a_refusal_of_the_cloud_is_sorted_and_leaves_nothing_that_bills(cell: str, seen: dict):
    found, (kind, code) = seen["cells"][cell], CELLS[cell]
    assert found["kind"] == kind, found
    assert code in found["message"]
    assert found["log"]
    assert found["left"] == []


def test_throttled_calls_are_made_again_until_the_cluster_is_up(seen: dict):
    assert seen["throttled"] == 2
    assert seen["created"]["num_nodes"] == 1


def test_head_and_worker_start_and_the_gpus_of_the_plan_join(seen: dict):
    assert (seen["created"]["num_nodes"], seen["created"]["num_gpus"]) == (1, 4)
    assert seen["found"].count("instance") == 2  # the worker was started by the head, and carries the tag too
    assert seen["calls"] == 2
    assert min(seen["setups"].values()) >= 1


def test_every_machine_has_its_own_timer_before_anyone_could_log_in(seen: dict):
    assert seen["guarded"] == 2


def test_job_submission_answers_through_a_tunnel(seen: dict):
    assert seen["answers"] == 200


def test_an_extended_launch_moves_the_timer_of_every_machine(seen: dict):
    assert seen["timers"] == [seen["later"]] * 2


def test_nothing_is_left(seen: dict):
    assert seen["left"] == []
    assert set(seen["states"]) == {"terminated"}


def test_no_secret_stands_in_what_the_launch_wrote(seen: dict):
    assert len(seen["log"]) > 1000
    assert SECRET not in json.dumps(seen)


@pytest.mark.benchmark
def test_seconds_by_step(seen: dict):
    print(f"AWS on moto and namespace hosts, seconds by step: {seen['times']}")
