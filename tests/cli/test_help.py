"""``plan help``, ``plan schema`` and completion: what is said of the commands holds for the commands."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import typer

from clusters.launch import nouns
from planner import exits
from planner.cli import complete, conventions, help_pages, main
from planner.cli.app import app
from planner.cli.prices import refresh as prices_refresh
from planner.cli.probe import run as probe
from planner.cli.schema import DOCUMENTS, document_of

ROOT = Path(__file__).parents[2]


def commands(group: typer.Typer = app, before: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every command with its parameters."""
    for command in group.registered_commands:
        name = command.name or command.callback.__name__
        yield f"{before}{name}", set(command.callback.__annotations__)
    for sub in group.registered_groups:
        if sub.typer_instance.registered_callback is not None:
            yield f"{before}{sub.name}", set(sub.typer_instance.registered_callback.callback.__annotations__)
        yield from commands(sub.typer_instance, f"{before}{sub.name} ")


def test_every_command_that_has_json_has_a_schema_and_no_other():
    forms = {"ls plans": "ls", "ls orphans": "ls"}  # what ls lists with --plans and --orphans
    known = {forms.get(name, name) for name in DOCUMENTS}
    assert sorted(known) == sorted(name for name, parameters in commands() if "json" in parameters)


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_schema_is_one_and_every_field_of_it_is_typed(command: str, capsys: pytest.CaptureFixture[str]):
    assert main.run(["schema", *command.split()]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]


def test_an_unknown_command_has_no_schema(capsys: pytest.CaptureFixture[str]):
    assert main.run(["schema", "sugest"]) == 2
    assert "did you mean suggest" in capsys.readouterr().err


@pytest.mark.parametrize("page", help_pages.PAGES)
@pytest.mark.parametrize("width", [80, 100])
def test_a_page_of_help_keeps_to_its_width(
    page: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main.run(["help", page]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= width


def test_alone_it_names_its_pages(capsys: pytest.CaptureFixture[str]):
    assert main.run(["help"]) == 0
    said = capsys.readouterr().out
    assert all(f"plan help {page}" in said for page in help_pages.PAGES)


@pytest.mark.parametrize("command", ["suggest", "prices", "help"])
def test_help_of_a_command_is_its_page(command: str, capsys: pytest.CaptureFixture[str]):
    assert main.run(["help", command]) == 0
    assert f"Usage: plan {command}" in capsys.readouterr().out


def test_help_as_json_keeps_to_its_schema(capsys: pytest.CaptureFixture[str]):
    assert main.run(["help", "environment", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, document_of("help").model_json_schema(mode="serialization"))
    assert "GCP_API_KEY" in {c["name"]: c["meaning"] for c in document["credentials"]}["gcp"]


def test_exit_codes_as_markdown_are_the_table_of_the_readme(capsys: pytest.CaptureFixture[str]):
    assert main.run(["help", "exit-codes", "--markdown"]) == 0
    table = capsys.readouterr().out.strip()
    assert table == conventions.markdown(conventions.exit_codes(), "CODE", "MEANING")
    assert [row.split(" | ")[0] for row in table.splitlines()[2:]] == [f"| {code}" for code in exits.MEANINGS]


def test_whoever_returns_an_exit_code_means_the_same_by_it():
    assert (main.FAILED, main.BAD_INPUT, main.NO_CREDENTIALS, main.INTERRUPTED) == (1, 2, 4, 130)
    assert prices_refresh.NO_CREDENTIALS == exits.NO_CREDENTIALS
    assert probe.FAILED == exits.PROBE_FAILED
    assert (nouns.DONE, nouns.FAILED, nouns.USAGE) == (exits.DONE, exits.FAILED, exits.BAD_INPUT)
    assert (nouns.MAY_BILL, nouns.KEPT) == (exits.MAY_STILL_BILL, exits.LEFT_RUNNING)
    assert (nouns.PROBE_FAILED, nouns.INTERRUPTED) == (exits.PROBE_FAILED, exits.INTERRUPTED)
    assert nouns.NO_CREDENTIALS == exits.NO_CREDENTIALS


def read_variables() -> set[str]:
    """Variables of the environment that the command line reads by name."""
    found = set()
    for path in (ROOT / "planner" / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = None
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv"):
                named = node.args[0]
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
                named = node.slice
            if isinstance(named, ast.Constant):
                found.add(named.value)
    return found


def test_every_variable_that_the_command_line_reads_is_on_the_page():
    read = read_variables()
    assert "PLAN_DATA_DIR" in read
    assert read <= {entry.name for entry in conventions.ENVIRONMENT}


@pytest.mark.parametrize(
    ("offer", "typed", "wanted"),
    [
        (complete.gpu_names, "h100-sxm", "H100-SXM5-80GB"),
        (complete.provider_names, "A", "aws"),
        (complete.model_names, "mixtral", "mixtral-8x22b"),
        (complete.topics, "cons", "consumer-vs-datacenter"),
        (complete.help_pages, "ex", "exit-codes"),
        (complete.documented, "sug", "suggest"),
    ],
)
def test_completion_offers_what_begins_like_what_was_typed(offer, typed: str, wanted: str):
    found = offer(typed)
    assert wanted in found
    assert all(name.lower().startswith(typed.lower()) for name in found)


def test_completion_of_plans_and_launches_is_empty_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    assert complete.plan_ids("p-") == []
    assert complete.launch_ids("") == []
