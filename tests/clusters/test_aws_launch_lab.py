"""Launches on AWS from failover to nothing left: moto as EC2, namespaces as instances."""

import json
import os
import re
import subprocess
import sys
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.clusters import lab

WHY_NOT = lab.why_not()
ROOT = Path(__file__).parents[2]
PLAN = Path(sys.executable).with_name("plan")
SECRET = "planted/secret+of+somebody/0123456789abcd"
STEPS = 10
TINY = """\
num_layers: 2
hidden_size: 64
num_heads: 4
num_kv_heads: 2
head_dim: 16
ffn_size: 176
vocab_size: 256
tied_embeddings: true
"""
SUGGEST = (
    "suggest --tokens 1M --seq-len 128 --precision fp32 --provider aws --gpu L40S --region us-west-2"
    " --market on-demand --max-gpus 2 --dp 2 --mbs 4 --grad-accum 2 --zero 3 --no-calibration --quiet"
)
WHOLE, ALL = "whole", "whole,dies_mid_probe,dies_mid_run,preempted,bare"
LONG = bool(os.environ.get("PLAN_LONG_LABS"))
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
long = pytest.mark.skipif(
    not LONG, reason="all launches take a quarter of an hour: PLAN_LONG_LABS=1 runs them"
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the launches of one lab saw: one that goes well, and with ``PLAN_LONG_LABS`` those that do not."""
    where = tmp_path_factory.mktemp("lab")
    write_plan(where)
    done = subprocess.run(
        ["env", f"WANDB_API_KEY={SECRET}",
         "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
         sys.executable, "-m", "tests.clusters.lab_aws_launch", str(where), ALL if LONG else WHOLE],
        cwd=ROOT, text=True, capture_output=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found: dict = json.loads(done.stdout.splitlines()[-1])
    found["files"] = [p for p in (where / "data").rglob("*") if p.is_file()]
    return found


def write_plan(where: Path) -> None:
    """Two machines of one GPU, in a region that turns out to have none."""
    (where / "tiny.yaml").write_text(TINY)
    made = subprocess.run(
        ["env", f"PLAN_DATA_DIR={where}/data", f"PLAN_CACHE_DIR={where}/cache", PLAN, *SUGGEST.split(),
         "--spec", str(where / "tiny.yaml")],
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    plan_id = made.stdout.split()[0]
    (where / "plan.json").write_text((where / f"data/plans/{plan_id}.json").read_text())


def states(trial: dict) -> list[str]:
    """States of the launch that came as far as the last."""
    last = trial["finished"]["launch_id"]
    return list(dict.fromkeys(e["state"] for e in trial["events"] if e["launch_id"] == last))


# ------------------------------------------------------------------------------------- failover


def test_a_region_without_machines_is_left_for_the_next_candidate_named_with_its_price(seen: dict):
    said = [line for line in seen["whole"]["said"] if line.startswith("next candidate: ")]
    assert len(said) == 1
    assert "2 × aws g6e.xlarge in us-east-1, on-demand, " in said[0]
    assert said[0].endswith(" a node")
    told = [
        e["detail"] for e in seen["whole"]["events"] if e["state"] == "creating" and "attempt" in e["detail"]
    ]
    assert list(dict.fromkeys(d.split(" in ")[1][:9] for d in told)) == ["us-west-2", "us-east-1"]
    assert seen["whole"]["asked_for"] == ["us-west-2"]  # the second is no dearer than what was confirmed


def test_a_full_zone_is_left_for_the_next_and_half_a_cluster_is_released(seen: dict):
    told = [e["detail"] for e in seen["whole"]["events"] if e["state"] == "creating"]
    tries = [d for d in told if "attempt" in d and "us-east-1" in d]
    assert [d.split(" in ")[1].split(",")[0] for d in tries] == ["us-east-1a", "us-east-1b", "us-east-1c"]
    assert any("no capacity in us-east-1b" in d for d in told), told
    assert (
        seen["whole"]["ground"]["zones"] == ["us-east-1c"] * 2
    )  # the head that stood in b had been released


# ------------------------------------------------------------------------------------- the whole way


def test_a_launch_goes_through_every_state_up_to_commit(seen: dict):
    assert seen["whole"]["finished"]["exit_code"] == 0, seen["whole"]["finished"]
    assert seen["whole"]["finished"]["outcome"] == "committed"
    assert states(seen["whole"])[:8] == [
        "planned", "preflight", "confirmed", "creating", "up", "probing", "verdict", "committed",
    ]  # fmt: skip


def test_every_check_before_the_bill_passes(seen: dict):
    checks = [line for line in seen["whole"]["said"] if line.startswith("check ")]
    assert checks
    assert all(": True " in line for line in checks), checks


def test_the_full_run_trained_ten_steps_and_its_log_was_followed(seen: dict):
    said = "\n".join(seen["whole"]["said"])
    assert f"step {STEPS} " in said
    assert f'"steps_done": {STEPS}' in said


def test_down_leaves_nothing_and_may_be_repeated(seen: dict):
    trial = seen["whole"]
    assert (trial["down"]["exit_code"], trial["down"]["outcome"]) == (0, "torn_down")
    assert (trial["again"], trial["state"]) == (0, "gone")
    assert set(trial["left"]["states"]) == {"terminated"}
    assert trial["left"]["things"] == []


# ------------------------------------------------------------------------------------- power


@long
def test_a_host_without_power_in_the_probe_fails_it_and_everything_goes(seen: dict):
    trial = seen["dies_mid_probe"]
    assert trial["killed"][-1].startswith("i-"), trial["killed"]
    assert trial["finished"]["exit_code"] == 5
    assert trial["finished"]["outcome"] == "torn_down"
    assert "probe" in trial["finished"]["message"]
    assert "committed" not in states(trial)
    assert set(trial["left"]["states"]) == {"terminated"}
    assert trial["left"]["things"] == []


@long
def test_a_host_without_power_in_the_run_fails_its_job_and_down_leaves_nothing(seen: dict):
    trial = seen["dies_mid_run"]
    assert trial["killed"][-1].startswith("i-"), trial["killed"]
    assert trial["finished"]["exit_code"] == 1
    assert trial["finished"]["outcome"] == "committed"
    assert f"job {trial['finished']['launch_id']} failed" in trial["finished"]["message"]
    assert (trial["down"]["exit_code"], trial["down"]["left"]) == (0, [])
    assert set(trial["left"]["states"]) == {"terminated"}
    assert trial["left"]["things"] == []


@long
def test_a_head_ends_every_machine_by_itself_once_the_budget_is_spent(seen: dict):
    assert set(seen["dies_mid_run"]["ended_by_head"]) == {"terminated"}


# ------------------------------------------------------------------------------------- spot


@long
def test_a_spot_run_whose_machine_was_taken_goes_on_from_its_checkpoint_on_a_rebuilt_cluster(seen: dict):
    trial = seen["preempted"]
    assert trial["taken"][0].startswith("i-")
    assert trial["finished"]["exit_code"] == 0, trial["finished"]
    told = [e["state"] for e in trial["events"]]
    assert told.count("committed") >= 2
    steps = [int(n) for line in trial["said"] for n in re.findall(r"\bstep (\d+)  loss", line)]
    (again,) = [now for before, now in pairwise(steps) if now != before + 1]
    assert steps[0] == 1
    assert again == 11  # after its checkpoint: neither from the first step nor from where the machine went
    assert steps[-1] == 30


@long
def test_work_lost_to_a_taken_machine_is_counted(seen: dict):
    (lost,) = seen["preempted"]["lost"]
    assert lost["steps"] >= 2
    assert lost["seconds"] > 0
    assert "machines are gone" in lost["why"]
    assert set(seen["preempted"]["left"]["states"]) == {"terminated"}
    assert seen["preempted"]["left"]["things"] == []


# ------------------------------------------------------------------------------------- rights


def test_nobody_but_the_caller_reaches_port_22_and_nobody_any_other(seen: dict):
    groups = seen["whole"]["ground"]["groups"]
    rules = [rule for group in groups for rule in group["IpPermissions"]]
    launch = seen["whole"]["finished"]["launch_id"]
    ours = {g["GroupId"] for g in groups if {"Key": "plan-launch", "Value": launch} in g.get("Tags", [])}
    assert len(ours) == 1
    ranges = [(r["CidrIp"], rule["FromPort"], rule["ToPort"]) for rule in rules for r in rule["IpRanges"]]
    assert ranges == [("172.31.0.1/32", 22, 22)]
    assert [r for rule in rules for r in rule.get("Ipv6Ranges", [])] == []
    own = {pair["GroupId"] for rule in rules for pair in rule["UserIdGroupPairs"]}
    assert own == ours


def test_every_machine_asks_for_a_token_at_its_metadata_service(seen: dict):
    machines = seen["whole"]["ground"]["machines"]
    assert len(machines) == 2
    assert [m["MetadataOptions"]["HttpTokens"] for m in machines] == ["required"] * 2
    assert [m["MetadataOptions"]["HttpPutResponseHopLimit"] for m in machines] == [1] * 2


def test_disks_are_encrypted_and_tagged_and_end_with_their_machine(seen: dict):
    disks = seen["whole"]["ground"]["disks"]
    launch = seen["whole"]["finished"]["launch_id"]
    assert len(disks) == 2
    assert all(disk["Encrypted"] for disk in disks)
    assert [{t["Key"]: t["Value"] for t in d["Tags"]}["plan-launch"] for d in disks] == [launch] * 2
    machines = seen["whole"]["ground"]["machines"]
    assert all(disk["Ebs"]["DeleteOnTermination"] for m in machines for disk in m["BlockDeviceMappings"])


def test_the_heads_rights_are_the_calls_that_it_made_and_no_others(seen: dict):
    roles = seen["whole"]["ground"]["roles"]
    assert [len(r["attached"]) for r in roles.values()] == [0]
    allowed = {
        action
        for role in roles.values()
        for policy in role["inline"]
        for statement in policy["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert not any("*" in action for action in allowed)
    assert seen["calls"]["callers"], "no node was seen to call"
    assert set(seen["calls"]["callers"]) <= set(seen["calls"]["heads"])  # no worker has any right at all
    assert set(seen["calls"]["nodes"]) == allowed


def test_no_secret_stands_in_what_the_launches_wrote(seen: dict):
    assert len(seen["files"]) > 10
    assert [p for p in seen["files"] if SECRET.encode() in p.read_bytes()] == []
    assert SECRET not in json.dumps(seen, default=str)


# ------------------------------------------------------------------------------------- time


@long
@pytest.mark.benchmark
def test_seconds_by_state(seen: dict):
    trial = seen["whole"]
    launch = trial["finished"]["launch_id"]
    events = [
        (e["state"], datetime.fromisoformat(e["time"])) for e in trial["events"] if e["launch_id"] == launch
    ]
    for (state, begun), (_, ended) in pairwise(events):
        print(f"{state:12} {(ended - begun).total_seconds():6.1f} s")
    print(f"down         {trial['down_s']:6.1f} s")
    for what in ("up_s", "joined_s", "down_s"):
        print(f"bare ray {what:9} {seen['bare'][what]:6.1f}")
