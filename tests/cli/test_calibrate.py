"""``plan calibrate``: kept on disk, used by the next command, left out on request, forgotten on request."""

import json
from pathlib import Path

import pytest

from planner.cli import calibration_store, main

RUN = "--params 3B --gpu L40S --gpus 4 --method full --seq-len 2048 --zero 3 --micro-batch 2 --grad-accum 4"
LINE = {
    "id": "mine", "kind": "full-finetune", "model": {"params": 3e9}, "gpu": "L40S", "gpus": 4,
    "gpus_per_node": 4, "layout": {"dp": 4, "tp": 1, "pp": 1, "sharding": "zero3"},
    "micro_batch": 2, "grad_accum": 4,
    "global_batch": 32, "seq_len": 2048, "precision": "bf16-mixed", "optimizer": "adamw", "recompute": "none",
    "measured": {"tokens_per_s_per_gpu": 500.0},
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def measured(tmp_path: Path) -> str:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(LINE) + "\n", encoding="utf-8")
    return str(path)


def step_s(capsys: pytest.CaptureFixture[str], *more: str) -> float:
    assert main.run(["estimate", *RUN.split(), "--recompute", "none", "--json", *more]) == 0
    return float(json.loads(capsys.readouterr().out)["speed"]["step_s"]["mid"])


def test_what_was_measured_is_used_until_it_is_left_out_or_forgotten(
    measured: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = step_s(capsys)
    assert main.run(["calibrate", measured]) == 0
    out = capsys.readouterr().out
    assert "BEFORE" in out
    assert "Median error" in out
    assert step_s(capsys) > 1.2 * plain
    assert step_s(capsys, "--no-calibration") == plain
    assert main.run(["calibrate", "--reset"]) == 0
    capsys.readouterr()
    assert step_s(capsys) == plain


def test_a_probed_run_counts_beside_the_others_and_stays(
    measured: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = step_s(capsys)
    calibration_store.add(json.dumps(LINE))
    after_probe = step_s(capsys)
    assert after_probe > 1.1 * plain
    assert main.run(["calibrate", measured]) == 0
    capsys.readouterr()
    assert len(calibration_store.load()) == 2
    assert step_s(capsys) > after_probe


def test_both_screens_say_how_far_one_s_own_runs_move_them(
    measured: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suggest = [
        "suggest",
        "--params",
        "3B",
        "--method",
        "full",
        "--tokens",
        "1B",
        "--gpu",
        "L40S",
        "--top",
        "1",
    ]
    estimate = ["estimate", *RUN.split()]
    assert main.run(["calibrate", measured]) == 0
    capsys.readouterr()
    for command in (suggest, estimate):
        main.run(command)
        shown = " ".join(capsys.readouterr().out.split())
        assert "corrected by 1 run of your own: time +" in shown
        main.run([*command, "--no-calibration"])
        assert "of your own" not in capsys.readouterr().out


def test_the_document_has_errors_before_and_after(measured: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["calibrate", measured, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["median_error_after"] < document["median_error_before"]
    assert [figure["id"] for figure in document["figures"]] == ["mine"]


def test_runs_measured_against_an_older_estimator_are_reckoned_anew(
    measured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.run(["calibrate", measured]) == 0
    before = calibration_store.load()
    monkeypatch.setattr(calibration_store, "estimator", lambda: "another")
    assert calibration_store.load()[0].log_ratio == pytest.approx(before[0].log_ratio, abs=1e-4)


def test_a_damaged_file_is_left_out_with_a_warning(
    own_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = step_s(capsys)
    (own_data / "calibration.json").write_text("{", encoding="utf-8")
    assert step_s(capsys) == plain
    (own_data / "calibration.json").write_bytes(b"\xff\xfe")
    assert main.run(["estimate", *RUN.split()]) == 0
    assert "calibration left out" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["missing.jsonl"], ["a.jsonl", "--reset"]])
def test_bad_use_is_told_in_words(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["calibrate", *arguments]) == 2
    assert "hint:" in capsys.readouterr().err


def test_a_bad_line_changes_nothing(
    measured: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["calibrate", measured]) == 0
    kept = calibration_store.load()
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({**LINE, "measured": {}}), encoding="utf-8")
    assert main.run(["calibrate", str(bad)]) == 2
    assert calibration_store.load() == kept
