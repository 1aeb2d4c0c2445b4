"""The probe's job as a program: a bad request is told at once, before Ray or torch are loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting property name"),
        ('{"plan": {}, "use_gpu": false}', "no field 'num_workers'"),
        ('{"plan": {}, "use_gpu": false, "num_workers": 2}', "no run in this plan"),
        (None, "No such file"),
    ],
)
def test_a_bad_request_ends_with_one_line_and_1(tmp_path, text, said):
    path = tmp_path / "request.json"
    if text is not None:
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "clusters.probe.job", str(path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_reading_a_request_loads_neither_ray_nor_torch():
    code = "import sys, clusters.probe.job; print([m for m in ('ray', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]"
