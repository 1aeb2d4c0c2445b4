"""The probe, from this side: ship ``clusters.probe`` as a job, follow it, and read what it measured.

The job holds itself to its own time limit; here another one stands behind it. Whatever ends the probe, its
job is stopped, and what it had said until then is kept.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from clusters.backend.jobs import Job, Jobs, JobsError, JobState
from clusters.backend.shell import Log
from clusters.probe.progress import Progress, read_progress, read_result
from clusters.probe.request import ProbeRequest, to_json
from planner.probed import Failure, ProbeResult

REQUEST_FILE = "request.json"
GRACE_S = 45.0  # for the job to start, and to say what it has when its own time is over
STOP_S = 30.0
LEAVE_S = 15.0
_TICK_S = 0.5
_LAST_LINES = 8

Tell = Callable[[Progress], None]


class ProbeError(Exception):
    """The probe could not be started: nothing was measured, and nothing runs."""


@dataclass(slots=True)
class _Heard:
    """What a job has said so far."""

    began: float = field(default_factory=time.monotonic)
    result: str | None = None
    phase: str = "start"
    last: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))


def probe(
    jobs: Jobs,
    request: ProbeRequest,
    tell: Tell,
    log: Log,
    *,
    python: str = "python",
    user_code: Path | None = None,
    stop_s: float = STOP_S,
) -> ProbeResult:
    """Run a probe as a job of the cluster; returns its result, a partial one where it failed.

    ``tell`` hears progress, ``log`` every other line. ``python``: interpreter on the cluster. ``user_code``:
    directory that holds the module of ``request.entrypoint``. ``stop_s``: how long to wait for the job to
    end; 0 where its cluster is about to end anyway. Raises ``ProbeError`` where the job was not taken; Ctrl-C
    stops the job and is raised again.
    """
    started = datetime.now(UTC)
    heard, dead_before = _Heard(), _dead(jobs)
    with shipped(request, user_code) as directory:
        try:
            job_id = jobs.submit(_job(request, directory, python))
        except JobsError as error:
            raise ProbeError(str(error)) from error
    with _stopping(jobs, job_id, stop_s):
        ended = _follow(jobs, job_id, request.probe_timeout_s + GRACE_S, heard, tell, log)
        result = _result(jobs, job_id, heard, ended, request, started)
        return _with_lost_hosts(result, _dead(jobs), dead_before) if result.failures else result


def _job(request: ProbeRequest, directory: Path, python: str) -> Job:
    """The job. Its id begins with ``probe-``, so that it can be told among others."""
    return Job(
        entrypoint=f"{python} -m clusters.probe.job {REQUEST_FILE}",
        submission_id=f"probe-{uuid.uuid4().hex[:12]}",
        working_dir=str(directory),
        metadata={"plan": str(request.plan.get("plan_id", ""))},
    )


@contextmanager
def shipped(request: ProbeRequest, user_code: Path | None) -> Iterator[Path]:
    """A directory with the probe's own code, the request, and the module of the user's loop, nothing else."""
    with tempfile.TemporaryDirectory(prefix="plan-probe-") as made, as_file(files("clusters")) as package:
        directory, target = Path(made), Path(made) / "clusters"
        skip = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(package / "probe", target / "probe", ignore=skip)
        shutil.copy(package / "__init__.py", target / "__init__.py")
        if request.entrypoint is not None and user_code is not None:
            top = request.entrypoint.partition(":")[0].partition(".")[0]
            if (user_code / top).is_dir():
                shutil.copytree(user_code / top, directory / top, ignore=skip)
            else:
                shutil.copy(user_code / f"{top}.py", directory)
        (directory / REQUEST_FILE).write_text(to_json(request), encoding="utf-8")
        yield directory


@contextmanager
def _stopping(jobs: Jobs, job_id: str, stop_s: float) -> Iterator[None]:
    """Leave no job running, whatever happens; a cluster that is gone has none."""
    try:
        yield
        _let_end(jobs, job_id, min(stop_s, LEAVE_S))
    finally:
        with suppress(JobsError):
            if stop_s > 0 and not jobs.state(job_id).ended:
                jobs.stop(job_id, stop_s)


def _let_end(jobs: Jobs, job_id: str, within_s: float) -> None:
    """Give a job that has said its result the time to leave by itself."""
    until = time.monotonic() + within_s
    with suppress(JobsError):
        while time.monotonic() < until and not jobs.state(job_id).ended:
            time.sleep(_TICK_S)


def _follow(
    jobs: Jobs, job_id: str, timeout_s: float, heard: _Heard, tell: Tell, log: Log
) -> Literal["said", "ended", "timeout", "lost"]:
    """Hear the job out until it has said its result, has ended, or the time is over; which of them it was."""
    until = heard.began + timeout_s
    try:
        for line in jobs.follow(job_id, _TICK_S):
            if line is not None and _hear(line, heard, tell, log):
                return "said"
            if time.monotonic() > until:
                return "timeout"
    except JobsError as error:
        heard.last.append(str(error))
        return "lost"
    return "ended"


def _hear(line: str, heard: _Heard, tell: Tell, log: Log) -> bool:
    """Take one line in; whether it was the result."""
    result = read_result(line)
    if result is not None:
        heard.result = result
        return True
    progress = read_progress(line)
    if progress is None:
        if line.strip():
            heard.last.append(line.strip())
            log(line)
        return False
    heard.phase = progress.phase
    tell(progress)
    return False


def _result(
    jobs: Jobs, job_id: str, heard: _Heard, ended: str, request: ProbeRequest, started: datetime
) -> ProbeResult:
    """The job's own result, or one that says what became of it."""
    if heard.result is not None:
        try:
            return ProbeResult.model_validate_json(heard.result)
        except ValidationError as error:
            heard.last.append(f"a result that cannot be read: {error.errors()[0]['msg']}")
    state = _state(jobs, job_id)
    kind: Literal["timeout", "worker-lost", "error"] = "error"
    if ended == "timeout":
        kind, said = "timeout", f"no result within {request.probe_timeout_s:.0f} s"
    elif ended == "lost" or state is None:
        kind, said = "worker-lost", "the cluster no longer answers"
    else:
        said = f"the job {state.status} without a result. {state.message}"
    failure = Failure(
        kind=kind, phase=heard.phase, rank=None, node=None, message=" ".join([said, *heard.last])[-2000:]
    )
    return ProbeResult(
        started=started,
        wall_s=time.monotonic() - heard.began,
        phase_s={},
        versions={},
        num_nodes=0,
        num_ranks=0,
        num_layers=_layers(request),
        num_params=None,
        failures=(failure,),
    )


