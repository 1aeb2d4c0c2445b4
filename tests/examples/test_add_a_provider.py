"""The worked example of a new provider, put where it belongs in a copy of the project."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "add_a_provider"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of the project with the provider of the example."""
    copy = tmp_path_factory.mktemp("project")
    unwanted = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in ("planner", "providers", "tests/providers", "tests/payloads"):
        shutil.copytree(ROOT / name, copy / name, ignore=unwanted)
    for name in ("pyproject.toml", "tests/conftest.py"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy / name)
    shutil.copy(EXAMPLE / "acme.py", copy / "providers")
    shutil.copy(EXAMPLE / "test_acme.py", copy / "tests" / "providers")
    shutil.copytree(EXAMPLE / "payloads", copy / "tests" / "payloads" / "acme")
    for name in ("providers.csv", "payloads.csv"):
        table = copy / "providers" / "data" / name
        head, *rows = table.read_text(encoding="utf-8").splitlines()
        rows = sorted([*rows, *(EXAMPLE / name).read_text(encoding="utf-8").splitlines()])
        table.write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    return copy


def pytest_in(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_adapter_keeps_the_contract_and_is_looked_after_like_all_others(project: Path):
    done = pytest_in(
        project, "tests/providers/test_acme.py", "tests/providers/test_adapters.py", "-k", "acme", "-rA"
    )
    assert done.returncode == 0, done.stdout
    assert "test_acme.py::TestAcme::test_good_answers_keep_the_contract" in done.stdout
    assert "test_every_adapter_has_recorded_and_broken_answers[acme]" in done.stdout


def test_a_provider_whose_broken_answers_are_missing_is_noticed(project: Path, tmp_path: Path):
    kept = tmp_path / "string_price.json"
    missing = project / "tests" / "payloads" / "acme" / "string_price.json"
    shutil.move(missing, kept)
    done = pytest_in(project, "tests/providers/test_adapters.py", "-k", "acme")
    shutil.move(kept, missing)
    assert done.returncode == 1
    assert "test_every_adapter_has_recorded_and_broken_answers[acme]" in done.stdout


def test_its_readme_names_every_file_of_the_example():
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    names = [p.name for p in EXAMPLE.iterdir() if p.name not in ("README.md", "__pycache__")]
    assert names
    assert all(f"`{name}" in readme for name in names)
