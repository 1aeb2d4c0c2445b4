"""The script for the Python API: it runs, and what it prints are answers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "python_api.py"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path_factory.mktemp("elsewhere"),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_suggest_ranks_what_fits_the_budget(printed: list[str]):
    choices = [line for line in printed if line.startswith(("ok ", "tight "))]
    assert len(choices) == 3
    assert all(re.search(r"\dx \S.* \$\d+.*\(\d.*–\d.*\), \d.* (h|min)", line) for line in choices)


def test_estimate_says_how_one_card_and_eight_hold_it_and_what_a_change_would_do(printed: list[str]):
    one, eight = (line for line in printed if line.startswith("7B on"))
    assert "1x H100-SXM5-80GB" in one
    assert one.endswith(", fits, offload params+optimizer")
    assert eight.endswith(", fits, offload none")
    assert sum(line.startswith("   with ") for line in printed) == 3


def test_compare_says_from_which_use_owning_is_cheaper(printed: list[str]):
    assert re.match(
        r"RTX 4090: rented from \$0\.\d\d / h; owning is cheaper (above \d+ h|never)", printed[-1]
    )
