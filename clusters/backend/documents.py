"""The document of a launch: the emitted one, and what makes its parts be found again and ended.

Every process that Ray starts carries the launch's id. The token lies in a directory of the launch, and so
does the watchdog, which starts with Ray on every node.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import cast

from clusters import watchdog
from clusters.config.commands import ENV_DIR
from clusters.config.ray_yaml import Document

TEMP = "/tmp/plan-"  # Ray's own directory below it has sockets, whose paths are short
MOUNTED = "mounted.json"
GRACE_S = 120.0  # between SIGTERM and SIGKILL of a job: time for a checkpoint


def home(launch_id: str) -> str:
    """Directory of a launch on a node, below the home of its user."""
    return f"$HOME/.plan-{launch_id}"


def environment(launch_id: str, own_temp: bool) -> str:
    """Shell that marks what follows as the launch's. ``own_temp``: Ray's files apart from other Ray's."""
    temp = f" RAY_TMPDIR={TEMP}{launch_id}" if own_temp else ""
    return (
        f"export PATH={ENV_DIR}/bin:$PATH {watchdog.MARK}={launch_id} RAY_AUTH_MODE=token"
        f" RAY_AUTH_TOKEN_PATH={home(launch_id)}/auth_token RAY_JOB_STOP_WAIT_TIME_S={GRACE_S:.0f}"
        f" RAY_USAGE_STATS_ENABLED=0 SPT_NOENV=1{temp}"  # titles of processes must not overwrite the mark
    )


def launch_document(
    document: Document, launch_id: str, token: Path, limits: Path, shared_hosts: bool
) -> Document:
    """Add what a launch needs to an emitted Ray document.

    Args:
        document: as ``emit`` made it.
        launch_id: of the launch.
        token: file of Ray's token on this machine.
        limits: file of the watchdog's limits on this machine.
        shared_hosts: hosts that are not ours alone: other Ray there, and ``~/.ray``, are left alone.

    """
    made = copy.deepcopy(document)
    place = f"~/.plan-{launch_id}"
    mounts = cast(dict[str, str], made["file_mounts"])
    if shared_hosts:
        mounts.pop("~/.ray/auth_token", None)
    mounts |= {
        f"{place}/auth_token": str(token),
        f"{place}/watchdog.py": str(Path(watchdog.__file__)),
        f"{place}/{MOUNTED}": str(limits),
    }
    marks = environment(launch_id, own_temp=shared_hosts)
    for key, role in (("head_start_ray_commands", ""), ("worker_start_ray_commands", " node")):
        commands = [_unshared(c, launch_id) if shared_hosts else c for c in cast(list[str], made[key])]
        if shared_hosts:
            commands.insert(0, f"mkdir -p -m 700 {TEMP}{launch_id}")
        made[key] = [f"{marks}; {command}" for command in commands] + [_watch(launch_id, marks, role)]
    return made


def _unshared(command: str, launch_id: str) -> str:
    """``ray stop`` ends every Ray that it can see; on a shared host only ours may be ended."""
    if command != "ray stop":
        return command
    return f"python3 {home(launch_id)}/watchdog.py end {launch_id}"


def _watch(launch_id: str, marks: str, role: str) -> str:
    """Start the watchdog on a copy of the limits: Ray would set nodes up anew if a mounted file changed."""
    where = home(launch_id)
    return (
        f"{marks}; chmod 700 {where}; cp -n {where}/{MOUNTED} {where}/limits.json;"
        f" setsid nohup python {where}/watchdog.py watch {where}/limits.json{role}"
        f" >{where}/watchdog.log 2>&1 </dev/null &"
    )
