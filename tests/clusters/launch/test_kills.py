"""A launch whose process is killed (SIGKILL, a real one) at every state, then resumed or taken down.

``before``: right after the state was written, before its act. ``after``: after the act, before the next state
is written. Whatever the cloud holds then, nothing is created twice and nothing is left.
"""

import os
import signal
from pathlib import Path

import pytest

from clusters.launch import down, machine
from clusters.ledger.store import Ledger
from clusters.scrub import scrubber
from planner.launched import STATES, Transition
from tests.clusters.launch.cloud import FileCloud
from tests.clusters.launch.hands import Clock, Proving, Screen, hands, request

# state: what the launch comes to where it is resumed, after a kill before and after the act
COMMITTED, GONE = ("committed", 0), ("gone", 1)
RESUMED = {
    "planned": (COMMITTED, COMMITTED),
    "preflight": (COMMITTED, COMMITTED),
    "confirmed": (COMMITTED, COMMITTED),
    "creating": (COMMITTED, GONE),  # after: machines are there, and nobody knows whether all of them
    "up": (COMMITTED, COMMITTED),
    "probing": (COMMITTED, COMMITTED),
    "verdict": (COMMITTED, COMMITTED),
    "committed": (COMMITTED, COMMITTED),
    "tearing_down": (GONE, GONE),
    "gone": (("gone", 0), ("gone", 0)),
}
AFTER_THE_LAST = ("committed", "gone")  # nothing is written after these


class DyingLedger(Ledger):
    """Kills its process at a state."""

    def __init__(self, directory: Path, state: str, when: str) -> None:
        super().__init__(directory, scrubber({}))
        self._state, self._when = state, when

    def enter(self, launch_id: str, transition: Transition) -> None:
        if self._when == "after" and self.launch(launch_id).state == self._state:
            os.kill(os.getpid(), signal.SIGKILL)
        super().enter(launch_id, transition)


def killed(directory: Path, state: str, when: str) -> None:
    """Run a launch in a process of its own that is killed at ``state``."""
    pid = os.fork()
    if pid:
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        return
    try:
        screen, proving = Screen(), Proving()
        proving.passes = state not in ("tearing_down", "gone")

        def die(event) -> None:
            if event.state == state and (when == "before" or state in AFTER_THE_LAST):
                os.kill(os.getpid(), signal.SIGKILL)

        screen.on_event = die
        ledger = DyingLedger(directory, state, when)
        cloud = FileCloud(directory)
        machine.launch(
            request(directory, then="python train.py"),
            hands(directory, cloud, screen=screen, proving=proving, ledger=ledger),
        )
    finally:
        os._exit(99)  # never back into the test runner


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", STATES)
def test_a_killed_launch_is_resumed_without_a_second_cluster(tmp_path: Path, state: str, when: str):
    killed(tmp_path, state, when)
    cloud, proving = FileCloud(tmp_path), Proving()
    h = hands(tmp_path, cloud, proving=proving)
    finished = machine.resume("l-01", h)
    launch = h.ledger.launch("l-01")
    assert (launch.state, finished.exit_code) == RESUMED[state][when == "after"]
    assert len(cloud.creates) == 1
    if launch.state == "committed":
        assert launch.job_id == "l-01"
        assert launch.outcome == "committed"
    else:
        assert not cloud.resources()
    assert down.down("l-01", h).exit_code == 0
    assert not cloud.resources()
    assert h.ledger.launch("l-01").state == "gone"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", STATES)
def test_a_killed_launch_is_taken_down(tmp_path: Path, state: str, when: str):
    killed(tmp_path, state, when)
    cloud = FileCloud(tmp_path)
    h = hands(tmp_path, cloud)
    finished = down.down("l-01", h)
    assert finished.exit_code == 0
    assert not cloud.resources()
    assert h.ledger.launch("l-01").state == "gone"
    assert len(cloud.creates) <= 1
    machine.launch(request(tmp_path), hands(tmp_path, cloud, ids=["l-02"]))  # the plan is free again
    assert {r.launch_id for r in cloud.resources()} == {"l-02"}


def test_a_kill_while_the_clouds_list_lags_does_not_create_twice(tmp_path: Path):
    killed(tmp_path, "creating", "after")
    cloud = FileCloud(tmp_path)
    cloud.hidden_looks = 1
    assert machine.resume("l-01", hands(tmp_path, cloud)).exit_code == 1
    assert len(cloud.creates) == 1
    assert not cloud.resources()


def test_a_launch_whose_deadline_has_passed_is_taken_down(tmp_path: Path):
    killed(tmp_path, "probing", "before")
    cloud, proving, clock = FileCloud(tmp_path), Proving(), Clock()
    clock.sleep(49 * 3600)
    finished = machine.resume("l-01", hands(tmp_path, cloud, proving=proving, clock=clock))
    assert finished.exit_code == 1
    assert "deadline" in finished.message
    assert proving.probes == 0
    assert not cloud.resources()