def _dead(jobs: Jobs) -> dict[str, str]:
    """Addresses of hosts that Ray counts as dead, by the ids of their nodes; none where it does not answer.

    Ray lists a host that lost its power once its health checks have failed, also where another replaced it.
    """
    try:
        nodes = jobs.nodes()
    except JobsError:
        return {}
    return {str(n["NodeID"]): str(n["NodeManagerAddress"]) for n in nodes if not n["Alive"]}


def _with_lost_hosts(
    result: ProbeResult, dead: Mapping[str, str], dead_before: Mapping[str, str]
) -> ProbeResult:
    """Name the hosts that were lost during the probe, before what followed from it."""
    lost = [
        Failure(
            kind="worker-lost", phase=result.failures[0].phase, rank=None, node=dead[node],
            message=f"host {dead[node]} is lost, Ray counts its node as dead",
        )
        for node in sorted(dead.keys() - dead_before.keys(), key=lambda node: dead[node])
    ]  # fmt: skip
    return result.model_copy(update={"failures": (*lost, *result.failures)})


def _state(jobs: Jobs, job_id: str) -> JobState | None:
    """State of the job, ``None`` where the cluster does not answer."""
    try:
        return jobs.state(job_id)
    except JobsError:
        return None


def _layers(request: ProbeRequest) -> int:
    """Layers of the plan's model."""
    plan = request.plan
    run = plan.get("run") or (plan.get("candidate") or {}).get("run") or plan
    return int(run["model"]["num_layers"])
