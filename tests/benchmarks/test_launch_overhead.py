"""What ``plan launch`` adds to Ray's own commands: printed, nothing about time asserted.

The same ten steps on this machine, once through every state of a launch, once as Ray's manual says:
``ray start --head``, ``ray job submit``. Preflight, probe and verdict are what Ray does not have.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from clusters import watchdog
from clusters.backend import here
from tests.clusters.clouds.test_local_launch import EXAMPLE, STEPS, Done

pytestmark = [pytest.mark.benchmark, pytest.mark.enable_socket]
RAY = [sys.executable, "-m", "ray.scripts.scripts"]


def test_overhead_of_a_launch_over_bare_ray(tmp_path: Path):
    bare = bare_seconds(tmp_path)
    spent = plan_seconds(tmp_path)
    own = sum(spent[state] for state in ("creating", "up", "committed", "down"))
    print(f"\n{'bare ray':12} {sum(bare.values()):6.1f} s   {told(bare)}")
    print(f"{'plan':12} {own:6.1f} s   {told(spent)}")
    print(
        f"{'plan adds':12} {own - sum(bare.values()):6.1f} s to start, job and end; its checks are the rest"
    )
    assert own > 0


def told(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {s:.1f}" for name, s in seconds.items())


def plan_seconds(where: Path) -> dict[str, float]:
    """Seconds in each state, and of ``plan down``."""
    began = time.monotonic()
    done = Done(where)
    whole = time.monotonic() - began
    watchdog.end_marked(done.launch_id)
    assert done.launched.returncode == 0, done.launched.stderr[-3000:]
    entered = {e["state"]: datetime.fromisoformat(e["time"]) for e in reversed(done.events)}
    states = sorted(entered, key=entered.__getitem__)
    spent = {s: (entered[then] - entered[s]).total_seconds() for s, then in pairwise(states)}
    last = datetime.fromisoformat(done.events[-1]["time"])
    spent[states[-1]] = (last - entered[states[-1]]).total_seconds()
    assert sum(spent.values()) < whole
    return spent | {"down": done.down_s}


def bare_seconds(where: Path) -> dict[str, float]:
    """Seconds of Ray's own commands."""
    ray_id = here.new_id()
    train = f"python train.py --steps {STEPS} --address auto --name bare --storage {where}/runs"
    port, client, agent = here._free_ports(3)
    environment = here._environment(ray_id, where / "none", where) | {"RAY_AUTH_MODE": "disabled"}
    start = [*RAY, "start", "--head", "--port=0", f"--dashboard-port={port}", "--min-worker-port=0",
             "--max-worker-port=0", f"--ray-client-server-port={client}", f"--temp-dir=/tmp/bare-{ray_id}",
             f"--dashboard-agent-listen-port={agent}", "--num-cpus=2"]  # fmt: skip
    submit = [*RAY, "job", "submit", f"--address=http://127.0.0.1:{port}", f"--working-dir={EXAMPLE}", "--"]
    spent: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        spent[name] = time.monotonic() - began

    try:
        with timed("ray start"):
            run(start, environment)
        with timed("ray job submit"):
            run([*submit, *train.split()], environment)
    finally:
        with timed("end"):
            here.stop(ray_id)
            subprocess.run(["rm", "-rf", f"/tmp/bare-{ray_id}"], check=True)
    return spent


def run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, env={**os.environ, **environment}, text=True, capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
