"""The watchdog ends what is marked, in time, and nothing else; it runs where nothing of ours is installed."""

import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters import watchdog
from clusters.watchdog import Limits

LAUNCH = f"l-test-{os.getpid()}"


def sleeper(launch: str | None, stubborn: bool = False) -> subprocess.Popen[bytes]:
    """A process of a launch (``None``: of nobody); a stubborn one does not heed SIGTERM."""
    trap = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" if stubborn else ""
    environment = {k: v for k, v in os.environ.items() if k != watchdog.MARK}
    process = subprocess.Popen(
        [sys.executable, "-c", f"{trap}import time; print('up', flush=True); time.sleep(60)"],
        env={**environment, **({watchdog.MARK: launch} if launch else {})},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def reap(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.poll()


def test_only_processes_of_the_launch_are_found_and_ended(processes: list[subprocess.Popen[bytes]]):
    ours, stubborn = sleeper(LAUNCH), sleeper(LAUNCH, stubborn=True)
    other, nobodys = sleeper(LAUNCH + "x"), sleeper(None)
    processes += [ours, stubborn, other, nobodys]
    assert {p for p, _, _ in watchdog.marked(LAUNCH)} == {ours.pid, stubborn.pid}
    assert watchdog.end_marked(LAUNCH, kill_after_s=1.0) == []
    assert (ours.wait(5), stubborn.wait(5)) == (-signal.SIGTERM, -signal.SIGKILL)
    assert (other.poll(), nobodys.poll()) == (None, None)


def test_it_finds_and_ends_on_a_host_to_which_only_its_text_is_sent(processes: list[subprocess.Popen[bytes]]):
    ours = sleeper(LAUNCH)
    processes.append(ours)
    source = Path(watchdog.__file__).read_text(encoding="utf-8")
    alone = [sys.executable, "-I", "-S", "-"]  # no package of ours or of anybody is in sight
    found = subprocess.run([*alone, "find", LAUNCH], input=source, text=True, capture_output=True, check=True)
    assert [json.loads(line)["pid"] for line in found.stdout.splitlines()] == [ours.pid]
    subprocess.run([*alone, "end", LAUNCH], input=source, text=True, capture_output=True, check=True)
    assert ours.wait(5) == -signal.SIGTERM


def limits(**more: object) -> Limits:
    return Limits(**{"launch_id": LAUNCH, "deadline_s": 10_000.0, "since_s": 1_000.0, **more})


def test_the_end_is_the_deadline_where_no_price_is_known():
    assert watchdog.end_s(limits(budget_usd="10")) == 10_000
    assert watchdog.end_s(limits(usd_per_hour="36")) == 10_000


def test_the_end_comes_before_the_budget_is_spent():
    end = watchdog.end_s(limits(budget_usd="10", usd_per_hour="36"))
    assert end == 1_000 + 1_000 - watchdog.TEARDOWN_S
    assert float(36) * (end + watchdog.TEARDOWN_S - 1_000) / 3600 <= 10


def test_a_budget_that_is_spent_already_ends_at_once():
    assert watchdog.end_s(limits(budget_usd="0.10", usd_per_hour="36")) == 1_000


class Clock:
    """A clock that moves when it sleeps; ``at`` does something on the way."""

    def __init__(self) -> None:
        self.now_s, self.seen, self.at = 1_000.0, [], {}

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for moment in [m for m in self.at if m <= self.now_s]:
            self.at.pop(moment)()

    def run(self, path: Path) -> None:
        watchdog.watch(
            str(path),
            lambda limits: self.seen.append(("stop jobs", self.now_s)),
            lambda limits: self.seen.append(("end", self.now_s)),
            self.now,
            self.sleep,
        )


def test_the_job_is_told_first_and_has_its_grace(tmp_path: Path):
    path, clock = tmp_path / "limits.json", Clock()
    watchdog.write(str(path), limits(deadline_s=2_000.0, grace_s=100.0))
    clock.run(path)
    (told, told_s), (ended, ended_s) = clock.seen
    assert (told, ended) == ("stop jobs", "end")
    assert told_s == pytest.approx(1_900, abs=watchdog.TICK_S)
    assert ended_s == 2_000


def test_limits_that_are_moved_meanwhile_are_heeded(tmp_path: Path):
    path, clock = tmp_path / "limits.json", Clock()
    watchdog.write(str(path), limits(deadline_s=2_000.0))
    clock.at[1_500.0] = lambda: watchdog.write(str(path), limits(deadline_s=3_000.0))
    clock.run(path)
    assert clock.seen[-1] == ("end", 3_000.0)


def test_limits_can_be_read_by_nobody_else(tmp_path: Path):
    path = tmp_path / "limits.json"
    watchdog.write(str(path), limits())
    assert path.stat().st_mode & 0o077 == 0
    assert watchdog.read(str(path)) == limits()
    assert [p.name for p in tmp_path.iterdir()] == ["limits.json"]


def test_a_second_watchdog_of_the_same_launch_leaves(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
):
    path = tmp_path / "limits.json"
    watchdog.write(str(path), limits(deadline_s=time.time() + 3600, since_s=time.time()))
    command = [sys.executable, watchdog.__file__, "watch", str(path)]
    environment = {**os.environ, watchdog.MARK: LAUNCH}
    processes.append(subprocess.Popen(command, env=environment))
    until = time.monotonic() + 20
    while not (tmp_path / "limits.json.lock").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.3)
    assert subprocess.run(command, env=environment, timeout=20, check=False).returncode == 0
    assert processes[0].poll() is None


def test_at_the_end_processes_and_files_of_the_launch_are_gone(
    tmp_path: Path, processes: list[subprocess.Popen[bytes]]
):
    path, directory, key = tmp_path / "limits.json", tmp_path / "ray", tmp_path / "key.pem"
    directory.mkdir()
    key.write_text("secret")
    now = time.time()
    watchdog.write(
        str(path),
        limits(deadline_s=now + 1, since_s=now, grace_s=0.0, paths=str(directory), head_paths=str(key)),
    )
    ours = sleeper(LAUNCH)
    processes.append(ours)
    command = [sys.executable, watchdog.__file__, "watch", str(path)]
    assert (
        subprocess.run(command, env={**os.environ, watchdog.MARK: LAUNCH}, timeout=30, check=False).returncode
        == 0
    )
    assert ours.wait(5) == -signal.SIGTERM
    assert not directory.exists()
    assert not key.exists()


def test_what_a_host_is_can_be_told_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert watchdog.num_gpus() == 0
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    assert watchdog.num_gpus() is None  # there is a tool, and it fails: not known
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA L40S'\necho 'GPU 1: NVIDIA L40S'\n")
    assert watchdog.num_gpus() == 2


@pytest.mark.parametrize(
    ("end", "command"),
    [
        ("here", ""),
        ("gcp", "shutdown -P +2"),  # at the deadline Compute Engine deletes what has not stopped before
        ("azure", "/usr/local/sbin/plan-end"),  # deletes the resource group: a machine shut down bills on
    ],
)
def test_a_rented_machine_ends_as_its_provider_needs_it(
    end: str, command: str, monkeypatch: pytest.MonkeyPatch
):
    ran: list[list[str]] = []
    monkeypatch.setattr(watchdog, "_bounded", ran.append)
    watchdog.end_all(Limits(launch_id=f"{LAUNCH}-none", deadline_s=0.0, since_s=0.0, end=end))
    assert len(ran) == (1 if command else 0)
    assert all(command in words[-1] for words in ran)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_cluster_that_the_cloud_goes_on_refusing_is_given_up_and_one_that_it_refused_once_is_waited_for(
    goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = tmp_path / "ray/session_latest/logs/monitor.log"
    log.parent.mkdir(parents=True)
    looks: list[int] = []

    def nodes() -> list[dict]:
        looks.append(1)
        if goes_on or len(looks) == 2:
            log.write_text("InsufficientInstanceCapacity\n" * len(looks))
        joined = 1 if goes_on or len(looks) < 6 else 2
        return [{"Alive": True, "Resources": {"GPU": 4.0}}] * joined

    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(init=lambda **how: None, nodes=nodes))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(watchdog, "GIVE_UP_S", 0.0)
    monkeypatch.setattr(watchdog.time, "sleep", lambda seconds: None)
    assert watchdog.wait_joined(2, 4, "-", 3600.0) is not goes_on
    assert len(looks) == (2 if goes_on else 6)


def test_where_a_node_does_not_join_the_last_words_of_the_heads_autoscaler_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    logs = tmp_path / "ray/session_latest/logs"
    logs.mkdir(parents=True)
    (logs / "monitor.out").write_text("long ago\n" * 99 + "setup command failed: no space left on device\n")
    ray = types.SimpleNamespace(init=lambda **how: None, nodes=list)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert not watchdog.wait_joined(2, 4, "-", 0.0)
    told = capsys.readouterr().out
    assert "no space left on device" in told
    assert len(told.splitlines()) < 40  # a launch shows the last forty lines of what failed
