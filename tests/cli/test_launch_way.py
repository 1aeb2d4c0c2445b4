"""``plan logs``, ``ssh`` and ``dashboard``: the way to a launch that is up, and nothing where none is."""

import subprocess
import threading
from collections.abc import Iterator

import pytest

from clusters.backend import jobs
from clusters.backend.jobs import JobsError, JobState
from planner.cli import main
from tests.cli.test_launch import PLAN, cloud, launch, launches, proving  # noqa: F401 (fixtures)
from tests.clusters.launch.cloud import FileCloud
from tests.clusters.launch.hands import Proving


class OneJob:
    """The jobs of a cluster: one, that says two lines."""

    def __init__(self, state: JobState) -> None:
        self._state = state
        self.asked: list[str] = []

    def logs(self, job_id: str) -> str:
        self.asked.append(job_id)
        return "step 1\nstep 2\n"

    def follow(self, job_id: str) -> Iterator[str | None]:
        yield from ("step 1", None, "step 2")

    def state(self, job_id: str) -> JobState:
        return self._state


@pytest.fixture
def started(proving: Proving, capsys: pytest.CaptureFixture[str]) -> str:  # noqa: F811
    assert launch("--then", "python train.py") == 0
    capsys.readouterr()
    return launches()[0].id


def job_is(monkeypatch: pytest.MonkeyPatch, state: JobState) -> OneJob:
    made = OneJob(state)
    monkeypatch.setattr(jobs, "connect", lambda address, token: made)
    return made


def test_logs_print_what_the_job_said(
    started: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = job_is(monkeypatch, JobState(status="running"))
    assert main.run(["logs", started]) == 0
    assert capsys.readouterr().out == "step 1\nstep 2\n"
    assert made.asked == [started]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (JobState(status="succeeded", exit_code=0), 0),
        (JobState(status="failed", exit_code=17), 17),
        (JobState(status="failed"), 1),
        (JobState(status="stopped"), 1),
    ],
)
def test_the_exit_code_of_the_job_becomes_ours(
    started: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: JobState,
    code: int,
) -> None:
    job_is(monkeypatch, state)
    assert main.run(["logs", started, "-f"]) == code
    assert capsys.readouterr().out == "step 1\nstep 2\n"


def test_a_cluster_that_does_not_answer_is_one_message(
    started: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(address: str, token: str | None) -> OneJob:
        raise JobsError("unreachable", "nothing listens there")

    monkeypatch.setattr(jobs, "connect", refused)
    assert main.run(["logs", started]) == 2
    assert "nothing listens there" in capsys.readouterr().err


def test_logs_of_a_launch_without_a_full_run_say_so(
    proving: Proving,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert launch() == 0
    assert main.run(["logs", PLAN]) == 2
    assert "no full run was started" in capsys.readouterr().err


def test_a_launch_that_is_gone_has_no_logs_and_no_shell(
    started: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["down", started]) == 0
    for command in ("logs", "ssh", "dashboard"):
        assert main.run([command, started]) == 2
        assert "nothing of it runs" in capsys.readouterr().err


def test_ssh_runs_the_clouds_own_words_and_returns_their_code(
    started: str,
    cloud: FileCloud,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[tuple[str, ...]] = []

    def fake(words: tuple[str, ...], check: bool) -> subprocess.CompletedProcess[str]:
        ran.append(words)
        return subprocess.CompletedProcess(words, 3)

    monkeypatch.setattr(cloud, "shell", lambda order: ("ssh", "ubuntu@head"), raising=False)
    monkeypatch.setattr(subprocess, "run", fake)
    assert main.run(["ssh", started]) == 3
    assert ran == [("ssh", "ubuntu@head")]


def test_ssh_to_this_machine_says_where_you_are(
    started: str,
    cloud: FileCloud,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cloud, "shell", lambda order: (), raising=False)
    assert main.run(["ssh", started]) == 2
    assert "you are there" in capsys.readouterr().err


def test_dashboard_stays_open_until_ctrl_c_and_ends_nothing(
    started: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: threading.Event) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Event, "wait", interrupted)
    assert main.run(["dashboard", started]) == 0
    assert capsys.readouterr().out.startswith("http://")
    assert launches()[0].state == "committed"
