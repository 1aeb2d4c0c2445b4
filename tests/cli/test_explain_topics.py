"""``plan explain`` on the screen and as JSON."""

import json

import jsonschema
import pytest

from planner.cli import main
from planner.cli.schema import document_of
from planner.guide.topics import TOPICS


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_keeps_to_its_width(
    topic: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main.run(["explain", topic, "--params", "7B", "--gpu", "A100-SXM4-80GB", "--gpus", "16"]) == 0
    screen = capsys.readouterr().out
    assert max(map(len, screen.splitlines())) <= width
    assert "What to do:" in screen
    assert "source: " in screen
    assert "Figures are of an example" not in screen
    assert "nan" not in screen.lower().split()


def test_alone_it_lists_the_topics(capsys: pytest.CaptureFixture[str]):
    assert main.run(["explain"]) == 0
    screen = capsys.readouterr().out
    assert all(f" {topic} " in screen for topic in TOPICS)


def test_what_the_user_did_not_say_is_an_example_and_said_to_be_one(capsys: pytest.CaptureFixture[str]):
    assert main.run(["explain", "memory", "--gpu", "RTX 4090"]) == 0
    assert "Figures are of an example: --params 1B (give your own)" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["spot"], ["zero", "--params", "3B"]])
def test_json_keeps_to_its_schema(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert main.run(["explain", *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, document_of("explain").model_json_schema(mode="serialization"))
    assert [t["topic"] for t in document["topics"]] == list(TOPICS)
    assert (document["page"] is None) == (words == [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["memry"], "did you mean memory"),
        (["memory", "--params", "1B", "--model", "gpt2"], "both say what the model is"),
        (["memory", "--gpu", "H101"], "unknown GPU"),
        (["headroom", "--headroom", "1.5"], "not a fraction"),
        (["memory", "--gpus", "12"], "not a whole number of machines"),
    ],
)
def test_a_wrong_word_is_one_error(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main.run(["explain", *words]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
