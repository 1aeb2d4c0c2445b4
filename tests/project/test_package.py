"""What an installed wheel holds."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)],
        check=True,
        capture_output=True,
    )
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_wheel_holds_every_data_file(wheel):
    data = {
        str(p.relative_to(ROOT))
        for top in ("planner", "providers", "clusters")
        for p in (ROOT / top).rglob("*")
        if p.is_file() and p.suffix not in (".py", ".pyc")
    }
    assert data
    assert data <= set(wheel.namelist())


def test_the_wheel_brings_the_command_and_nothing_else_at_top_level(wheel):
    entry_points = next(n for n in wheel.namelist() if n.endswith("entry_points.txt"))
    assert "plan = planner.cli.main:main" in wheel.read(entry_points).decode()
    tops = {n.split("/")[0] for n in wheel.namelist() if "dist-info" not in n}
    assert tops == {"planner", "providers", "clusters"}
