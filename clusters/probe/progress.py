"""Lines by which a probe on the cluster speaks to whoever started it: progress, and at last the result.

Ray mixes other lines in between, so each of ours begins with a word of its own and is whole JSON. Only the
standard library is imported.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

from .results import ProbeResult, to_json

PROGRESS = "PLAN_PROBE "
RESULT = "PLAN_PROBE_RESULT "


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a probe stands. ``rank``: who says so, ``None`` = the probe itself.

    ``done`` of ``of`` pieces of the phase. ``seconds_left`` until the probe's own deadline.
    """

    phase: str
    rank: int | None
    done: int
    of: int
    seconds_left: float


def progress_line(progress: Progress) -> str:
    """One line for the probe's output."""
    return PROGRESS + json.dumps(asdict(progress), allow_nan=False)


def result_line(result: ProbeResult) -> str:
    """Return the last line of the probe's output."""
    return RESULT + to_json(result)


def read_progress(line: str) -> Progress | None:
    """Progress that a line of output tells, ``None`` where it is any other line."""
    _, found, rest = line.partition(PROGRESS)
    if not found:
        return None
    try:
        return Progress(**json.loads(rest))
    except (ValueError, TypeError):
        return None  # cut off, or mixed with another line: the next one says more


def read_result(line: str) -> str | None:
    """JSON of the result that a line of output carries, ``None`` where it is any other line."""
    _, found, rest = line.partition(RESULT)
    return rest.strip() if found else None


def say(line: str) -> None:
    """Write one line to standard output at once, whole."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
