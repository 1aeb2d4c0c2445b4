"""How long a command takes from process start: best of five, printed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def best_of_five_s(arguments: list[str], data_dir: Path) -> float:
    program = "import sys; from planner.cli.main import main; sys.argv[0] = 'plan'; main()"
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "PLAN_DATA_DIR": str(data_dir)},
            check=True,
        )
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.benchmark
@pytest.mark.parametrize(
    ("command", "goal_s"),
    [
        ("--help", 0.25),
        ("suggest --params 1B --budget 200", 1.0),
        ("estimate --params 1B --gpu H100-SXM5-80GB --gpus 8", 1.0),
    ],
)
def test_command_is_quick(
    command: str, goal_s: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken_s = best_of_five_s(command.split(), tmp_path)
    with capsys.disabled():
        print(f"\nplan {command}: {taken_s:.2f} s from process start (goal {goal_s:.2f} s)")
    assert taken_s > 0
