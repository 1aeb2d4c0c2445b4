"""``plan suggest --from`` on the screen and as JSON."""

import json
from pathlib import Path

import jsonschema
import pytest

from planner.cli import main
from planner.cli.schema import document_of

ASKED = ["suggest", "--params", "1B", "--gpu", "H100-SXM5-80GB", "--provider", "aws", "--market", "on-demand"]


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))


@pytest.mark.parametrize("width", [80, 100])
def test_the_way_stands_below_the_choices(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main.run([*ASKED, "--from", "1x rtx-4090, fp32", "--upload-mbit", "100"]) == 0
    screen = capsys.readouterr().out
    assert max(map(len, screen.splitlines())) <= width
    way = screen[screen.index("From 1× RTX 4090 to #1 (p-") :]
    words = " ".join(way.split())
    for said in ("compute capability", "data loader" if "from one GPU" in way else "CUDA", "permissions",
                 "storage mounts", "plan probe --check-precision"):  # fmt: skip
        assert said in words
    assert "min to send" in words


def test_json_has_the_way_and_keeps_to_its_schema(capsys: pytest.CaptureFixture[str]):
    assert main.run([*ASKED, "--from", "rtx-4090", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, document_of("suggest").model_json_schema(mode="serialization"))
    assert document["moving"]["start"] == {"gpu": "RTX 4090", "num_gpus": 1, "precision": None}
    assert document["moving"]["plan_id"] == document["candidates"][0]["id"]


def test_without_from_there_is_no_way(capsys: pytest.CaptureFixture[str]):
    assert main.run([*ASKED, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["moving"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "1x rtx-9999"], "unknown GPU"),
        (["--from", "1x rtx-4090, fp99"], "did you mean"),
        (["--from", "1x V100-SXM2-16GB, bf16"], "bf16 needs Ampere"),
        (["--from", "12x rtx-4090"], "not whole machines"),
        (["--from", "1x rtx-4090, fp32, fp16"], "not a number of GPUs"),
        (["--upload-mbit", "100"], "--upload-mbit is for what --from has to send"),
        (["--from", "rtx-4090", "--upload-mbit", "-3"], "is negative"),
    ],
)
def test_a_wrong_word_is_one_error(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main.run([*ASKED, *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_a_provider_that_was_not_asked_about_is_not_called_skipped(capsys: pytest.CaptureFixture[str]):
    assert main.run([*ASKED, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped_providers"] == []
    assert main.run(["suggest", "--params", "1B", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped_providers"]
