"""``plan probe``: run a plan's own step where it shall run, and hold what is measured against the plan."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import typer

from clusters import probing
from clusters.backend import here
from clusters.backend.jobs import Jobs, JobsError, connect
from clusters.probing import ProbeError, Wishes
from planner import units
from planner.cli import calibration_store, store, text
from planner.cli.probe.documents import ProbeDocument, document
from planner.cli.probe.progress import ProgressLine
from planner.cli.probe.subject import Found, found_here, found_on, subject_of
from planner.cli.request import Options, has_host
from planner.cli.screens import probe as screens_probe
from planner.errors import MissingCredentialsError, UserError
from planner.probed import ProbeResult
from planner.trust.measured import measured_run
from planner.verdict import Subject, judge
from planner.verdict.subject import predicted_part

PASSED, NOT_RUN, FAILED = 0, 1, 5
DEFAULT_TIMEOUT_S = 600.0
_OBJECT_STORE_BYTES = 128 * 2**20
PROBES = Path(".plan") / "probes"


class _NotRunError(Exception):
    """Nothing was measured, and not because of what the user asked for."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def run(options: Options) -> int:
    """Probe, judge, print, keep; returns 0 where it passed, 5 where it did not, 1 where it did not run."""
    wishes = _wishes(options)
    progress = ProgressLine()
    try:
        if options["address"] is None:
            subject, result = _here(options, wishes, progress)
        else:
            subject, result = _there(options, wishes, progress)
    except _NotRunError as error:
        progress.close()
        sys.stderr.write(text.complaint(str(error), error.hint))
        return NOT_RUN
    finally:
        progress.close()
    known = calibration_store.known(options)
    verdict = judge(subject, result, known)
    plan_id = None if options["plan"] is None else store.find(options["plan"]).id
    found = document(subject, predicted_part(subject, result, known), result, verdict, plan_id)
    saved = _save(found)
    keep_measured(subject, result)
    _show(found, saved, options)
    return PASSED if verdict.verdict == "pass" else FAILED


def _wishes(options: Options) -> Wishes:
    """How the probe shall be."""
    repeat, timeout = options["repeat"], options["probe_timeout"]
    scale = (options["scale"] or "none").strip().lower()
    if scale not in ("none", "auto"):
        scale = str(_whole(scale, "--scale", 10_000, "--scale auto   or a number of layers: --scale 8"))
    entrypoint = options["entrypoint"]
    if entrypoint is not None and not all(entrypoint.partition(":")):
        raise UserError(f"--entrypoint {entrypoint!r:.80} is not MODULE:FUNCTION", "--entrypoint train:loop")
    if entrypoint is not None and not _user_code(entrypoint).exists():
        raise UserError(f"--entrypoint: no {_user_code(entrypoint)} here", "run it where the module lies")
    return Wishes(
        scale=scale,
        repeat=1 if repeat is None else _whole(repeat, "--repeat", 1000, "--repeat 3   (1 to 1,000)"),
        check_precision=options["check_precision"],
        entrypoint=entrypoint,
        probe_timeout_s=DEFAULT_TIMEOUT_S
        if timeout is None
        else units.parse_duration(timeout, "--probe-timeout"),
    )


def _whole(given: str, option: str, high: int, hint: str) -> int:
    """Read a small whole number; the hint is the option's own, not that of a number of parameters."""
    try:
        return units.parse_int(given, option, high=high)
    except UserError as error:
        raise UserError(str(error), hint) from None


def _user_code(entrypoint: str) -> Path:
    """File or directory of the module, looked for in the current directory."""
    top = entrypoint.partition(":")[0].partition(".")[0]
    return Path(top) if Path(top).is_dir() else Path(f"{top}.py")


# --------------------------------------------------------------------------------------- where


