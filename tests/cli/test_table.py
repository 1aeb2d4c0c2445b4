"""``plan table`` on the screen and as JSON."""

import json

import jsonschema
import pytest

from planner.cli import main
from planner.cli.schema import document_of


@pytest.mark.parametrize("width", [80, 100])
def test_the_screen_keeps_to_its_width_and_says_what_autocast_saves(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main.run(["table"]) == 0
    screen = capsys.readouterr().out
    assert max(map(len, screen.splitlines())) <= width
    words = " ".join(screen.split())
    assert "it saves activations, not states" in words
    assert "12 GB: too low" in words
    assert "1.01 B autocast, 12 GB too low: autocast keeps FP32 weights" in words


def test_json_keeps_to_its_schema_and_to_the_order_asked(capsys: pytest.CaptureFixture[str]):
    assert main.run(["table", "--params", "7B,350M,7B", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, document_of("table").model_json_schema(mode="serialization"))
    assert [round(r["num_params"] / 1e7) for r in document["rows"]] == [703, 35]


def test_a_cell_is_what_plan_estimate_says_of_the_same_run(capsys: pytest.CaptureFixture[str]):
    assert main.run(["table", "--params", "1B", "--json"]) == 0
    ((row),) = json.loads(capsys.readouterr().out)["rows"]
    (autocast,) = (c for c in row["cells"] if c["precision"] == "bf16")
    run = ["--params", "1B", "--gpu", "GB300-288GB", "--mbs", "1", "--acc", "1", "--recompute", "none"]
    assert main.run(["estimate", *run, "--json"]) == 0
    device_gib = json.loads(capsys.readouterr().out)["memory"]["device_gib"]
    assert device_gib["mid"] * 2**30 == pytest.approx(autocast["device_bytes"]["mid"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--params", "1B,,2B"], "is not a number"),
        (["--params", "1B,potato"], "is not a number"),
        (["--params", "10"], "too small"),
        (["--params", ",".join(["1B"] * 41)], "at most 40"),
        (["--headroom", "2"], "not a fraction"),
        (["--optimizer", "adam"], "did you mean adamw"),
        (["--seq-len", "0"], "too small"),
    ],
)
def test_a_wrong_word_is_one_error(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main.run(["table", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert "hint:" in captured.err
    assert captured.out == ""
