"""The fault matrix: wherever a launch breaks, nothing is left, nothing is created twice, and it says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from planner.launched import STATES
from tests.clusters.clouds import moto_more
from tests.clusters.launch import matrix
from tests.clusters.launch.matrix import Cell, World
from tests.clusters.launch.wire import OneSession

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


@pytest.fixture(scope="module")
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
