"""``plan probe`` as a user runs it, on real Ray; beside it runs another Ray, which nobody may touch."""

import json
import os
import re
import secrets
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.backend import here
from clusters.backend.here import LocalRay
from clusters.backend.jobs import Job, Jobs, JobsError, connect
from planner.cli.main import run

pytestmark = pytest.mark.enable_socket
PLAN = Path(sys.executable).with_name("plan")
MARK = "PLAN_TEST_MARK"
LONGEST_S = 300.0


@pytest.fixture(scope="module")
def other() -> Iterator[LocalRay]:
    """A Ray that somebody else started."""
    ray_id = here.new_id()
    try:
        yield here.start(ray_id, here.Wanted(num_cpus=2, object_store_bytes=100 * 2**20))
    finally:
        here.stop(ray_id)


@pytest.fixture(scope="module")
def jobs(other: LocalRay) -> Jobs:
    return connect(other.address, other.auth_token_path)


# ------------------------------------------------------------------------------ a Ray of this machine


def test_its_directory_and_token_are_private(other: LocalRay) -> None:
    assert stat.S_IMODE(Path(other.directory).stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(other.auth_token_path).stat().st_mode) == 0o600


def test_its_token_stands_in_no_command_line_and_no_log(other: LocalRay) -> None:
    token = Path(other.auth_token_path).read_text()
    for pid in here.processes(other.id):
        assert token not in Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    logs = [p for p in Path(other.directory).rglob("*") if p.is_file() and p.name != "auth_token"]
    assert len(logs) > 5
    assert not [p for p in logs if token in p.read_text(errors="replace")]


def test_two_of_one_id_are_refused_and_the_first_lives_on(other: LocalRay, jobs: Jobs) -> None:
    with pytest.raises(FileExistsError):
        Path(other.directory).mkdir()
    assert len(here.processes(other.id)) > 5


def test_stopping_what_never_was_is_no_error() -> None:
    here.stop(here.new_id())


# ------------------------------------------------------------------------------ jobs


def test_a_job_is_followed_line_by_line_and_tells_its_exit_code(jobs: Jobs) -> None:
    script = "import sys; print('one'); print('two'); sys.exit(3)"
    job = jobs.submit(Job(entrypoint=f'{sys.executable} -c "{script}"', submission_id=_name()))
    lines = [line for line in jobs.follow(job) if line is not None]
    assert lines[-2:] == ["one", "two"]
    state = jobs.state(job)
    assert (state.status, state.exit_code, state.ended) == ("failed", 3, True)
    assert "one" in jobs.logs(job)


def test_waiting_for_a_silent_job_can_be_given_up_and_it_can_be_stopped(jobs: Jobs) -> None:
    job = jobs.submit(Job(entrypoint="sleep 1000", submission_id=_name()))
    ticks = 0
    for line in jobs.follow(job, tick_s=0.1):
        ticks += line is None
        if ticks > 3:
            break
    assert jobs.stop(job).status == "stopped"


def test_a_wrong_token_is_told_apart_from_a_cluster_that_is_not_there(
    other: LocalRay, tmp_path: Path
) -> None:
    wrong = tmp_path / "token"
    wrong.write_text(secrets.token_hex(32))
    with pytest.raises(JobsError) as refused:
        connect(other.address, str(wrong))
    assert refused.value.kind == "forbidden"
    assert wrong.read_text() not in str(refused.value)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{held.getsockname()[1]}"
    with pytest.raises(JobsError) as gone:
        connect(nobody)
    assert gone.value.kind == "unreachable"


