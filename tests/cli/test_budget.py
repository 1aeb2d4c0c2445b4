"""``plan budget``: set, list, forget; owners are told once a threshold, and never of a secret."""

import json
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
import responses
import time_machine

from clusters.ledger.store import Ledger
from planner.cli import budgets, main
from planner.errors import UserError
from planner.results import Plan
from tests.cli.conftest import choices
from tests.planner.report_tools import BEGUN, HOUR, launch

PLAN = Plan(id="p-00000001", created=BEGUN, command="plan suggest", candidate=choices()[0])
SPENT_50 = BEGUN + 5 * HOUR


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    kept = Ledger(tmp_path, scrub=str)
    kept.begin(launch(PLAN, ("planned", 0.0), ("creating", 0.0), project="alpha", budget_usd="60"), {})
    return tmp_path


def run(*arguments: str, at: datetime = SPENT_50) -> int:
    with time_machine.travel(at, tick=False):
        return main.run(["budget", *arguments])


def test_a_budget_is_set_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("set", "project=alpha", "5000", "--per", "month") == 0
    assert "$50 of $5,000 spent this month (1 %), $4,940 left" in capsys.readouterr().out
    assert run("ls", "--json") == 0
    row = json.loads(capsys.readouterr().out)["budgets"][0]
    assert (row["project"], row["spent_usd"], row["committed_usd"]) == ("alpha", "50.0000", "10.0000")


def test_budget_alone_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr().out.startswith("No budget is set.")


def test_setting_again_keeps_who_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    run("set", "alpha", "5000", "--command", "echo")
    run("set", "alpha", "6000")
    found = budgets.known("alpha")
    assert (found.usd, found.command) == (6000, "echo")


def test_removing_forgets_it(capsys: pytest.CaptureFixture[str]) -> None:
    run("set", "alpha", "5000")
    assert run("rm", "project=alpha") == 0
    assert budgets.all_budgets() == ()


def test_a_project_leaves_a_run_no_more_than_it_has() -> None:
    run("set", "alpha", "100")
    assert budgets.within(Decimal(200), "alpha", SPENT_50) == 40
    assert budgets.within(Decimal(30), "alpha", SPENT_50) == 30
    assert budgets.within(None, "alpha", SPENT_50) == 40
    assert budgets.within(Decimal(200), None, SPENT_50) == 200


def test_suggest_for_a_project_searches_within_what_it_has_left(capsys: pytest.CaptureFixture[str]) -> None:
    run("set", "alpha", "100")
    capsys.readouterr()
    with time_machine.travel(SPENT_50, tick=False):
        main.run(["suggest", "--params", "100M", "--project", "alpha", "--json"])
    assert json.loads(capsys.readouterr().out)["budget_usd"] == "40.0000"


def test_nothing_left_is_an_error_and_not_a_budget_of_zero() -> None:
    run("set", "alpha", "55")
    with pytest.raises(UserError, match="nothing is left"):
        budgets.within(None, "alpha", SPENT_50)


def test_the_command_gets_one_sentence_once_a_threshold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "told.txt"
    script = tmp_path / "tell.py"
    script.write_text(f"import sys; open({str(told)!r}, 'a').write(sys.argv[1] + '\\n')")
    run("set", "alpha", "80", "--command", f"{sys.executable} {script}")
    for _ in range(2):
        run("check")
    run("check", at=BEGUN + 7 * HOUR)
    lines = told.read_text().splitlines()
    assert ["(62 %)" in lines[0], "(88 %)" in lines[1], len(lines)] == [True, True, 2]


@responses.activate
def test_an_address_is_called_and_its_failure_is_said_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "https://hooks.example.com/T0K3N"
    responses.post(secret, status=500)
    run("set", "alpha", "60", "--webhook", secret)
    capsys.readouterr()
    run("check")
    out = capsys.readouterr().out
    assert json.loads(responses.calls[0].request.body)["text"].startswith("project alpha")
    assert "the alert address failed (HTTPError)" in out
    assert "T0K3N" not in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["set", "project=", "5"], "names no project"),
        (["set", "team=alpha", "5"], "names no project"),
        (["set", "alpha", "--", "-5"], "negative"),
        (["set", "alpha", "0"], "too small"),
        (["set", "alpha", "5", "--per", "week"], "--per"),
        (["set", "alpha", "5", "--webhook", "hooks.example.com"], "--webhook"),
        (["rm", "beta"], "no budget of project"),
    ],
)
def test_bad_input_ends_in_one_message(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert run(*arguments) == 2
    assert says in capsys.readouterr().err


def test_budgets_that_cannot_be_read_are_never_none(data: Path) -> None:
    (data / "budgets.json").write_text("{broken")
    with pytest.raises(UserError, match="cannot be read"):
        budgets.all_budgets()
