"""The way to a host: a command over SSH, bounded; a tunnel to a port of its loopback.

The user's own ``ssh`` does it, with the user's configuration and list of known hosts. A host that was never
seen is written down at first sight; one whose key has changed is refused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from clusters.faults import CloudFault
from planner.types import Record

_CONNECT_S = 10
_LOOK_EVERY_S = 0.1


class Way(Record):
    """How hosts are reached. ``proxy_command``: as of OpenSSH, or empty."""

    user: str
    key: str
    proxy_command: str = ""
    known_hosts: str = ""  # a file instead of the user's own

    def options(self) -> list[str]:
        """Options of ``ssh``: nobody is asked anything, and one key is offered."""
        said = ["BatchMode=yes", "StrictHostKeyChecking=accept-new", f"ConnectTimeout={_CONNECT_S}"]
        said += ["IdentitiesOnly=yes", "ServerAliveInterval=5", "ServerAliveCountMax=3", "LogLevel=ERROR"]
        if self.proxy_command:
            said.append(f"ProxyCommand={self.proxy_command}")
        if self.known_hosts:
            said.append(f"UserKnownHostsFile={self.known_hosts}")
        return ["-i", str(Path(self.key).expanduser()), *(word for one in said for word in ("-o", one))]

    def to(self, host: str, *command: str) -> list[str]:
        """Words of an ``ssh`` call."""
        return ["ssh", *self.options(), f"{self.user}@{host}", *command]


def ask(way: Way, host: str, command: str, timeout_s: float, text_in: str = "") -> str:
    """Run a command on a host; returns what it says.

    Raises ``CloudFault``: ``unreachable``, or ``setup`` with what the host said where the command failed.
    """
    try:
        done = subprocess.run(
            way.to(host, command), input=text_in, capture_output=True, text=True, errors="replace",
            timeout=timeout_s, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise CloudFault("parameter", "ssh was not found on this machine", "install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise CloudFault("unreachable", f"{host} did not answer within {timeout_s:.0f} s") from None
    said = " ".join(done.stderr.split())[-300:]
    if done.returncode == 255:  # of ssh itself
        raise CloudFault("unreachable", f"no SSH to {way.user}@{host}: {said}", _hint(way, host, said))
    if done.returncode:
        raise CloudFault("setup", f"{host} said: {said}", log=done.stderr[-4000:])
    return done.stdout


def _hint(way: Way, host: str, said: str) -> str:
    if "IDENTIFICATION HAS CHANGED" in said or "Host key verification failed" in said:
        return f"ssh-keygen -R {host}   (if the host is the right one and was set up anew)"
    return f"ssh -i {way.key} {way.user}@{host} true"


@contextlib.contextmanager
def tunnel(way: Way, host: str, port: int, timeout_s: float = 30.0) -> Iterator[int]:
    """Forward a free port of our loopback to ``port`` of the host's, as long as the block lasts.

    Raises ``CloudFault`` ``unreachable``.
    """
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        own = held.getsockname()[1]
    forward = ["-N", "-o", "ExitOnForwardFailure=yes", "-L", f"127.0.0.1:{own}:127.0.0.1:{port}"]
    process = subprocess.Popen(
        ["ssh", *way.options(), *forward, f"{way.user}@{host}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: the tunnel is needed to end things
    )
    try:
        _wait_open(process, own, way, host, timeout_s)
        yield own
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate()


def _wait_open(process: subprocess.Popen[str], port: int, way: Way, host: str, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if process.poll() is not None:
            said = " ".join((process.stderr.read() if process.stderr else "").split())[-300:]
            raise CloudFault("unreachable", f"no tunnel to {host}: {said}", _hint(way, host, said))
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(_LOOK_EVERY_S)
    raise CloudFault("unreachable", f"no tunnel to {host} within {timeout_s:.0f} s", _hint(way, host, ""))
