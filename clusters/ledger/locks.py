"""One process at a time acts on a launch: a lock on a file, which the kernel drops when its holder dies.

The file names its holder (process id and when that process began), so that ``plan down`` can ask a running
``plan launch`` to end, and never signals a stranger that got the same number later.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.types import Record


class Holder(Record):
    """A process: its number, and when it began in clock ticks since boot (``""`` where nobody says)."""

    pid: int
    began: str


class HeldError(Exception):
    """Another process acts on this launch now."""

    def __init__(self, launch_id: str, holder: Holder | None) -> None:
        who = "another process" if holder is None else f"process {holder.pid}"
        super().__init__(f"{launch_id} is in the hands of {who}")
        self.holder = holder


@contextmanager
def held(directory: Path, launch_id: str) -> Iterator[None]:
    """Hold the lock of a launch. Raises ``HeldError`` at once where another process has it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{launch_id}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeldError(launch_id, _read(descriptor)) from None
        text = holder_of(os.getpid()).model_dump_json().encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)
        yield
    finally:
        os.close(descriptor)


def holder_of(pid: int) -> Holder:
    """Say who a process is now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2]
    except OSError:
        return Holder(pid=pid, began="")
    return Holder(pid=pid, began=fields.split()[19])


def is_same(holder: Holder) -> bool:
    """Whether the process of that number is still the one that held the lock."""
    return holder.began != "" and holder_of(holder.pid) == holder


def _read(descriptor: int) -> Holder | None:
    try:
        return Holder.model_validate_json(os.pread(descriptor, 1000, 0))
    except ValueError:
        return None  # it has the lock and has not written its name yet
