"""Commands of others, run in bounds: a process group of their own, a time limit, a log without secrets."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from planner.types import Record

_KEPT_LINES = 200
_GRACE_S = 5.0
Scrub = Callable[[str], str]
Log = Callable[[str], None]  # is told what goes on, line by line


class Finished(Record):
    """How a command ended. ``code`` is ``None`` where it was ended for taking too long; ``said``: its end."""

    code: int | None
    said: str

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, and well."""
        return self.code == 0


def run(
    command: Sequence[str],
    timeout_s: float,
    environment: Mapping[str, str],
    log: Path,
    scrub: Scrub,
    text_in: str | None = None,
) -> Finished:
    """Run a command to its end or to ``timeout_s``; what it says goes to ``log`` line by line, through
    ``scrub``.

    Whatever ends us, an interrupt too, ends its whole process group.
    """
    process = subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL if text_in is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    reader = threading.Thread(target=_read, args=(process.stdout, log, scrub, lines), daemon=True)
    reader.start()
    code: int | None = None
    try:
        _feed(process, text_in)
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        lines.append(f"(ended after {timeout_s:.0f} s)")
    finally:
        _end_group(process)
        reader.join(_GRACE_S)  # a background ssh of Ray's may hold the pipe open for longer
    return Finished(code=code, said="\n".join(lines))


def _feed(process: subprocess.Popen[str], text_in: str | None) -> None:
    if text_in is not None and process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(text_in)


def _read(out: IO[str] | None, log: Path, scrub: Scrub, lines: deque[str]) -> None:
    assert out is not None
    private = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(private, "a", encoding="utf-8") as file, out:
        for line in out:
            shown = scrub(line.rstrip("\n"))
            lines.append(shown)
            file.write(shown + "\n")
            file.flush()


def _end_group(process: subprocess.Popen[str]) -> None:
    """End what is left of a process group: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        if process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
