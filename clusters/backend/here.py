"""A Ray of this machine: started by us, ended by us, and nothing but it.

``ray start --head`` and nothing else: no root, no sshd. Every process of it carries ``PLAN_RAY_ID`` in its
environment, with an id that nobody else has, and hands it on to what it starts: so it can be told from any
other Ray of this machine, also when Ray's workers and jobs have left its process group. ``ray stop``, which
ends other people's Ray, is never called. Whoever speaks to it needs a token; dashboard and job submission
listen on the loopback only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import requests

from planner.types import Record

MARK = "PLAN_RAY_ID"
LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
_TRIES = 3  # a port that was free may be taken a moment later
_LOOK_EVERY_S = 0.1
_QUIET_LOOKS = 4
_REQUEST_S = 5.0
_END_OF_LOG = 2000
_PASSING = ("port", "deadline exceeded")  # a port that was taken meanwhile, a machine that is too busy
_TMP = "tmp"
_RAY = "ray"  # below our own directory: Ray opens its own to everybody


class LocalRayError(Exception):
    """Ray did not start here, or something of it is still there. The message says what."""


class LocalRay(Record):
    """A Ray that runs here. ``id`` stands in the environment of its processes; the token only in its file."""

    id: str
    address: str  # of job submission
    gcs_address: str  # of ``ray.init``
    directory: str
    auth_token_path: str


class Wanted(Record):
    """What a Ray of this machine offers its jobs. ``None``: what Ray itself finds.

    ``environment``: names and values that its processes get besides ours.
    """

    num_cpus: int | None = None
    num_gpus: int | None = None
    object_store_bytes: int | None = None
    start_timeout_s: float = START_TIMEOUT_S
    environment: tuple[tuple[str, str], ...] = ()


def new_id() -> str:
    """Make an id that nobody else has: write it down before ``start``, and ``stop`` can always be called."""
    return uuid.uuid4().hex[:16]


def directory_of(ray_id: str) -> Path:
    """Directory of a Ray's logs, sockets and token. Short: a socket's path has about 100 bytes."""
    base = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
    return base / f"plan-ray-{ray_id}"


def start(ray_id: str, wanted: Wanted = Wanted()) -> LocalRay:  # noqa: B008 (frozen)
    """Start Ray on this machine; returns once jobs can be submitted.

    What was begun is ended again where it fails. Raises ``LocalRayError`` with the end of Ray's own output.
    """
    directory = directory_of(ray_id)
    try:
        directory.mkdir(mode=0o700)  # exclusive: nobody put one there before us
    except OSError as error:
        raise LocalRayError(f"cannot make {directory}: {error.strerror}") from None
    token = directory / "auth_token"
    with contextlib.ExitStack() as undo:
        undo.callback(stop, ray_id)
        (directory / _TMP).mkdir()
        _write_token(token)
        for tries_left in reversed(range(_TRIES)):
            found = _tried(ray_id, directory, token, wanted)
            if isinstance(found, LocalRay):
                undo.pop_all()
                return found
            _end_processes(ray_id, STOP_TIMEOUT_S)
            if not tries_left or not any(word in found.lower() for word in _PASSING):
                raise LocalRayError(f"ray start failed: {found}")
    raise AssertionError("unreachable")


def stop(ray_id: str, timeout_s: float = STOP_TIMEOUT_S) -> None:
    """End what ``start`` began, and delete its directory and token. Repeatable; nothing else is touched.

    Raises ``LocalRayError`` where something is still there after ``timeout_s``.
    """
    _end_processes(ray_id, timeout_s)
    directory = directory_of(ray_id)
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        raise LocalRayError(f"{directory} could not be deleted")


def processes(ray_id: str) -> tuple[int, ...]:
    """Ids of the processes of this Ray and of its jobs that are alive."""
    wanted = f"{MARK}={ray_id}".encode()
    return tuple(pid for pid, variables in _environments() if wanted in variables)


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    """Environment of each process that we may look into: ``NAME=value`` each.

    Read as it is where there is a ``/proc``: a process that has set its own title may have blanked the
    beginning, and psutil ends at the first blank.
    """
    proc = Path("/proc")
    if not (proc / "self/environ").exists():
        import ray  # noqa: F401, I001 (brings psutil along)
        import psutil  # type: ignore[import-untyped]

        for each in psutil.process_iter(["pid", "environ"]):
            yield each.info["pid"], [f"{k}={v}".encode() for k, v in (each.info["environ"] or {}).items()]
        return
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
                yield int(entry.name), (entry / "environ").read_bytes().split(b"\0")


@contextlib.contextmanager
def running(wanted: Wanted = Wanted(), ray_id: str | None = None) -> Iterator[LocalRay]:  # noqa: B008
    """Run a Ray as long as the block does, whatever ends it: an error, Ctrl-C, SIGTERM, even SIGKILL."""
    ray_id = ray_id or new_id()
    with _guarded(ray_id), _signals_raise():
        try:
            yield start(ray_id, wanted)
        finally:
            with _signals_ignored():
                stop(ray_id)


_GUARD = """\
import sys
sys.stdin.read()
from clusters.backend.here import stop
stop(sys.argv[1])
"""


@contextlib.contextmanager
def _guarded(ray_id: str) -> Iterator[None]:
    """Have another process end this Ray should ours be killed: its end of a pipe is closed then."""
    guard = subprocess.Popen(
        [sys.executable, "-P", "-c", _GUARD, ray_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


# ----------------------------------------------------------------------------------------- start


def _tried(ray_id: str, directory: Path, token: Path, wanted: Wanted) -> LocalRay | str:
    """One attempt: the Ray that answers, or the end of what was said instead."""
    until = time.monotonic() + wanted.start_timeout_s
    dashboard, client, agent = _free_ports(3)
    log = directory / "start.log"
    with log.open("ab") as out:
        starting = subprocess.Popen(
            _command(directory / _RAY, wanted, dashboard, client, agent),
            env={**_environment(ray_id, token, directory / _TMP), **dict(wanted.environment)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code: int | None = starting.wait(wanted.start_timeout_s)
    except subprocess.TimeoutExpired:
        code = None
    address = f"http://{LOOPBACK}:{dashboard}"
    if code == 0 and _answers(address, token, until):
        return LocalRay(
            id=ray_id,
            address=address,
            gcs_address=(directory / _RAY / "ray_current_cluster").read_text(encoding="utf-8").strip(),
            directory=str(directory),
            auth_token_path=str(token),
        )
    said = log.read_text(encoding="utf-8", errors="replace")[-_END_OF_LOG:]
    waited = f"no answer within {wanted.start_timeout_s:.0f} s. " if code in (0, None) else ""
    return waited + " ".join(said.split())


def _command(directory: Path, wanted: Wanted, dashboard: int, client: int, agent: int) -> list[str]:
    """``ray start`` with ports of its own, so that another Ray of this machine is not in the way."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--disable-usage-stats"]
    command += ["--port=0", f"--ray-client-server-port={client}"]
    command += [f"--dashboard-host={LOOPBACK}", f"--dashboard-port={dashboard}", "--include-dashboard=true"]
    command += [f"--dashboard-agent-listen-port={agent}", f"--temp-dir={directory}", "--no-monitor"]
    command += ["--min-worker-port=0", "--max-worker-port=0"]
    for flag, value in (
        ("--num-cpus", wanted.num_cpus),
        ("--num-gpus", wanted.num_gpus),
        ("--object-store-memory", wanted.object_store_bytes),
    ):
        if value is not None:
            command.append(f"{flag}={value}")
    return command


