"""``plan report``: one report as a screen, JSON, CSV, Markdown and a page; bills; what plans differ in."""

import csv
import io
import json
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest
import time_machine
from syrupy.assertion import SnapshotAssertion

from clusters.ledger.store import Ledger
from planner.cli import main, store
from planner.cli.report import charts, html, markdown, screen
from planner.cli.text import Terminal
from planner.launched import Launch
from planner.report import Asked, report
from planner.report.nouns import Report
from planner.results import Dot, Plan
from tests.cli.conftest import choices
from tests.planner.report_tools import BEGUN, HOUR, check, launch, passed

RUNNING = (("planned", 0.0), ("creating", 1.0), ("up", 1.2), ("verdict", 1.4), ("committed", 1.5))
DONE = (*RUNNING, ("tearing_down", 11.0), ("gone", 11.0))
NOW = BEGUN + 6 * HOUR
PLANS = [Plan(id=c.id, created=BEGUN, command="plan suggest --params 1B", candidate=c) for c in choices()]
GIB = 2**30
CHECKS = (
    check("peak memory reserved", 36 * GIB, 37 * GIB, "bytes"),
    check("step time", 4.0, 4.2, "s"),
    check("AllReduce busbw", 200e9, 180e9, "bytes/s"),
)


def launches() -> tuple[Launch, ...]:
    return (
        launch(PLANS[1], *RUNNING, id="l-b", verdict=passed(400.0, *CHECKS), project="alpha"),
        launch(PLANS[0], *DONE, id="l-a", usd_per_hour=None),
    )


def made(*of: Launch, plans: list[Plan] = PLANS, field: tuple[Dot, ...] = ()) -> Report:
    asked = Asked(now=NOW, tool_version="1.2.3", budget_usd=Decimal(300), group_by="provider" if of else None)
    return report(asked, plans, of, field)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def ledger(data: Path) -> Ledger:
    kept = Ledger(data, scrub=str)
    for one in launches():
        kept.begin(one, {})
    return kept


