"""The emitted local cluster really starts: real sshd, real ``ray up``, hosts that are namespaces."""

import json
import re
import secrets
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clusters.config import emit, guards
from tests.clusters import lab, tools

WHY_NOT = lab.why_not()
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_a_local_cluster_starts_with_the_gpus_of_the_plan_and_ends_itself_without_ssh(tmp_path: Path):
    plan = tools.rented(nodes=2)
    choices = tools.choices(
        hosts=tools.HOSTS,
        ssh_user="root",
        ssh_key=str(tmp_path / "key"),
        auth_token=str(tmp_path / "auth_token"),
        preinstalled=True,
    )
    (tmp_path / "auth_token").write_text(secrets.token_hex(32))
    for file in emit.emit(plan, choices, "local"):
        (tmp_path / file.name).write_text(file.text)
    (tmp_path / "asked.json").write_text(
        json.dumps({"hosts": tools.HOSTS, "gpus_per_node": 8, "num_gpus": 16, "guard": guard()})
    )
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
         sys.executable, "-m", "tests.clusters.lab", str(tmp_path)],
        cwd=ROOT, text=True, capture_output=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["up"]["code"] == 0, seen["up"]["said"]
    assert seen["joined"]["nodes"] == 2, seen
    assert seen["joined"]["gpus"] == 16
    assert all(node["accelerator_type:H100"] == 1 for node in seen["joined"]["resources"])
    assert seen["down_after_sshd_was_gone"]
    assert seen["down"]["code"] == 0, seen["down"]["said"]


def guard() -> str:
    """The script that cloud-init runs, with a place for a deadline that is near."""
    now = datetime.now(UTC)
    script = guards.guard_script(tools.choices(made=now, deadline=now + timedelta(hours=1)), least_s=1)
    return re.sub(r"\$\(\( \d+ -", "$(( DEADLINE -", script)
