"""The emitted AWS cluster really starts: ``plan cluster``, ``ray up``, a worker that joins, ``ray down``."""

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli import store
from tests.clusters import lab, tools

WHY_NOT = lab.why_not()
ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")
def test_an_aws_cluster_starts_joins_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = tools.plan(nodes=1)
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path / "data"))
    store.save_shown([plan.candidate], "plan suggest", tools.NOW)
    (tmp_path / "auth_token").write_text(secrets.token_hex(32))
    (tmp_path / "asked.json").write_text(json.dumps({"plan": plan.id, "gpus_per_node": 4, "num_gpus": 4}))
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
         sys.executable, "-m", "tests.clusters.lab_aws", str(tmp_path)],
        cwd=ROOT, text=True, capture_output=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["plan"]["code"] == 0, seen["plan"]["said"]
    assert seen["up"]["code"] == 0, seen["up"]["said"]
    assert seen["joined"]["nodes"] == 2, seen
    assert seen["joined"]["gpus"] == 4
    assert seen["guarded"] == 2  # the deadline of each host is set before anyone could log in
    assert min(seen["setups"].values()) >= 1
    assert seen["down"]["code"] == 0, seen["down"]["said"]
    assert set(seen["left"]) == {"terminated"}
