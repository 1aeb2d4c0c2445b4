"""What the README shows is what one gets."""

import re
from pathlib import Path

from planner.api import estimate
from planner.runs import parse_line

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_example_runs_and_finds_something(capsys):
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})
    assert "ok " in capsys.readouterr().out


def test_the_run_descriptions_are_those_of_the_example_file_and_are_answered():
    (shown,) = blocks("json")
    lines = (ROOT / "examples" / "runs.jsonl").read_text(encoding="utf-8")
    assert shown == lines
    assert len(estimate([parse_line(line) for line in lines.splitlines()])) == 2


def test_every_file_that_it_names_is_there():
    named = re.findall(r"`((?:planner|providers|clusters|tests|examples)/[\w./]+)`", README)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []
