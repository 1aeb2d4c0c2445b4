"""A launch on this machine from end to end, without root: up, probe, ten steps of the example, down."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

from clusters import watchdog

PLAN = Path(sys.executable).with_name("plan")
EXAMPLE = Path(__file__).parents[3] / "examples/train_gpt"
SECRET = "planted/secret+of+somebody/0123456789abcd"
STEPS = 10
TINY = """\
num_layers: 4
hidden_size: 128
num_heads: 4
num_kv_heads: 2
head_dim: 32
ffn_size: 352
vocab_size: 256
tied_embeddings: true
"""


class Done:
    """What the commands said: of the launch, of ``plan ls`` while it runs, of ``plan down``."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.data = where / "data"
        (where / "tiny.yaml").write_text(TINY)
        words = f"suggest --spec {where}/tiny.yaml --tokens 1M --seq-len 128 --precision fp32 --max-gpus 2"
        layout = "--dp 2 --mbs 4 --grad-accum 2 --zero 3 --quiet"
        plan_id = self.run(*words.split(), *layout.split()).stdout.split()[0]
        train = f"python train.py --steps {STEPS} --address auto --name tiny --storage {where}/runs"
        self.launched = self.run(
            "launch", plan_id, "--provider", "local", "--yes", "--then", train, "--json", cwd=EXAMPLE
        )
        self.events = [json.loads(line) for line in self.launched.stdout.splitlines()]
        self.launch_id = str(self.events[-1]["launch_id"])
        self.alive = watchdog.marked(self.launch_id)
        began = time.monotonic()
        self.down = self.run("down", self.launch_id, "--json")
        self.down_s = time.monotonic() - began
        self.again = self.run("down", self.launch_id)

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PLAN_DATA_DIR": str(self.data),
            "PLAN_CACHE_DIR": str(self.where / "cache"),
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        return subprocess.run(
            [PLAN, *words], env=environment, cwd=cwd or self.where, text=True, capture_output=True,
            timeout=500, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    found = Done(tmp_path_factory.mktemp("launch"))
    yield found
    watchdog.end_marked(found.launch_id)


def test_it_goes_through_every_state_up_to_commit(done: Done):
    assert done.launched.returncode == 0, done.launched.stderr[-3000:]
    states = list(dict.fromkeys(event["state"] for event in done.events))
    assert states[:8] == [
        "planned", "preflight", "confirmed", "creating", "up", "probing", "verdict", "committed",
    ]  # fmt: skip
    assert done.events[-1]["outcome"] == "committed"


def test_the_full_run_trained_ten_steps_and_its_log_was_followed(done: Done):
    assert f"step {STEPS} " in done.launched.stderr
    assert f'"steps_done": {STEPS}' in done.launched.stderr


def test_down_leaves_nothing_and_may_be_repeated(done: Done):
    assert done.down.returncode == 0, done.down.stderr
    assert json.loads(done.down.stdout.splitlines()[-1])["resources_left"] == []
    assert done.again.returncode == 0
    assert watchdog.marked(done.launch_id) == []
    assert not Path(f"/tmp/plan-ray-{done.launch_id}").exists()


def test_nothing_is_billed(done: Done):
    assert {Decimal(event["spent_usd"] or 0) for event in done.events} == {Decimal(0)}


def test_no_secret_stands_in_any_file_or_output(done: Done):
    said = done.launched.stdout + done.launched.stderr + done.down.stdout + done.down.stderr
    assert SECRET not in said
    for path in done.data.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.benchmark
def test_seconds_by_state(done: Done):
    entered = {event["state"]: datetime.fromisoformat(event["time"]) for event in reversed(done.events)}
    states = sorted(entered, key=entered.__getitem__)
    for state, then in pairwise(states):
        print(f"{state:12} {(entered[then] - entered[state]).total_seconds():6.1f} s")