def _here(options: Options, wishes: Wishes, progress: ProgressLine) -> tuple[Subject, ProbeResult]:
    """Start a Ray of this machine, probe on it, end it."""
    for module, extra in (("torch", "plan[probe]"), ("ray", "plan")):
        if importlib.util.find_spec(module) is None:
            raise UserError(
                f"{module} is not installed here, and the probe runs on it", f"pip install '{extra}'"
            )
    found = found_here()
    subject = subject_of(options, found)
    cores = max(os.cpu_count() or 1, subject.num_ranks)
    wanted = here.Wanted(num_cpus=cores, object_store_bytes=_OBJECT_STORE_BYTES)
    progress.phase("starting Ray on this machine")
    try:
        with here.running(wanted) as ray:
            jobs = connect(ray.address, ray.auth_token_path)
            return subject, _probe(jobs, subject, wishes, options, progress, ours=True)
    except here.LocalRayError as error:
        raise _NotRunError(str(error), "plan probe --address http://HEAD:8265   (a Ray that runs)") from None
    except JobsError as error:
        raise _NotRunError(str(error), "plan probe") from None


def _there(options: Options, wishes: Wishes, progress: ProgressLine) -> tuple[Subject, ProbeResult]:
    """Probe on a cluster that runs; nothing of it is started or ended but the probe's job."""
    address = options["address"]
    if address != "auto" and not has_host(address):
        raise UserError(f"--address {address!r:.80} is neither auto nor http://HEAD:8265", "--address auto")
    progress.phase(f"reaching {address}")
    try:
        jobs = connect(address, options["auth_token_file"])
        found = Found(None, 0, 1) if options["plan"] is not None else found_on(jobs.nodes(), options["gpu"])
        subject = subject_of(options, found)
        return subject, _probe(jobs, subject, wishes, options, progress, ours=False)
    except JobsError as error:
        if error.kind == "forbidden":
            raise MissingCredentialsError(str(error), "plan probe --auth-token-file FILE") from None
        raise _NotRunError(str(error), "ray status; plan probe --address http://HEAD:8265") from None


def _probe(
    jobs: Jobs, subject: Subject, wishes: Wishes, options: Options, progress: ProgressLine, *, ours: bool
) -> ProbeResult:
    """Run the job. On a Ray of ours nothing needs to be stopped: it ends with it."""
    plan_id = None if options["plan"] is None else store.find(options["plan"]).id
    try:
        request = probing.request_of(subject, wishes, plan_id)
    except ValueError as error:
        raise UserError(str(error), "plan probe --help") from None
    progress.phase("submitting the probe")
    try:
        return probing.probe(
            jobs,
            request,
            progress.tell,
            lambda line: None,
            python=sys.executable if ours else "python",
            user_code=Path.cwd(),
            stop_s=0.0 if ours else probing.STOP_S,
        )
    except ProbeError as error:
        raise _NotRunError(str(error), "ray job list --address http://HEAD:8265") from None


# --------------------------------------------------------------------------------------- what remains


def _show(found: ProbeDocument, saved: str | None, options: Options) -> None:
    if options["quiet"]:
        typer.echo(found.verdict)
    elif options["json"]:
        typer.echo(found.model_dump_json())
    else:
        typer.echo(screens_probe.probe(found, saved, text.terminal()))


def _save(found: ProbeDocument) -> str | None:
    """Write the document where the user works; ``None`` with a warning where that cannot be."""
    shape = found.run.shape
    name = f"{found.started:%Y-%m-%dT%H%MZ}-{shape.gpu}-{shape.num_nodes}x{shape.gpus_per_node}".lower()
    path = PROBES / f"{name}.json"
    try:
        store.write(path, found.model_dump_json())
    except OSError as error:
        store.warn(f"probe not saved: {path}: {error.strerror}")
        return None
    return str(path)


def keep_measured(subject: Subject, result: ProbeResult) -> None:
    """Let the next estimate rest on what was measured, where it was the plan's own step on GPUs."""
    line = None if subject.own_loop or result.failures else measured_run(subject.run, result)
    if line is None:
        return
    try:
        calibration_store.add(line)
    except (UserError, OSError) as error:
        store.warn(f"not kept as a measured run: {error}")
