"""Ctrl-C and its kin: before commit they raise once, and what is being cleaned up is never cut short."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, n))


class Interrupted(KeyboardInterrupt):
    """The user, or the system, asked to end. Raised where the launch stands."""


class Interrupts:
    """Signals as ``Interrupted``: raised once, then only ``noted``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._armed = False
        self.noted = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch signals while a launch runs. Only the main thread gets any."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        self._armed = True
        try:
            yield
        finally:
            self._armed = False
            for number, handler in before.items():
                signal.signal(number, handler)

    def hold(self) -> None:
        """From now on a signal is noted and does not raise: a teardown goes on to its end."""
        self._armed = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise Interrupted(signal.Signals(number).name)
        self.noted = True
        self._say("still tearing down; what is left may cost money, so this goes on to its end")
