"""``plan launch --provider kuberay``: from the command line to an API that holds objects, and back."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.cli import main, store
from planner.cli.launch import hands as launch_hands
from planner.cli.launch import next_plans as launch_next
from tests.clusters import tools
from tests.clusters.clouds.kube_fake import Behaviour, FakeKube
from tests.clusters.launch.hands import Proving

pytestmark = pytest.mark.enable_socket
PLAN = "p-0123456789ab"


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKube]:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    store.save_shown([tools.rented(nodes=2).candidate], "plan suggest", tools.NOW)
    monkeypatch.setattr(launch_hands, "price_now", lambda offer: offer.usd_per_hour)
    monkeypatch.setattr(launch_next, "next_plans", lambda plan: iter(()))
    monkeypatch.setattr(launch_hands.time, "sleep", lambda seconds: None)
    made = Proving()
    monkeypatch.setattr(launch_hands, "RealProving", lambda known, quiet: made)
    with FakeKube(Behaviour()) as fake:
        for i in range(2):
            fake.add_node(f"node-{i}", 8)
        (tmp_path / "kubeconfig").write_text(fake.kubeconfig())
        yield fake


def launch(*more: str) -> int:
    where = ["--provider", "kuberay", "--kubeconfig", "kubeconfig", "--namespace", "ml"]
    return main.run(["launch", PLAN, "--budget", "1000", "--yes", "--json", *where, *more])


def last(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_plan_is_launched_proven_and_committed(kube: FakeKube, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("--then", "python train.py") == 0
    event = last(capsys)
    assert (event["state"], event["outcome"]) == ("committed", "committed")
    assert kube.calls.count("POST rayjobs") == 1
    assert main.run(["down", str(event["launch_id"]), "--json"]) == 0
    assert last(capsys)["outcome"] == "torn_down"
    assert kube.kept["rayjobs"] == kube.kept["pods"] == kube.kept["rayclusters"] == {}


def test_a_plan_that_the_cluster_cannot_hold_creates_nothing(
    kube: FakeKube, capsys: pytest.CaptureFixture[str]
) -> None:
    del kube.kept["nodes"]["node-1"]
    assert launch() == 1
    assert "POST rayjobs" not in kube.calls
    assert "1 of 1 nodes have 8 GPUs, 2 needed" in "".join(capsys.readouterr())


def test_pods_that_have_no_node_are_released(kube: FakeKube, capsys: pytest.CaptureFixture[str]) -> None:
    kube.behaviour = Behaviour(workers_ready=1, unschedulable="Insufficient nvidia.com/gpu")
    assert launch("--create-timeout", "30s") == 1
    assert last(capsys)["outcome"] == "torn_down"
    assert kube.kept["rayjobs"] == kube.kept["pods"] == {}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--node-selector", "gpu"], "is not KEY=VALUE"),
        (["--namespace", "My Team"], "is no namespace"),
    ],
)
def test_bad_input_ends_in_one_message(
    kube: FakeKube, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert launch(*arguments) == 2
    assert says in capsys.readouterr().err
    assert kube.calls == []
