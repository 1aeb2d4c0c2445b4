"""Ray's cluster launcher: the only place that runs it, and the commands of a launch on its head.

Every call is a process group of its own with a time limit; what it says goes to a log of the launch, without
secrets. A step that fails raises a sorted ``CloudFault`` with the end of that log.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from clusters import watchdog
from clusters.backend import documents, shell, sorting
from clusters.backend.shell import Log
from clusters.config.ray_yaml import Document
from clusters.config.yaml_text import to_yaml
from clusters.faults import CloudFault
from clusters.scrub import scrubber
from planner.types import Record

TOKEN, DOCUMENT, LIMITS, LOG = "auth_token", "cluster.yaml", "limits.json", "launcher.log"
PORT = 8265
_SSH_SHARE, _SSH_LEAST_S = 0.5, 60.0  # of the time to create, how much a host may take until SSH answers
_PLAIN = ("--log-color", "false")
_DOWN_S = 180.0
_EXEC_S = 150.0  # `ray exec` itself, besides what it runs: it asks the cloud for all its types first


class Launcher(Record):
    """A launch's files and marks. ``extra_env``: for Ray's client, such as a profile of the cloud."""

    directory: str
    launch_id: str
    own_temp: bool  # Ray's files on the nodes lie apart: hosts that are not ours alone
    extra_env: tuple[tuple[str, str], ...] = ()

    def file(self, name: str) -> Path:
        """Path of a file of the launch."""
        return Path(self.directory) / name


def write_token(directory: Path) -> Path:
    """Make Ray's token, once; only this user can read it. Returns the path of its file."""
    path = directory / TOKEN
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with contextlib.suppress(FileExistsError), os.fdopen(os.open(path, flags, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return path


def up(launcher: Launcher, document: Document, limits: watchdog.Limits, timeout_s: float, log: Log) -> None:
    """Write the launch's document and run ``ray up``: the head is up, and starts its workers.

    Raises ``CloudFault``.
    """
    watchdog.write(str(launcher.file(LIMITS)), limits)
    made = documents.launch_document(
        document, launcher.launch_id, launcher.file(TOKEN), launcher.file(LIMITS), launcher.own_temp
    )
    launcher.file(DOCUMENT).write_text(to_yaml(made), encoding="utf-8")
    log(f"ray up   output: {launcher.file(LOG)}")
    wait = {"AUTOSCALER_NODE_START_WAIT_S": str(round(max(timeout_s * _SSH_SHARE, _SSH_LEAST_S)))}
    done = _ray(launcher, ["up", "-y", "--no-config-cache", *_PLAIN, _document(launcher)], timeout_s, wait)
    if not done.ok:
        raise sorting.of_launcher("ray up", done.said, timed_out=done.code is None)


def down(launcher: Launcher, log: Log) -> bool:
    """Run ``ray down``; says whether it ended well. It may fail: whoever calls looks at the cloud itself."""
    if not launcher.file(DOCUMENT).exists():
        return False
    log(f"ray down   output: {launcher.file(LOG)}")
    return _ray(launcher, ["down", "-y", *_PLAIN, _document(launcher)], _DOWN_S).ok


def wait_joined(
    launcher: Launcher, num_nodes: int, gpus_per_node: int, kind: str, timeout_s: float, log: Log
) -> tuple[int, int]:
    """Count on the head until all nodes of the right kind have joined; returns nodes and GPUs.

    Args:
        launcher: of the launch.
        num_nodes: that are wanted, with ``gpus_per_node`` GPUs each.
        gpus_per_node: GPUs of each.
        kind: resource that such a node has, ``accelerator_type:H100``; ``-`` = any.
        timeout_s: longest wait.
        log: for what is seen.

    Raises:
        CloudFault: ``not-joined``, or ``capacity``, ``quota``, ``permission`` where the head was told so.

    """
    words = f"joined {num_nodes} {gpus_per_node} {kind} {timeout_s:.0f}"
    done = on_head(launcher, words, timeout_s + _EXEC_S)
    seen, codes = joined_in(done.said)
    if done.ok and seen is not None and seen[0] >= num_nodes:
        log(f"{seen[0]} nodes with {seen[1]} GPUs have joined")
        return seen
    if seen is None and not codes:
        raise sorting.of_launcher("counting nodes on the head", done.said, timed_out=done.code is None)
    raise sorting.of_nodes(num_nodes, seen[0] if seen else 0, codes, done.said)


def joined_in(said: str) -> tuple[tuple[int, int] | None, str]:
    """Read what the watchdog's ``joined`` printed last: nodes and GPUs, and the cloud's error codes."""
    seen, codes = None, ""
    for line in said.splitlines():
        if line.startswith(watchdog.JOINED):
            counted = json.loads(line.removeprefix(watchdog.JOINED))
            seen = (int(counted["nodes"]), int(counted["gpus"]))
        elif line.startswith(watchdog.FAULT):
            codes = line.removeprefix(watchdog.FAULT).strip()
    return seen, codes


def spread(launcher: Launcher, limits: watchdog.Limits) -> int:
    """Write new limits on every node; returns on how many. Raises ``CloudFault``."""
    text = json.dumps(limits._asdict())
    where = f"{documents.home(launcher.launch_id)}/limits.json"
    done = on_head(launcher, f"spread {where} '{text}'", _EXEC_S)
    for line in done.said.splitlines():
        if line.startswith(watchdog.SET):
            return int(line.removeprefix(watchdog.SET))
    raise sorting.of_launcher("moving the limits", done.said, timed_out=done.code is None)


def on_head(launcher: Launcher, words: str, timeout_s: float) -> shell.Finished:
    """Run a command of the watchdog's file on the head, through ``ray exec``."""
    marks = documents.environment(launcher.launch_id, launcher.own_temp)
    command = f"{marks}; python {documents.home(launcher.launch_id)}/watchdog.py {words}"
    return _ray(launcher, ["exec", "--no-config-cache", *_PLAIN, _document(launcher), command], timeout_s)


def _ray(
    launcher: Launcher, words: list[str], timeout_s: float, more: Mapping[str, str] | None = None
) -> shell.Finished:
    """Run Ray's own command. Its client heeds the environment, so what we rely on is said in it."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": launcher.directory,  # where Ray leaves its document and its notes of the hosts
        "RAY_TMPDIR": launcher.directory,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(launcher.file(TOKEN)),
        **dict(launcher.extra_env),
        **(more or {}),
    }
    hidden = dict(environment)
    with contextlib.suppress(OSError):
        hidden["PLAN_RAY_TOKEN"] = launcher.file(TOKEN).read_text(encoding="utf-8")
    command = [sys.executable, "-m", "ray.scripts.scripts", *words]
    return shell.run(command, timeout_s, environment, launcher.file(LOG), scrubber(hidden))


def _document(launcher: Launcher) -> str:
    return str(launcher.file(DOCUMENT))


def refuse_without(launcher: Launcher) -> None:
    """Refuse to reach a cluster whose document was never written. Raises ``CloudFault``."""
    if not launcher.file(DOCUMENT).exists():
        raise CloudFault("unreachable", f"no cluster of {launcher.launch_id} was ever started from here")
