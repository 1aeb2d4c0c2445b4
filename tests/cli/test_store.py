"""Plans on disk."""

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from planner.cli import store
from planner.cli.main import run
from planner.errors import UserError
from planner.results import Candidate


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def shown(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    ids = ("p-1a2b3c4d5e6f", "p-9f8e7d6c5b4a", "p-00ff00ff00ff")
    return tuple(c.model_copy(update={"id": i}) for c, i in zip(candidates, ids, strict=True))


def test_saved_plan_is_found_by_row_id_and_beginning(shown: tuple[Candidate, ...], now: datetime) -> None:
    store.save_shown(shown, "plan suggest", now)
    for name in ("2", shown[1].id, shown[1].id[:6], shown[1].id.removeprefix("p-")):
        assert store.find(name).candidate == shown[1]


def test_plan_with_other_figures_is_written_anew(shown: tuple[Candidate, ...], now: datetime) -> None:
    store.save_shown(shown, "plan suggest", now)
    dearer = shown[0].model_copy(update={"cost_is_complete": False})
    later = now + timedelta(days=1)
    store.save_shown([dearer], "plan suggest", later)
    assert store.find(dearer.id).candidate == dearer
    assert store.find(dearer.id).created == later


def test_row_means_the_last_suggest(shown: tuple[Candidate, ...], now: datetime) -> None:
    store.save_shown(shown, "plan suggest", now)
    only = shown[2].model_copy(update={"rank": 1})
    store.save_shown([only], "plan suggest --top 1", now)
    assert store.find("1").id == shown[2].id
    with pytest.raises(UserError, match="showed rows 1"):
        store.find("2")


def test_plan_that_is_there_keeps_its_date(shown: tuple[Candidate, ...], now: datetime) -> None:
    store.save_shown(shown, "plan suggest", now)
    store.save_shown(shown, "plan suggest again", now + timedelta(days=1))
    assert store.find("1").created == now
    assert len(store.all_plans()) == len(shown)


def test_ambiguous_beginning_lists_the_plans(
    data_dir: Path, shown: tuple[Candidate, ...], now: datetime
) -> None:
    twins = [shown[0].model_copy(update={"id": i}) for i in ("p-abc1", "p-abc2")]
    store.save_shown(twins, "plan suggest", now)
    with pytest.raises(UserError, match="p-abc1, p-abc2"):
        store.find("abc")


@pytest.mark.parametrize("name", ["p-", "", "nothing", "../../etc/passwd", "99", "²", "0"])
def test_unknown_plan_is_refused(name: str, shown: tuple[Candidate, ...], now: datetime) -> None:
    store.save_shown(shown, "plan suggest", now)
    with pytest.raises(UserError):
        store.find(name)


def test_row_before_any_suggest_says_what_to_run() -> None:
    with pytest.raises(UserError, match="nothing was suggested yet") as caught:
        store.find("1")
    assert caught.value.hint.startswith("plan suggest")


@pytest.mark.parametrize("content", ["", "{", '{"schema_version": 1}', "[]", "\x00"])
def test_corrupt_file_is_set_aside_with_a_warning(
    content: str,
    data_dir: Path,
    shown: tuple[Candidate, ...],
    now: datetime,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store.save_shown(shown, "plan suggest", now)
    broken = data_dir / "plans" / f"{shown[0].id}.json"
    broken.write_text(content)
    assert {p.id for p in store.all_plans()} == {c.id for c in shown[1:]}
    assert "set aside" in capsys.readouterr().err
    assert not broken.exists()
    assert broken.with_suffix(".corrupt").read_text() == content


@pytest.mark.parametrize("content", ["", "[]", '{"1": 5}', "\x00"])
def test_corrupt_pointer_is_an_error_not_a_traceback(
    content: str, data_dir: Path, shown: tuple[Candidate, ...], now: datetime
) -> None:
    store.save_shown(shown, "plan suggest", now)
    (data_dir / "last_suggest.json").write_text(content)
    with pytest.raises(UserError):
        store.find("1")


def test_removed_plan_is_gone(shown: tuple[Candidate, ...], now: datetime) -> None:
    store.save_shown(shown, "plan suggest", now)
    assert store.remove(shown[0].id) == shown[0].id
    assert shown[0].id not in store.saved_ids()
    with pytest.raises(UserError):
        store.find("1")


def test_no_half_written_file_is_left(data_dir: Path, shown: tuple[Candidate, ...], now: datetime) -> None:
    store.save_shown(shown, "plan suggest", now)
    assert not [p for p in data_dir.rglob("*") if p.name.startswith(".")]
    assert json.loads((data_dir / "last_suggest.json").read_text()) == {str(c.rank): c.id for c in shown}


def test_unwritable_directory_is_a_warning(
    data_dir: Path,
    shown: tuple[Candidate, ...],
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocked = data_dir / "file"
    blocked.write_text("")
    monkeypatch.setenv("PLAN_DATA_DIR", str(blocked))
    store.save_shown(shown, "plan suggest", now)
    assert "plans not saved" in capsys.readouterr().err


def test_a_plan_is_read_from_the_file_that_out_wrote(data_dir, capsys):
    out = data_dir / "plan.yaml"
    assert run(["suggest", "--params", "1B", "--budget", "500", "--gpu", "H100", "--out", str(out)]) == 0
    capsys.readouterr()
    assert run(["estimate", str(out)]) == 0
    assert "H100" in capsys.readouterr().out
    out.write_text("no: plan", encoding="utf-8")
    assert run(["estimate", str(out)]) == 2
    assert "holds no plan" in " ".join(capsys.readouterr().err.split())


def test_a_pipe_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        store.write(pipe, "said")
        assert os.read(reader, 10) == b"said"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
