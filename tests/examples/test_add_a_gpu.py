"""The worked example of a new GPU: its rows put where they belong in a copy of the project."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "add_a_gpu"
TABLES = {
    "gpus.csv": "planner/data",
    "efficiency_gemm.csv": "planner/data",
    "names.csv": "providers/data",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of the project with the GPU of the example."""
    copy = tmp_path_factory.mktemp("project")
    unwanted = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("planner", "providers", "clusters", "tests/planner"):
        shutil.copytree(ROOT / name, copy / name, ignore=unwanted)
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / name, copy / name)
    for name, where in TABLES.items():
        table = copy / where / name
        head, *rows = table.read_text(encoding="utf-8").splitlines()
        added = (EXAMPLE / name).read_text(encoding="utf-8").splitlines()
        table.write_text("\n".join([head, *sorted([*rows, *added]), ""]), encoding="utf-8")
    return copy


def python_in(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(project), "PLAN_DATA_DIR": str(project / "data")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )


def plan_in(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python_in(project, "-c", "from planner.cli.main import main; main()", *words)


def test_it_passes_the_tests_that_look_after_all_gpus(project: Path):
    files = [f"tests/planner/test_{name}.py" for name in ("gpus", "efficiency")]
    options = ["-p", "no:cacheprovider", "-rA", "-k", "every or row or known or Zeus"]
    done = python_in(project, "-m", "pytest", *options, *files)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Zeus Z48" in done.stdout


def test_it_is_listed_and_an_estimate_is_made_for_it(project: Path):
    listed = plan_in(project, "gpus", "Zeus", "--json")
    (card,) = json.loads(listed.stdout)["gpus"]
    assert card["usable_memory_bytes"] == 47 * 2**30
    asked = ("estimate", "--params", "1B", "--gpu", "NVIDIA Zeus Z48", "--json")
    answer = json.loads(plan_in(project, *asked).stdout)
    assert answer["shape"]["gpu"] == "Zeus Z48"
    assert answer["memory"]["usable_gib"] == pytest.approx(47.0)
    assert 0.2 < answer["speed"]["mfu"] < 0.9


def test_the_project_does_not_know_it_without_its_row():
    done = plan_in(ROOT, "gpus", "Zeus Z48")
    assert done.returncode == 2
    assert "unknown GPU" in done.stderr


def test_the_measured_row_is_what_its_matrix_multiplies_rest_on(project: Path):
    script = (
        "from planner.hardware.efficiency import basis\n"
        "from planner.hardware.gpus import gpu_index\n"
        "print(basis(gpu_index('Zeus Z48'), 'bf16'), basis(gpu_index('Zeus Z48'), 'fp32'))"
    )
    assert python_in(project, "-c", script).stdout.split() == ["measured", "assumed"]


def test_its_readme_names_every_file_of_the_example():
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    names = [p.name for p in EXAMPLE.iterdir() if p.name not in ("README.md", "__pycache__")]
    assert sorted(names) == sorted(TABLES)
    assert all(f"`{name}`" in readme for name in names)
