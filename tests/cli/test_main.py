"""Exit codes, streams, and what is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from planner.cli import app, main, text

HEAVY = ("ray", "torch", "boto3", "botocore", "requests", "rich", "jinja2")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    return tmp_path


def plan(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    program = "import sys; from planner.cli.main import main; sys.argv[0] = 'plan'; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        **more,
    )


def imported(*arguments: str) -> set[str]:
    """Names of the modules that a command has imported when it ends."""
    program = (
        "import sys, json; from planner.cli.main import run; run(sys.argv[1:]); "
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["suggest", "--params", "1B", "--budget", "200"],
        ["estimate", "--params", "1B", "--gpu", "H100-SXM5-80GB", "--gpus", "8"],
    ],
    ids=lambda a: " ".join(a[:1]),
)
def test_no_cloud_or_training_library_is_imported(arguments: list[str]) -> None:
    assert not imported(*arguments) & set(HEAVY)


def test_help_imports_neither_numpy_nor_pydantic() -> None:
    assert not imported("--help") & {"numpy", "pydantic", "yaml", "planner.types"}


def test_help_goes_to_stdout() -> None:
    done = plan("--help")
    assert done.returncode == 0
    assert "suggest" in done.stdout
    assert done.stderr == ""


def test_no_arguments_print_help() -> None:
    assert plan().stdout == plan("--help").stdout


@pytest.mark.parametrize("command", ["suggest", "estimate", "gpus", "accuracy", "ls", "rm"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([command, "--help"]) == 0
    assert f"Usage: plan {command}" in capsys.readouterr().out


def test_every_option_has_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("suggest", "estimate"):
        main.run([command, "--help"])
        out = capsys.readouterr().out
        assert out.count("\n  --") + out.count("\n  -") > 30
    from typer.main import get_command

    for command in get_command(main.app).commands.values():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert parameter.help, f"{command.name} {parameter.name}"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("plan suggest --gpu H100-S", "H100-SXM5-80GB"),
        ("plan suggest --provider la", "lambda"),
        ("plan suggest --model gpt2-x", "gpt2-xl"),
        ("plan gpus L40", "L40S"),
        ("plan sug", "suggest"),
    ],
)
def test_shell_completes_names(typed: str, offered: str) -> None:
    shell = {
        "_PLAN_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    done = plan(env={**os.environ, **shell})
    assert offered in done.stdout.split()


@pytest.mark.parametrize("by", ["", "--by gpu", "--by source", "--by layout"])
def test_accuracy_shows_errors_by_group(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["accuracy", *by.split()]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    for word in ("PEAK MEMORY", "TOKENS A SECOND AND GPU", "MACRO", "BIAS"):
        assert word in out


@pytest.mark.parametrize(
    "command",
    ["suggest --params 125M --budget 1000", "gpus H100", "ls --plans", "accuracy", "prices --gpu L4"],
)
def test_document_follows_the_schema_that_is_printed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main.run([*command.split(), "--json"])
    document = json.loads(capsys.readouterr().out)
    named = "ls plans" if command == "ls --plans" else command.split()[0]
    assert main.run(["schema", *named.split()]) == 0
    jsonschema.validate(document, json.loads(capsys.readouterr().out))


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.strip()[0].isdigit()


def test_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app.importlib, "import_module", interrupted)
    assert main.run(["gpus"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "interrupted\n"


def test_closed_pipe_is_quiet() -> None:
    program = "import sys; from planner.cli.main import main; sys.argv[0] = 'plan'; main()"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-c", program, "gpus"],
            stdout=closed,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            check=False,
        )
    assert done.stderr == b""
    assert done.returncode == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_stream_is_no_error_of_ours(closed: str, tmp_path: Path) -> None:
    program = "from planner.cli.main import main; main()"
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "{program}" gpus H100 {closed}'],
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk_under_the_answer_is_one_error_and_1() -> None:
    program = "import sys; from planner.cli.main import main; sys.argv[0] = 'plan'; main()"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, "gpus", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_lines_of_runs_end_at_line_feeds_only(tmp_path: Path) -> None:
    run = {"id": "a\u2028b", "model": {"params": 1e9}, "gpu": "L4-24GB", "gpus": 1, "seq_len": 512}
    file = tmp_path / "runs.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(run, ensure_ascii=False).encode() + b"\r\n")
    done = plan("estimate", "--runs", str(file), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["id"] == run["id"]


def test_standard_input_that_is_no_text_is_refused() -> None:
    program = "import sys; from planner.cli.main import main; sys.argv[0] = 'plan'; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "estimate", "--runs", "-"],
        input=b"\xff\xfe{}",
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: --runs: cannot read '-'")


def test_spec_may_name_model_fields_beside_the_training(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("params: 1B\ntraining: {seq_len: 512}\n")
    done = plan("estimate", "--spec", str(spec), "--gpu", "L4", "--json")
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert answer["training"]["seq_len"] == 512
    assert answer["model"]["name"].startswith("dense-")


def test_answer_goes_to_stdout_and_fits_is_0() -> None:
    done = plan("suggest", "--params", "125M", "--budget", "1000")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "VERDICT" in done.stdout
    assert "\x1b[" not in done.stdout


def test_nothing_fits_is_3_with_the_screen_on_stdout() -> None:
    done = plan("suggest", "--params", "70B", "--budget", "$10")
    assert done.returncode == 3
    assert done.stderr == ""
    assert done.stdout.count("Nothing fits $10.") == 1
    assert "What would make it fit:" in done.stdout


def test_suggest_json_is_one_document() -> None:
    done = plan("suggest", "--params", "125M", "--budget", "1000", "--json")
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert document["candidates"][0]["verdict"] in ("ok", "tight")
    assert done.stderr == ""


def test_quiet_prints_ids_only() -> None:
    done = plan("suggest", "--params", "125M", "--budget", "1000", "--quiet")
    assert all(line.startswith("p-") for line in done.stdout.split())
    assert done.stdout.split()


def test_row_of_the_last_suggest_is_estimated() -> None:
    ids = plan("suggest", "--params", "125M", "--budget", "1000", "--quiet").stdout.split()
    done = plan("estimate", "1")
    assert done.returncode == 0
    assert "WHAT IF" in done.stdout
    assert plan("estimate", ids[0]).stdout == done.stdout
    listed = plan("ls", "--plans", "--quiet").stdout.split()
    assert set(listed) == set(ids)
    assert plan("rm", ids[0]).stdout == f"removed {ids[0]}\n"
    assert ids[0] not in plan("ls", "--plans", "--quiet").stdout


def test_suggested_candidate_is_a_line_of_estimate_with_the_same_figures(tmp_path: Path) -> None:
    document = json.loads(plan("suggest", "--params", "1B", "--budget", "1000", "--json").stdout)
    lines = tmp_path / "runs.jsonl"
    lines.write_text("".join(json.dumps(c) + "\n" for c in document["candidates"]))
    done = plan("estimate", "--runs", str(lines), "--json")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["id"] for a in answers] == [c["id"] for c in document["candidates"]]
    for answer, candidate in zip(answers, document["candidates"], strict=True):
        assert answer["error"] is None
        assert answer["layout"] == candidate["layout"]
        assert answer["memory"]["device_gib"] == pytest.approx(candidate["memory"]["device_gib"])
        assert answer["speed"]["step_s"] == pytest.approx(candidate["speed"]["step_s"])


def test_one_bad_line_does_not_stop_the_others() -> None:
    good = {"id": "good", "model": {"params": 1e9}, "gpu": "H100-SXM-80GB", "gpus": 8, "seq_len": 2048}
    lines = [good, {**good, "id": "bad", "gpu": "H1000"}, {**good, "id": "odd", "colour": 5}]
    content = "\n".join([*map(json.dumps, lines), "{broken", json.dumps({**good, "id": "last"})])
    done = plan("estimate", "--runs", "-", "--json", input=content)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert len(answers) == 5
    assert [a["error"] is None for a in answers] == [True, False, False, False, True]
    assert "colour" in answers[2]["error"]
    assert "line 4" in answers[3]["error"]


def test_best_choice_is_written_as_yaml(tmp_path: Path) -> None:
    import yaml

    out = tmp_path / "plan.yaml"
    ids = plan("suggest", "--params", "125M", "--budget", "1000", "--quiet", "--out", str(out)).stdout.split()
    written = yaml.safe_load(out.read_text())
    assert written["id"] == ids[0]
    assert written["candidate"]["rank"] == 1


@pytest.mark.parametrize(
    "question",
    [
        ["--params", "1B", "--budget", "15"],
        ["--params", "7B", "--budget", "500", "--provider", "aws"],
        ["--params", "1B", "--deadline", "2h", "--max-gpus", "8"],
        ["--params", "3B", "--gpu", "RTX 3060", "--max-gpus", "1"],
    ],
    ids=lambda q: " ".join(q),
)
def test_every_printed_rescue_yields_a_choice(
    question: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main.run(["suggest", *question, "--json"])
    answer = json.loads(capsys.readouterr().out)
    printed = [*answer["rescues"], *(r["rescue"] for r in answer["rejections"] if r["rescue"])]
    assert printed
    for rescue in printed:
        flags = rescue.split("  ")[0].split()
        code = main.run(["suggest", *question, *flags, "--json"])
        captured = capsys.readouterr()
        assert code == 0, f"{rescue}: {captured.err}"
        assert json.loads(captured.out)["candidates"][0]["verdict"] in ("ok", "tight")


def test_excluded_offer_is_not_proposed() -> None:
    first = json.loads(plan("suggest", "--params", "125M", "--budget", "1000", "--json").stdout)[
        "candidates"
    ][0]
    name = f"{first['offer']['provider']}:{first['offer']['instance_type']}"
    second = json.loads(
        plan("suggest", "--params", "125M", "--budget", "1000", "--json", "--not", name).stdout
    )
    offers = {f"{c['offer']['provider']}:{c['offer']['instance_type']}" for c in second["candidates"]}
    assert name not in offers


def test_defaults_that_change_the_answer_are_printed() -> None:
    screen = plan("suggest", "--params", "125M", "--budget", "1000").stdout
    for word in ("per parameter", "sequence 2048", "global batch", "bf16", "adamw", "headroom 20 %"):
        assert word in screen


@pytest.mark.parametrize(("columns", "width"), [("60", 80), ("80", 80), ("90", 90), ("300", 100)])
def test_width_follows_the_terminal(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert text.terminal().width == width


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert text.terminal().color
    monkeypatch.setenv("NO_COLOR", "1")
    assert not text.terminal().color
