"""``plan suggest`` on machines of one's own: the order, what starts them, and what their network changes."""

import json
from pathlib import Path

import pytest

from planner.cli import main

RACK = "8x H100-SXM5-80GB, machines=8, memory_gib=2048"
FAST = f"{RACK}, inter_node=infiniband"


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))


def suggest(*more: str) -> list[str]:
    return ["suggest", "--params", "7B", *more]


def document(capsys: pytest.CaptureFixture[str], *more: str) -> dict:
    assert main.run(suggest(*more, "--json")) == 0
    return json.loads(capsys.readouterr().out)


def test_ones_own_gpus_do_not_stand_idle_beside_a_run_that_is_a_little_cheaper(
    capsys: pytest.CaptureFixture[str],
):
    assert main.run(suggest("--own", FAST, "--provider", "own")) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "1 ok 64× H100-SXM5-80GB" in screen
    assert "then time, then the upper end of cost: machines of your own cost the same idle" in screen


def test_an_order_that_is_asked_for_is_kept(capsys: pytest.CaptureFixture[str]):
    found = document(capsys, "--own", FAST, "--provider", "own", "--sort", "cost", "--top", "4")
    costs = [c["cost_usd"]["high"] for c in found["candidates"]]
    assert costs == sorted(costs)


def test_beside_the_cloud_cost_decides(capsys: pytest.CaptureFixture[str]):
    found = document(capsys, "--own", FAST, "--top", "8")
    costs = [c["cost_usd"]["high"] for c in found["candidates"] if c["verdict"] == "ok"]
    assert costs == sorted(costs)


@pytest.mark.parametrize("written", ["words", "file"])
def test_a_stated_rate_of_ethernet_changes_the_time(
    written: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    hours = []
    for rate in (10, 25, 100):
        machine = f"{RACK}, network_gbit_per_s={rate}"
        if written == "file":
            machine = str(tmp_path / "rack.yaml")
            text = "{gpu: h100-sxm5-80gb, gpus: 8, machines: 8, memory_gib: 2048, network_gbit_per_s: %d}"
            Path(machine).write_text(text % rate)
        found = document(capsys, "--own", machine, "--provider", "own", "--allow-slow-link")
        hours.append(next(c["hours"]["mid"] for c in found["candidates"] if c["shape"]["num_nodes"] == 8))
    assert hours[0] > 1.5 * hours[1] > 1.5 * 1.5 * hours[2]


def test_the_next_step_names_what_starts_machines_of_ones_own(capsys: pytest.CaptureFixture[str]):
    assert main.run(suggest("--own", FAST, "--provider", "own")) == 0
    screen = capsys.readouterr().out
    assert "plan launch 1 --hosts" in screen
    assert "plan launch 1 --provider kuberay" in screen
    assert "--provider local" not in screen  # eight machines are not this one


def test_one_machine_of_ones_own_may_be_this_one(capsys: pytest.CaptureFixture[str]):
    assert main.run(["suggest", "--params", "100M", "--own", "1x rtx-4090", "--provider", "own"]) == 0
    assert "plan launch 1 --provider local" in capsys.readouterr().out


def test_a_launch_that_says_no_place_is_told_the_three_that_there_are(capsys: pytest.CaptureFixture[str]):
    assert main.run(["suggest", "--params", "100M", "--own", "1x rtx-4090", "--provider", "own"]) == 0
    capsys.readouterr()
    assert main.run(["launch", "1", "--budget", "5"]) == 2
    hint = capsys.readouterr().err
    for way in ("--provider local", "--hosts ADDRESS", "--provider kuberay"):
        assert way in hint
