"""The probe from this side: what goes along with its job, and what becomes of a job that says no result."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from clusters.backend.jobs import Job, Jobs, JobsError, JobState
from clusters.probe.progress import Progress, progress_line, result_line
from clusters.probe.request import ProbeRequest, from_json
from clusters.probe.results import ProbeResult
from clusters.probing import ProbeError, Wishes, following, probe, request_of
from tests.planner import probe_tools as t


class Scripted:
    """The jobs of a cluster that says what a test wants: the real ones are tested on a real Ray."""

    def __init__(self, lines: list[str | None], status: str = "failed", lost: bool = False) -> None:
        self.lines, self.status, self.lost = lines, status, lost
        self.submitted: list[Job] = []
        self.shipped: list[str] = []
        self.stopped: list[str] = []
        self.alive = [{"10.0.0.2": True, "10.0.0.3": True}]  # the last answer stays

    def nodes(self) -> list[dict[str, object]]:
        if self.lost:
            raise JobsError("unreachable", "no answer from http://head:8265")
        now = self.alive.pop(0) if len(self.alive) > 1 else self.alive[0]
        return [
            {"NodeID": f"n-{ip}", "NodeManagerAddress": ip, "Alive": alive, "Resources": {}}
            for ip, alive in now.items()
        ]

    def submit(self, job: Job) -> str:
        assert job.working_dir is not None
        self.submitted.append(job)
        self.shipped = sorted(
            str(p.relative_to(job.working_dir)) for p in Path(job.working_dir).rglob("*") if p.is_file()
        )
        return job.submission_id

    def follow(self, job_id: str, tick_s: float) -> Iterator[str | None]:
        yield from self.lines
        if self.lost:
            raise JobsError("unreachable", "no answer from http://head:8265")

    def state(self, job_id: str) -> JobState:
        if self.lost:
            raise JobsError("unreachable", "no answer from http://head:8265")
        return JobState.model_validate({"status": self.status, "message": "exit code 1", "exit_code": 1})

    def stop(self, job_id: str, timeout_s: float) -> JobState:
        self.stopped.append(job_id)
        self.status = "stopped"
        return self.state(job_id)


def request(**wishes: object) -> ProbeRequest:
    return request_of(t.cpu_subject(), Wishes.model_validate(wishes), "p-1")


def run(jobs: Scripted, **more: Any) -> tuple[Any, list[Progress], list[str]]:
    told: list[Progress] = []
    logged: list[str] = []
    found = probe(cast(Jobs, jobs), more.pop("asked", request()), told.append, logged.append, **more)
    return found, told, logged


def answer() -> str:
    return result_line(
        ProbeResult(
            started="2026-12-01T14:02:00+00:00",
            wall_s=3.0,
            phase_s={"hardware": 1.0},
            versions={"ray": "2.60.0"},
            num_nodes=1,
            num_ranks=2,
            num_layers=4,
            num_params=None,
        )
    )


STEPS = Progress(phase="steps", rank=1, done=2, of=8, seconds_left=100.0)


def test_the_probes_own_code_goes_along_and_runs_by_itself(tmp_path: Path) -> None:
    with following.shipped(request(), None) as directory:
        parts = {p.relative_to(directory).parts[0] for p in directory.rglob("*")}
        assert parts == {"clusters", "request.json"}
        assert {p.name for p in (directory / "clusters").iterdir()} == {"__init__.py", "probe"}
        assert not list(directory.rglob("__pycache__"))
        assert from_json((directory / "request.json").read_text()) == request()
        done = subprocess.run(  # -S: without what is installed beside it, the planner above all
            [sys.executable, "-S", "-c", "import clusters.probe.request as r; print(r.__file__)"],
            cwd=directory,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith(str(directory))
    assert not directory.exists()


@pytest.mark.parametrize("package", [False, True])
def test_the_users_own_module_goes_along(package: bool, tmp_path: Path) -> None:
    (tmp_path / "secrets.env").write_text("TOKEN=1")
    if package:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/__init__.py").write_text("def loop(context): ...")
    else:
        (tmp_path / "mine.py").write_text("def loop(context): ...")
    with following.shipped(request(entrypoint="mine:loop"), tmp_path) as directory:
        assert (directory / ("mine/__init__.py" if package else "mine.py")).exists()
        assert not (directory / "secrets.env").exists()


def test_progress_is_told_and_other_lines_are_logged() -> None:
    jobs = Scripted(["Ray says hello", None, progress_line(STEPS), answer()], "succeeded")
    found, told, logged = run(jobs)
    assert told == [STEPS]
    assert logged == ["Ray says hello"]
    assert found.num_ranks == 2
    assert found.failures == ()
    assert jobs.stopped == []


def test_a_job_that_ends_without_a_result_fails_with_its_last_words() -> None:
    found, _, _ = run(Scripted([progress_line(STEPS), "ModuleNotFoundError: torch"]))
    (failure,) = found.failures
    assert (failure.kind, failure.phase) == ("error", "steps")
    assert "ModuleNotFoundError: torch" in failure.message
    assert "exit code 1" in failure.message


def test_a_result_that_was_cut_off_is_no_result() -> None:
    found, _, _ = run(Scripted([answer()[:-20]]))
    assert found.failures[0].kind == "error"


def test_a_probe_that_overruns_its_time_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "GRACE_S", -request().probe_timeout_s)
    jobs = Scripted([None] * 1000, "running")
    found, _, _ = run(jobs)
    assert found.failures[0].kind == "timeout"
    assert jobs.stopped == [jobs.submitted[0].submission_id]


def test_a_cluster_that_goes_away_is_said() -> None:
    found, _, _ = run(Scripted([progress_line(STEPS)], lost=True))
    assert (found.failures[0].kind, found.failures[0].phase) == ("worker-lost", "steps")


def test_a_host_that_was_lost_during_the_probe_is_named_first() -> None:
    jobs = Scripted([progress_line(STEPS), "a rank went away"])
    jobs.alive = [
        {"10.0.0.2": True, "10.0.0.3": True, "10.0.0.9": False},  # one that was dead before is none of ours
        {"10.0.0.2": True, "10.0.0.3": False, "10.0.0.9": False},
    ]
    found, _, _ = run(jobs)
    lost, other = found.failures
    assert (lost.kind, lost.phase, lost.node) == ("worker-lost", "steps", "10.0.0.3")
    assert "host 10.0.0.3 is lost" in lost.message
    assert other.kind == "error"


def test_a_probe_that_fails_with_all_hosts_alive_names_none() -> None:
    found, _, _ = run(Scripted([progress_line(STEPS), "RuntimeError"]))
    assert [f.node for f in found.failures] == [None]


def test_a_probe_that_passes_names_no_host_that_dies_later() -> None:
    jobs = Scripted([answer()], "succeeded")
    jobs.alive = [{"10.0.0.2": True}, {"10.0.0.2": False}]
    found, _, _ = run(jobs)
    assert found.failures == ()


def test_an_interrupt_stops_the_job() -> None:
    jobs = Scripted([progress_line(STEPS)], "running")

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probe(cast(Jobs, jobs), request(), interrupt, lambda line: None)
    assert jobs.stopped == [jobs.submitted[0].submission_id]


def test_where_the_cluster_ends_anyway_nothing_is_waited_for() -> None:
    jobs = Scripted([answer()], "running")
    run(jobs, stop_s=0.0)
    assert jobs.stopped == []


def test_a_job_that_is_not_taken_is_no_result() -> None:
    jobs = Scripted([])

    def refuse(job: Job) -> str:
        raise JobsError("refused", "http://head:8265 refused: no")

    jobs.submit = refuse  # type: ignore[method-assign]
    with pytest.raises(ProbeError, match="refused: no"):
        run(jobs)