def test_the_environment_does_not_redirect_an_address_that_is_given(
    other: LocalRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")
    assert connect(other.address, other.auth_token_path).nodes()


def test_auto_finds_the_cluster_that_ray_would_find(other: LocalRay, tmp_path: Path) -> None:
    seen = "from clusters.backend.jobs import connect; print(connect('auto').address)"
    told = {"RAY_ADDRESS": other.gcs_address, "RAY_AUTH_MODE": "token"}
    done = subprocess.run(
        [sys.executable, "-c", seen],
        env={**os.environ, **told, "RAY_AUTH_TOKEN_PATH": other.auth_token_path},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.stdout.strip() == other.address, done.stderr


def test_an_unknown_job_is_refused(jobs: Jobs) -> None:
    with pytest.raises(JobsError) as unknown:
        jobs.state("nobody")
    assert unknown.value.kind == "refused"


def _name() -> str:
    return f"test-{secrets.token_hex(4)}"


# ------------------------------------------------------------------------------ the command


class Running:
    """A ``plan probe`` whose processes can all be told by a mark in their environment."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.mark = secrets.token_hex(8)
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.errors = directory / "stderr"
        environment = {
            **os.environ,
            MARK: self.mark,
            "TMPDIR": str(self.temporary),
            "PLAN_DATA_DIR": str(directory / "data"),
        }
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [str(PLAN), "probe", *words],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def alive(self) -> dict[int, str]:
        """Processes with the mark, and the id of the Ray that each belongs to."""
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            if f"{MARK}={self.mark}".encode() in variables:
                ids = [v.partition(b"=")[2].decode() for v in variables if v.startswith(b"PLAN_RAY_ID=")]
                found[int(entry.name)] = ids[0] if ids else ""
        return found

    def ray_id(self) -> str:
        """Id of the Ray that the command has started, once there is one."""
        until = time.monotonic() + LONGEST_S
        while time.monotonic() < until:
            ids = {each for each in self.alive().values() if each}
            if ids:
                return ids.pop()
            assert self.process.poll() is None, self.errors.read_text()
            time.sleep(0.05)
        raise AssertionError("no Ray was started")

    def said(self, words: str) -> None:
        """Wait until stderr holds ``words``."""
        until = time.monotonic() + LONGEST_S
        while words not in self.errors.read_text():
            assert time.monotonic() < until, self.errors.read_text()
            assert self.process.poll() is None, self.errors.read_text()
            time.sleep(0.05)

    def ended(self) -> tuple[int, str]:
        """Exit code and standard output."""
        answer, _ = self.process.communicate(timeout=LONGEST_S)
        return self.process.returncode, answer

    def left_nothing(self, ray_id: str) -> None:
        assert self.alive() == {}
        assert not here.directory_of(ray_id).exists()
        assert list(self.temporary.iterdir()) == []


def test_probe_alone_passes_on_this_machine_and_leaves_nothing(
    tmp_path: Path, other: LocalRay, jobs: Jobs
) -> None:
    probe = Running(tmp_path, "--json")
    ray_id = probe.ray_id()
    code, answer = probe.ended()
    assert code == 0, answer + probe.errors.read_text()
    document = json.loads(answer)
    assert document["verdict"] == "pass"
    assert {len(document[part]) for part in ("hardware", "memory")} == {2}
    assert document["steps"]["mfu"] is None
    assert document["loss"][-1] < document["loss"][0]
    assert {c["backend"] for c in document["collectives"]} == {"gloo"}
    (saved,) = (tmp_path / ".plan" / "probes").iterdir()
    assert json.loads(saved.read_text()) == document
    assert re.fullmatch(r"\d{4}-\d\d-\d\dt\d{4}z-cpu-1x2\.json", saved.name)
    probe.left_nothing(ray_id)
    assert len(here.processes(other.id)) > 5
    assert jobs.nodes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_probe_and_leaves_nothing(
    number: signal.Signals, code: int, tmp_path: Path, other: LocalRay, jobs: Jobs
) -> None:
    probe = Running(tmp_path)
    ray_id = probe.ray_id()
    if number == signal.SIGINT:
        probe.said("start, at most")  # the job runs
    probe.process.send_signal(number)
    ended, answer = probe.ended()
    assert ended == code, probe.errors.read_text()
    assert answer == ""
    assert "Traceback" not in probe.errors.read_text()
    probe.left_nothing(ray_id)
    assert not (tmp_path / ".plan").exists()
    assert jobs.nodes()


def test_a_probe_that_is_killed_leaves_nothing_either(tmp_path: Path) -> None:
    probe = Running(tmp_path)
    ray_id = probe.ray_id()
    probe.process.kill()
    assert probe.ended() == (-signal.SIGKILL, "")
    until = time.monotonic() + LONGEST_S
    while (probe.alive() or here.directory_of(ray_id).exists()) and time.monotonic() < until:
        time.sleep(0.1)
    probe.left_nothing(ray_id)


def test_on_a_cluster_that_runs_only_the_job_comes_and_goes(
    tmp_path: Path, other: LocalRay, jobs: Jobs
) -> None:
    before = set(here.processes(other.id))
    probe = Running(
        tmp_path,
        *("--address", other.address, "--auth-token-file", other.auth_token_path, "--only", "hardware"),
    )
    code, answer = probe.ended()
    assert code == 0, answer + probe.errors.read_text()
    assert "Not looked at: collectives, memory, steps" in answer
    assert probe.alive() == {}
    assert list(probe.temporary.iterdir()) == []
    core = [pid for pid in before if Path(f"/proc/{pid}").exists()]
    assert core
    assert jobs.nodes()


def test_a_wrong_token_is_a_matter_of_credentials(
    tmp_path: Path, other: LocalRay, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = tmp_path / "token"
    wrong.write_text(secrets.token_hex(32))
    assert run(["probe", "--address", other.address, "--auth-token-file", str(wrong)]) == 4
    told = capfd.readouterr()
    assert "--auth-token-file" in told.err
    assert wrong.read_text() not in told.err


def test_a_cluster_that_does_not_answer_is_no_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["probe", "--address", "http://127.0.0.1:9"]) == 1
    assert "no answer from http://127.0.0.1:9" in capfd.readouterr().err


# ------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--address", "10.0.0.1:6379"), "neither auto nor http"),
        (("--only", "harware"), "did you mean hardware"),
        (("--scale", "some"), "--scale"),
        (("--repeat", "0"), "--repeat"),
        (("--entrypoint", "train"), "MODULE:FUNCTION"),
        (("--entrypoint", "nowhere:loop"), "no nowhere.py here"),
        (("--plan", "p-nothing"), "no plan"),
        (("--params", "1M", "--spec", "x.yaml"), "--spec"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    assert run(["probe", *words]) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert said in told.err
    assert "hint:" in told.err
    assert "Traceback" not in told.err
    assert "starting Ray" not in told.err


def test_a_machine_without_torch_is_told_how_to_get_it(tmp_path: Path) -> None:
    without = (
        "import importlib.util as u; found = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'torch' else found(name, *more)\n"
        "import sys; from planner.cli.main import run; sys.exit(run(['probe']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", without], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "hint: pip install 'plan[probe]'" in done.stderr
