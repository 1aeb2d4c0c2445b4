"""What a launch shows while it runs: lines for people on stderr, or events as JSON lines on stdout."""

from __future__ import annotations

import contextlib
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

from clusters.clouds.base import PreflightCheck
from clusters.launch.nouns import Confirmation, Finished
from clusters.scrub import scrubber
from planner import spend
from planner.cli import text
from planner.cli.screens import launch as screens_launch
from planner.launched import Event, Launch
from planner.probed import ProbeVerdict


class TerminalScreen:
    """For people: the price, the verdict and the end on stdout, everything on the way on stderr."""

    def __init__(self) -> None:
        self._scrub = scrubber(os.environ)
        self._began: datetime | None = None

    def event(self, event: Event) -> None:
        """One line a state; how it ended is said by ``finished``."""
        self._began = self._began or event.time
        if event.outcome is None:
            self.say(screens_launch.event(event, self._began))

    def say(self, said: str) -> None:
        """A line of progress or of a log."""
        _write(sys.stderr, self._scrub(said))

    def complain(self, message: str, hint: str) -> None:
        """An error that stops the command, as ``main`` writes it."""
        _write(sys.stderr, self._scrub(text.complaint(message, hint).rstrip("\n")))

    def checks(self, checks: tuple[PreflightCheck, ...]) -> None:
        """What was looked at."""
        self.say(screens_launch.checks(checks, text.terminal()))

    def confirmation(self, confirmation: Confirmation) -> None:
        """What it costs, before the question."""
        _write(sys.stdout, screens_launch.confirmation(confirmation, datetime.now(UTC), text.terminal()))

    def verdict(self, verdict: ProbeVerdict, launch: Launch) -> None:
        """Prediction against measurement."""
        from planner.cli.screens import probe as screens_probe

        term = text.terminal()
        lines = [*screens_probe.checks(verdict.checks, term), "", *screens_probe.conclusion(verdict, term)]
        _write(sys.stdout, self._scrub("\n".join(lines)))

    def finished(self, finished: Finished, launch: Launch) -> None:
        """How it ended: the answer on stdout, the hint on stderr."""
        found = spend.spent(launch, datetime.now(UTC))
        spent = None if "node" in found.unknown else found.usd
        _write(sys.stdout, self._scrub(screens_launch.ended(finished, spent, text.terminal())))
        if hint := screens_launch.hint(finished):
            self.say(hint)


class JsonScreen(TerminalScreen):
    """For scripts: one event a line on stdout; prices and logs still go to stderr."""

    def event(self, event: Event) -> None:
        """One line of JSON."""
        _write(sys.stdout, self._scrub(event.model_dump_json()))

    def confirmation(self, confirmation: Confirmation) -> None:
        """What it costs, before the question."""
        self.say(screens_launch.confirmation(confirmation, datetime.now(UTC), text.terminal()))

    def verdict(self, verdict: ProbeVerdict, launch: Launch) -> None:
        """Stands in the ledger and in the report."""

    def finished(self, finished: Finished, launch: Launch) -> None:
        """The last event has said it; the hint is for people."""
        self.say(screens_launch.ended(finished, None, text.terminal()))
        if hint := screens_launch.hint(finished):
            self.say(hint)


class QuietScreen(TerminalScreen):
    """For ``--quiet``: the price where it is asked for, the launch's id at the end, and what may bill."""

    def event(self, event: Event) -> None:
        """Not shown."""

    def say(self, said: str) -> None:
        """Not shown."""

    def verdict(self, verdict: ProbeVerdict, launch: Launch) -> None:
        """Not shown."""

    def finished(self, finished: Finished, launch: Launch) -> None:
        """The id; what is not well is said all the same."""
        _write(sys.stdout, finished.launch_id)
        if finished.exit_code:
            _write(sys.stderr, self._scrub(screens_launch.ended(finished, None, text.terminal())))
            _write(sys.stderr, self._scrub(screens_launch.hint(finished)))


def _write(stream: TextIO, said: str) -> None:
    """Write a line. A terminal or pipe that is gone must not keep a launch from being torn down."""
    with contextlib.suppress(OSError):
        stream.write(f"{said}\n")
        stream.flush()


def screen_for(json: bool, quiet: bool) -> TerminalScreen:
    """The screen that was asked for."""
    return JsonScreen() if json else QuietScreen() if quiet else TerminalScreen()
