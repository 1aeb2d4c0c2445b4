"""The fault matrix: wherever a launch breaks, nothing is left, nothing is created twice, and it says so."""

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from moto import mock_aws
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends

from clusters.launch.running import Running
from clusters.ledger.store import Ledger
from planner.launched import STATES, LaunchState
from tests.clusters.clouds import moto_more
from tests.clusters.launch import matrix
from tests.clusters.launch.matrix import Cell, World
from tests.clusters.launch.wire import OneSession, left

pytestmark = pytest.mark.filterwarnings("ignore")  # moto's own

_ran: dict[str, list[str]] = {}


@pytest.fixture(scope="module")
def session() -> Iterator[OneSession]:
    """One account for all cells: every one of them leaves it empty, or fails."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        moto_more.install()
        with mock_aws():
            yield OneSession()


@pytest.fixture
def world(tmp_path: Path, session: OneSession, image: str) -> World:
    moto_more.QUOTAS.clear()
    return World(tmp_path, session, image=image)


@pytest.fixture
def image(session: OneSession) -> str:
    """An image of the account's own."""
    answer = session.client("ec2", matrix.REGION).register_image(Name="test", RootDeviceName="/dev/sda1")
    return str(answer["ImageId"])


@pytest.mark.parametrize("cell", matrix.cells(), ids=lambda cell: cell.name)
def test_cell(world: World, cell: Cell):
    _ran[cell.name] = matrix.run(cell, world)
    assert _ran[cell.name] == []


@pytest.mark.parametrize("then", ["resume", "down"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", STATES)
def test_killed(world: World, state: str, when: str, then: str):
    name = f"killed {when} {state}, then {then}"
    _ran[name] = matrix.run_kill(world, state, when, then)
    assert _ran[name] == []


def test_two_processes_do_no_harm(world: World):
    _ran["two at once"] = matrix.run_two(world)
    assert _ran["two at once"] == []


def test_every_pair_is_a_cell_or_has_a_reason():
    assert matrix.uncovered() == []
    both = {(c.state, c.fault) for c in matrix.cells()} & set(matrix.EXCLUDED)
    assert not both
    assert all(matrix.EXCLUDED.values())
    assert {state for state, _ in matrix.EXCLUDED} <= set(STATES)


# ------------------------------------------------------------------------------------- mutations


def cell(name: str) -> Cell:
    return next(c for c in matrix.cells() if c.name == name)


def without_the_tag(operation: str, params: dict) -> dict:
    """RunInstances as it would be sent by a launch that forgot to tag its machines."""
    if operation != "RunInstances" or params.get("DryRun"):
        return params
    specs = copy.deepcopy(params["TagSpecifications"])
    for spec in specs:
        spec["Tags"] = [t for t in spec["Tags"] if t["Key"] != "plan-launch"]
    return {**params, "TagSpecifications": specs}


@pytest.fixture
def apart(world: World) -> Iterator[World]:
    """A world that is emptied afterwards, whatever a mutation leaves in it."""
    yield world
    _empty(world.session)


def _empty(session: OneSession) -> None:
    """Make the account new: an instance whose interface is gone cannot be ended in moto."""
    for backends in (ec2_backends, iam_backends):
        for regions in backends.values():
            for backend in regions.values():
                backend.reset()
    assert not left(session.client("ec2", matrix.REGION))


def test_dropping_the_intent_makes_a_cell_fail(apart: World, monkeypatch: pytest.MonkeyPatch):
    enter = Running.enter

    def forgetful(run: Running, state: LaunchState, detail: str = "") -> None:
        if state == "creating":
            run.tell(state, detail)
        else:
            enter(run, state, detail)

    monkeypatch.setattr(Running, "enter", forgetful)
    found = matrix.run(cell("creating × setup fails"), apart)
    assert any("created in ledger state" in problem for problem in found)


def test_dropping_the_tag_makes_a_cell_fail(apart: World):
    apart.wire.rewrite = without_the_tag
    found = matrix.run(cell("creating × setup fails"), apart)
    assert any("left" in problem and "instance" in problem for problem in found)


def test_dropping_the_second_look_makes_a_cell_fail(apart: World):
    apart.looks = 1
    found = matrix.run(cell("tearing_down × the list lags"), apart)
    assert any("left" in problem and "instance" in problem for problem in found)


def test_dropping_the_lock_makes_a_cell_fail(apart: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Ledger, "lock", lambda ledger, launch_id: nullcontext())
    found = matrix.run_two(apart)
    assert "two at once: the second process was not refused" in found
    assert len(found) > 1


def test_the_matrix_prints_its_size(capsys: pytest.CaptureFixture[str]):
    failing = [problem for problems in _ran.values() for problem in problems]
    with capsys.disabled():
        size = f"{len(_ran)} cells, {len(matrix.EXCLUDED)} pairs excluded"
        print(f"\nfault matrix: {size}, {len(failing)} problems")
        for problem in failing:
            print(f"  {problem}")
    assert failing == []
