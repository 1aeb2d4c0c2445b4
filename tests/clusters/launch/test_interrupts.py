"""Real signals: before commit they tear down, during a teardown they wait, and ``down`` sends one."""

import os
import signal
import time
from pathlib import Path

import pytest

from clusters.launch import down, machine
from clusters.launch.interrupts import SIGNALS, Interrupted, Interrupts
from tests.clusters.launch.cloud import FileCloud
from tests.clusters.launch.hands import Clock, Proving, Screen, hands, request


def at(state: str, *numbers: int) -> Screen:
    """A screen that sends its own process a signal each time that the state is shown."""
    screen = Screen()
    left = list(numbers)

    def send(event) -> None:
        if event.state == state and left:
            os.kill(os.getpid(), left.pop(0))
            time.sleep(0.001)  # the handler runs here

    screen.on_event = send
    return screen


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_commit_tears_everything_down(tmp_path: Path, number: int):
    cloud = FileCloud(tmp_path)
    before = signal.getsignal(number)
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud, screen=at("probing", number)))
    assert (finished.exit_code, finished.outcome) == (130, "torn_down")
    assert signal.Signals(number).name in finished.message
    assert not cloud.resources()
    assert signal.getsignal(number) == before


def test_a_second_signal_does_not_cut_the_teardown_short(tmp_path: Path):
    cloud, screen = FileCloud(tmp_path), Screen()
    first = iter([signal.SIGINT])

    def send(event) -> None:
        if event.state == "probing" and (number := next(first, None)):
            os.kill(os.getpid(), number)
            time.sleep(0.001)
        if event.state == "tearing_down":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.001)

    screen.on_event = send
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud, screen=screen))
    assert finished.exit_code == 130
    assert not cloud.resources()
    assert any("still tearing down" in line for line in screen.said)


def test_a_signal_while_one_candidate_is_torn_down_ends_the_search(tmp_path: Path):
    from clusters.faults import CloudFault
    from tests.clusters.launch.test_machine import other

    cloud = FileCloud(tmp_path)
    cloud.faults["create"] = [CloudFault("capacity", "none")]
    screen = at("tearing_down", signal.SIGTERM)
    h = hands(tmp_path, cloud, screen=screen, next_plans=lambda plan: [other()])
    finished = machine.launch(request(tmp_path), h)
    assert (finished.exit_code, len(cloud.creates)) == (130, 1)


def test_a_signal_raises_once_and_is_then_noted():
    said: list[str] = []
    interrupts = Interrupts(said.append)
    with interrupts.caught(), pytest.raises(Interrupted, match="SIGTERM"):
        signal.raise_signal(signal.SIGTERM)
    with interrupts.caught():
        interrupts.hold()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.001)
    assert interrupts.noted
    assert len(said) == 1


def test_down_during_a_probe_ends_the_other_process_and_leaves_nothing(tmp_path: Path):
    cloud = FileCloud(tmp_path)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = _launch_that_waits(tmp_path, writer)
        finally:
            os._exit(code)
    os.read(reader, 1)
    clock = Clock()
    h = hands(tmp_path, cloud, clock=clock, screen=(screen := Screen()))
    object.__setattr__(h, "sleep", lambda seconds: (time.sleep(0.02), clock.sleep(0.02))[0])
    finished = down.down("l-01", h)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    assert (finished.exit_code, finished.outcome) == (0, "torn_down")
    assert f"l-01 is in the hands of process {pid}; asked it to end" in screen.said
    assert not cloud.resources()
    assert len(cloud.creates) == 1
    states = [t.state for t in h.ledger.launch("l-01").transitions]
    assert states.count("tearing_down") == 1
    assert states[-1] == "gone"


def _launch_that_waits(directory: Path, writer: int) -> int:
    """A launch whose probe tells that it runs, and then takes until somebody ends it."""
    screen, proving = Screen(), Proving()

    def wait(event) -> None:
        if event.state == "probing":
            os.write(writer, b"x")
            time.sleep(30)

    screen.on_event = wait
    cloud = FileCloud(directory)
    return machine.launch(
        request(directory), hands(directory, cloud, screen=screen, proving=proving)
    ).exit_code


def test_down_gives_up_on_a_process_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cloud = FileCloud(tmp_path)
    machine.launch(request(tmp_path), hands(tmp_path, cloud))
    asked: list[int] = []
    monkeypatch.setattr("clusters.launch.down.os.kill", lambda pid, number: asked.append(pid))
    h = hands(tmp_path, cloud)
    with h.ledger.lock("l-01"):
        finished = down.down("l-01", h)
    assert (finished.exit_code, finished.outcome) == (6, "may_still_bill")
    assert asked == [os.getpid()]
    assert cloud.resources()
    assert down.down("l-01", h).exit_code == 0
