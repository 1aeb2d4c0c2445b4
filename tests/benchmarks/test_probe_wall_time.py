"""How long ``plan probe`` alone takes on this machine, from process start, by phase: printed."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PLAN = Path(sys.executable).with_name("plan")
WARM_RUNS = 3
GOAL_S, COLD_GOAL_S = 90.0, 150.0


def probe_s(directory: Path) -> tuple[float, dict[str, float]]:
    """Seconds of one ``plan probe``, and of its phases."""
    start = time.perf_counter()
    done = subprocess.run(
        [str(PLAN), "probe", "--json"],
        cwd=directory,
        env={**os.environ, "PLAN_DATA_DIR": str(directory / "data")},
        capture_output=True,
        text=True,
        check=True,
    )
    taken = time.perf_counter() - start
    return taken, json.loads(done.stdout)["phase_s"]


@pytest.mark.benchmark
def test_probe_alone_takes_its_time_by_phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [probe_s(tmp_path) for _ in range(1 + WARM_RUNS)]
    warm = sorted(runs[1:], key=lambda run: run[0])
    middle_s, phases = warm[len(warm) // 2]
    around_s = middle_s - sum(phases.values())
    with capsys.disabled():
        print(f"\nplan probe: first run {runs[0][0]:.0f} s (goal {COLD_GOAL_S:.0f} s)")
        print(f"plan probe: median of {WARM_RUNS} warm runs {middle_s:.0f} s (goal {GOAL_S:.0f} s)")
        for name, taken in phases.items():
            print(f"  {name:12} {taken:6.1f} s")
        print(f"  {'around it':12} {around_s:6.1f} s   Ray's start, the job's start, the end")
    assert middle_s > 0