def _environment(ray_id: str, token: Path, temporary: Path) -> dict[str, str]:
    """The user's environment without settings of another Ray; the token goes by its path.

    What Ray, torch and jobs leave among temporary files is deleted with the directory.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept | {
        MARK: ray_id,
        "SPT_NOENV": "1",  # titles of Ray's processes must not overwrite the mark
        "TMPDIR": str(temporary),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
    }


def _write_token(path: Path) -> None:
    """Write a fresh token that only this user can read, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))


def _free_ports(count: int) -> list[int]:
    """Ports that are free now, all different."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in held]


def _answers(address: str, token: Path, until: float) -> bool:
    """Wait until job submission answers."""
    headers = {"Authorization": f"Bearer {token.read_text(encoding='utf-8')}"}
    while time.monotonic() < until:
        try:
            if requests.get(f"{address}/api/version", headers=headers, timeout=_REQUEST_S).ok:
                return True
        except requests.RequestException:
            time.sleep(_LOOK_EVERY_S)
    return False


# ----------------------------------------------------------------------------------------- end


def _end_processes(ray_id: str, timeout_s: float) -> None:
    """Kill what carries the id until nothing does, several looks in a row.

    What dies may have started something else meanwhile, and a process shows no environment for the instant in
    which it becomes another program.
    """
    until = time.monotonic() + timeout_s
    quiet = 0
    while quiet < _QUIET_LOOKS:
        left = processes(ray_id)
        quiet = 0 if left else quiet + 1
        if left and time.monotonic() > until:
            raise LocalRayError(f"processes of Ray {ray_id} still run: {', '.join(map(str, left))}")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_EVERY_S)


_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise ``SystemExit``, as Ctrl-C raises, so that what was begun is ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """A second Ctrl-C must not keep the first from being carried out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, *_ENDING)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
