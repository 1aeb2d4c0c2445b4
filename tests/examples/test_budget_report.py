"""``examples/budget_report``: its commands make a report, its workflow writes the comment it promises."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parents[2] / "examples" / "budget_report"
BIN = Path(sys.executable).parent


def shell(script: str, directory: Path, **environment: str) -> str:
    """Run lines of a shell as a user would, with nothing of this user's own."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=directory,
        env={
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PLAN_DATA_DIR": str(directory / "data"),
            "PLAN_CACHE_DIR": str(directory / "cache"),
            "HOME": str(directory),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report")
    command = re.search(r"```bash\n(.*?)```", (HERE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert command is not None
    shell(command[1], directory)
    return directory


def titles(page: Path) -> list[str]:
    return re.findall(r"<h2[^>]*>(.*?)</h2>", page.read_text(encoding="utf-8"))


def test_commands_of_the_readme_make_the_sample(made: Path) -> None:
    assert {p.name for p in made.glob("report.*")} == {"report.html", "report.md", "report.json"}
    assert titles(made / "report.html") == titles(HERE / "report.html")


def test_workflow_writes_the_cost_and_what_changed(made: Path, tmp_path: Path) -> None:
    workflow = yaml.safe_load((HERE / "plan-cost.yml").read_text(encoding="utf-8"))
    steps = {s.get("name"): s for s in workflow["jobs"]["cost"]["steps"]}
    shutil.copy(made / "plan.yaml", tmp_path / "plan.yaml")
    repository = "git init -q . && git config user.email a@b && git config user.name a && git add plan.yaml"
    base = shell(f"{repository} && git commit -qm base && git rev-parse HEAD", tmp_path).strip()
    shell("plan suggest --params 2B --budget 900 --provider lambda --out plan.yaml", tmp_path)
    shell(steps["Write the comment"]["run"], tmp_path, BASE=base)
    comment = (tmp_path / "comment.md").read_text(encoding="utf-8")
    assert comment.startswith("**Training 1.99 B on ")
    assert "What changed" in comment
    assert comment.count("<details") == comment.count("</details>")


def test_workflow_asks_for_no_more_rights_than_it_uses() -> None:
    workflow = yaml.safe_load((HERE / "plan-cost.yml").read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
