"""Tools of the machine, run for a bounded time, and readings made of what they say."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ..results import Reading

KILLED_S = 1.0  # a killed tool may take so long to go; one that is stuck in its driver never does


@dataclass(frozen=True, slots=True)
class Said:
    """What a tool printed; ``text`` is ``None`` where it cannot be believed, for the reason in ``why``."""

    text: str | None
    why: str = ""


def run_tool(command: tuple[str, ...], timeout_s: float) -> Said:
    """Run a tool. Absent, failing, silent too long: each is a reason, never an empty answer.

    The tool's whole process group is killed when time is up, and not waited for: a tool that hangs in a
    driver call does not react to signals.
    """
    name = command[0]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Said(None, f"{name} cannot be run: {error.strerror or error}")
    try:
        printed, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Said(None, f"{name} did not answer within {timeout_s:.0f} s")
    text = printed.decode(errors="replace")
    if process.returncode != 0:
        return Said(None, f"{name} failed (exit {process.returncode}): {_first_line(text)}")
    return Said(text)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a tool and its children without waiting for what cannot be ended."""
    os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(KILLED_S)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL  # nobody waits for it any more


def _first_line(text: str) -> str:
    """First line that says something, cut to what fits a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:120] if lines else "it printed nothing"


def read_file(path: str | Path) -> Said:
    """Content of a file of the system, without blanks around it."""
    try:
        return Said(Path(path).read_text(errors="replace").strip())
    except OSError as error:
        return Said(None, f"{path} cannot be read: {error.strerror or error}")


def unread(name: str, why: str, expected: str | None = None) -> Reading:
    """A value that could not be read: it has not passed."""
    return Reading(name=name, value=None, expected=expected, passed=False, why=why)


def shown(name: str, value: str | None, why: str = "") -> Reading:
    """A value of which nothing is expected."""
    return Reading(name=name, value=value, why=why)


def judged(name: str, value: str, expected: str, passed: bool, why: str = "") -> Reading:
    """A value against what is expected of it; ``why`` is said only where it did not pass."""
    return Reading(name=name, value=value, expected=expected, passed=passed, why="" if passed else why)