def run(capsys: pytest.CaptureFixture[str], *arguments: str, at: datetime = NOW) -> tuple[int, str, str]:
    with time_machine.travel(at, tick=False):
        code = main.run(["report", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_screen_of_launches(snapshot: SnapshotAssertion) -> None:
    drawn = screen.draw(made(*launches()), Terminal())
    assert max(map(len, drawn.splitlines())) <= 100
    assert drawn == snapshot


def test_screen_of_plans(snapshot: SnapshotAssertion) -> None:
    assert screen.draw(made(), Terminal()) == snapshot


def test_markdown_for_a_pull_request(snapshot: SnapshotAssertion) -> None:
    text = markdown.text(made(*launches()))
    assert text.startswith("**")
    assert text.count("<details>") == text.count("</details>") > 3
    assert text == snapshot


def test_a_bar_in_a_name_does_not_break_a_markdown_table() -> None:
    field = (Dot(hours=1, usd=1, name="a | b", verdict="ok", reason=""),)
    line = next(row for row in markdown.text(made(field=field)).splitlines() if "a \\| b" in row)
    assert line.replace("\\|", "").count("|") == 6


def test_csv_has_one_row_a_run_and_leaves_unknown_empty(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "--format", "csv")
    rows = {r["launch_id"]: r for r in csv.DictReader(io.StringIO(out))}
    assert code == 0
    assert (rows["l-b"]["spent_usd"], rows["l-b"]["billed_usd"]) == ("50.0000", "")
    assert (rows["l-a"]["usd_per_hour"], rows["l-a"]["spent_is_complete"]) == ("", "false")


def test_json_follows_its_schema_and_the_contract(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--json", "--budget", "300")
    document = json.loads(out)
    main.run(["schema", "report"])
    jsonschema.validate(document, json.loads(capsys.readouterr().out))
    assert {"schema_version", "runs", "budget_usd", "spent_usd", "forecast_usd"} <= set(document)
    assert set(document["prediction_error"]) == {"time", "memory", "cost"}
    contract = (
        "plan_id launch_id state provider shape market hours usd_per_hour predicted_usd spent_usd billed_usd"
    )
    assert set(contract.split()) <= set(document["runs"][0])
    assert document["over_budget_on"] == "2026-11-21"


def test_page_is_the_same_bytes_for_the_same_report() -> None:
    assert html.page(made(*launches())) == html.page(made(*launches()))


def test_page_needs_nothing_from_anywhere() -> None:
    page = html.page(made(*launches()))
    assert "<script" not in page
    assert "<link" not in page
    addresses = {part for part in page.split('"') if part.startswith(("http://", "https://"))}
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not requests


def test_every_picture_has_its_table() -> None:
    page = html.page(made(*launches()))
    assert page.count("<figure>") == 6
    assert page.count("<figure>") == page.count("The same figures as a table")


def test_what_users_typed_is_escaped_in_the_page() -> None:
    evil = PLANS[0].model_copy(update={"command": "plan <script>alert(1)</script>"})
    assert "<script>" not in html.page(made(plans=[evil]))


def test_page_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(charts.UserError) as caught:
        html.page(made())
    assert caught.value.hint == "pip install 'plan[report]'"


def test_a_page_takes_markdown_and_json_along(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "--out", str(tmp_path / "r.html"))
    assert (code, out) == (0, "")
    assert [Path(line).name for line in err.splitlines()] == ["r.html", "r.md", "r.json"]
    assert json.loads((tmp_path / "r.json").read_text())["runs"]


def test_nothing_saved_is_said_and_makes_no_file(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert (code, out) == (0, "Nothing was planned or launched yet.\n")
    assert list(data.iterdir()) == []


def test_the_field_of_a_suggestion_comes_back(data: Path) -> None:
    dots = (Dot(hours=1.5, usd=2.5, name="x", verdict="over", reason="budget"),)
    store.save_field(PLANS, dots)
    assert store.field_of(PLANS[2].id) == dots
    assert store.field_of("p-unknown") == ()


def test_only_the_newest_fields_are_kept(data: Path) -> None:
    for i in range(25):
        store.save_field([PLANS[0].model_copy(update={"id": f"p-{i:012x}"})], ())
    assert len(list((data / "fields").iterdir())) == 20


# ------------------------------------------------------------------------------------- bills


def bills(path: Path, *rows: str) -> str:
    path.write_text("\n".join(["launch_id,usd,until,source", *rows]) + "\n")
    return str(path)


def test_a_bill_from_a_file_is_kept_and_explained(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = bills(tmp_path / "bill.csv", "l-b,44.10,2026-11-20T12:00:00,invoice 7")
    for _ in range(2):
        code, out, _ = run(capsys, "--bill", file)
    assert code == 0
    assert "44.10" in out
    assert "l-b: the bill ends before the launch did" in " ".join(out.split())
    assert [b.source for b in ledger.launch("l-b").billed] == ["invoice 7"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("l-x,1,2026-11-20,", "no launch 'l-x'"),
        ("l-b,one,2026-11-20,", "cannot be read"),
        ("l-b,-1,2026-11-20,", "negative"),
        ("l-b,nan,2026-11-20,", "negative"),
        ("l-b,1,2030-01-01,", "lies ahead"),
        ("l-b,1,yesterday,", "cannot be read"),
    ],
)
def test_one_bad_row_refuses_the_whole_bill(
    ledger: Ledger, tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str, says: str
) -> None:
    code, out, err = run(capsys, "--bill", bills(tmp_path / "b.csv", "l-a,5,2026-11-20,", row))
    assert (code, out) == (2, "")
    assert "line 3" in err
    assert says in err
    assert ledger.launch("l-a").billed == ()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--since", "soon"], "is no date"),
        (["--since", "2026-12-01", "--until", "2026-11-01"], "is after --until"),
        (["--group-by", "colour"], "--group-by"),
        (["--format", "pdf"], "--format"),
        (["--json", "--format", "md"], "contradicts"),
        (["--out", "report.pdf"], "which form"),
        (["--budget", "-5"], "--budget"),
        (["--project", "alpha"], "no budget of project"),
        (["--plan", "p-nothing"], "no plan"),
        (["--bill", "nowhere.csv"], "cannot read"),
    ],
)
def test_bad_input_ends_in_one_message(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "hint:" in err


# ------------------------------------------------------------------------------------- compare


def test_compare_shows_what_differs_and_only_that(
    data: Path, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    store.save_shown([p.candidate for p in PLANS], "plan suggest", BEGUN)
    assert main.run(["report", "compare", "1", "2"]) == 0
    drawn = capsys.readouterr().out
    assert "vocab" not in drawn  # the model is the same
    assert drawn == snapshot


def test_a_plan_does_not_differ_from_itself(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.save_shown([p.candidate for p in PLANS], "plan suggest", BEGUN)
    assert main.run(["report", "compare", "1", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []


def test_last_shown_plans_come_in_the_order_of_their_rows(data: Path) -> None:
    store.save_shown([c.model_copy(update={"rank": 4 - c.rank}) for c in choices()], "plan suggest", BEGUN)
    assert [p.candidate.rank for p in store.last_shown()] == [1, 2, 3]
    assert BEGUN - timedelta(0) == store.last_shown()[0].created


def test_a_project_is_reported_alone_also_without_a_budget(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "--json", "--project", "alpha")
    document = json.loads(out)
    assert code == 0
    assert [r["launch_id"] for r in document["runs"]] == ["l-b"]
    assert document["budget_usd"] == "200"  # that of the launch
