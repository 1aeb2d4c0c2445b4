"""Progress of a probe on stderr: a line that is drawn again on a terminal, one for each phase elsewhere."""

from __future__ import annotations

import os
import sys

from clusters.probe.progress import Progress
from planner import units

_TURNS = "|/-\\"


class ProgressLine:
    """Draws phase, rank, how much of it is done, and the time left. ``PLAN_NO_PROGRESS`` silences it."""

    def __init__(self) -> None:
        self._silent = bool(os.environ.get("PLAN_NO_PROGRESS"))
        self._terminal = sys.stderr.isatty()
        self._phase, self._turn, self._width = "", 0, 0

    def phase(self, words: str) -> None:
        """Say what is done on this side."""
        if self._silent:
            return
        if self._terminal:
            self._draw(words)
        else:
            sys.stderr.write(f"{words}\n")
            sys.stderr.flush()

    def tell(self, progress: Progress) -> None:
        """Draw what the cluster says."""
        if not self._terminal:
            if progress.phase != self._phase:
                self._phase = progress.phase
                self.phase(f"{progress.phase}, at most {units.duration(progress.seconds_left)} left")
            return
        self._turn += 1
        who = "" if progress.rank is None else f" rank {progress.rank}"
        done = f" {progress.done} of {progress.of}" if progress.of > 1 else ""
        left = units.duration(progress.seconds_left)
        self.phase(f"{_TURNS[self._turn % 4]} {progress.phase}{who}{done}, at most {left} left")

    def close(self) -> None:
        """Clear the line."""
        if self._terminal and not self._silent:
            self._draw("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _draw(self, words: str) -> None:
        sys.stderr.write("\r" + words.ljust(self._width))
        sys.stderr.flush()
        self._width = len(words)
