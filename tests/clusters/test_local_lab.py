"""A launch on owned hosts really runs: real sshd, real ``ray up``, hosts that are namespaces."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clusters.config import guards
from tests.clusters import lab, tools

WHY_NOT = lab.why_not()
ROOT = Path(__file__).parents[2]
SECRET = "planted/secret+of+somebody/0123456789abcd"
CELLS = {"ssh unreachable": "unreachable", "setup fails": "setup", "node never joins": "not-joined"}
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What one launch on two hosts saw, from preflight until nothing is left."""
    where = tmp_path_factory.mktemp("lab")
    asked = {
        "hosts": tools.HOSTS,
        "gpus_per_node": 8,
        "plan": tools.rented(nodes=2).model_dump_json(),
        "guard": guard(),
        "cells": list(CELLS),
    }
    (where / "asked.json").write_text(json.dumps(asked))
    done = subprocess.run(
        ["env", f"AWS_SECRET_ACCESS_KEY={SECRET}",
         "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
         sys.executable, "-m", "tests.clusters.lab_hosts", str(where)],
        cwd=ROOT, text=True, capture_output=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "fault" not in found, found["fault"]
    return found


def test_preflight_looks_at_every_host(seen: dict):
    assert {c["name"] for c in seen["before"]} == {*(f"host {h}" for h in tools.HOSTS), "no such launch"}
    assert all(c["passed"] for c in seen["before"]), seen["before"]


def test_all_nodes_join_with_the_gpus_of_the_plan(seen: dict):
    assert (seen["created"]["num_nodes"], seen["created"]["num_gpus"]) == (2, 16)


def test_what_runs_is_found_on_each_host(seen: dict):
    assert {r["place"] for r in seen["found"]} == set(tools.HOSTS)
    assert not any(r["bills"] for r in seen["found"])
    assert seen["found_by_any"] == len(seen["found"]) + len(tools.HOSTS)  # another launch runs there too


def test_job_submission_answers_through_a_tunnel_to_whoever_has_the_token(seen: dict):
    assert seen["answers"]["with"] == 200
    assert seen["answers"]["without"] in (401, 403)


def test_the_deadline_is_moved_on_every_host(seen: dict):
    assert seen["moved"] == [True, True]


def test_nothing_is_left_and_nothing_else_is_touched(seen: dict):
    assert seen["left"] == []
    assert seen["files_left"] == [[], []]
    assert seen["decoys_alive"] == [True, True]


@pytest.mark.parametrize("cell", CELLS)
def test_a_fault_of_the_real_launcher_is_sorted_and_leaves_nothing(cell: str, seen: dict):
    found = seen["cells"][cell]
    assert found["kind"] == CELLS[cell], found
    assert found["log"]
    assert found["left"] == []


def test_no_secret_stands_in_what_the_launch_wrote(seen: dict):
    assert len(seen["log"]) > 1000
    assert SECRET not in json.dumps(seen)


def test_a_host_ends_itself_without_ssh_and_is_then_reported_as_unreachable(seen: dict):
    assert seen["down_after_sshd_was_gone"]
    assert seen["unreachable"] == "unreachable"


@pytest.mark.benchmark
def test_seconds_by_step(seen: dict):
    print(f"two namespace hosts, seconds by step: {seen['times']}")


def guard() -> str:
    """The script that cloud-init runs, with a place for a deadline that is near."""
    now = datetime.now(UTC)
    script = guards.guard_script(
        tools.choices(made=now, deadline=now + timedelta(hours=1)), tick_s=1, least_s=1, timer="/root/timer"
    )
    return re.sub(r"echo \d+ >", "echo DEADLINE >", script)
