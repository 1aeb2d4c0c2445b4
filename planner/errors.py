"""The one error that a user sees: what happened, on what, and a hint to paste."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. ``str(error)`` is the message, ``hint`` a command or flag, both one line."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class MissingCredentialsError(UserError):
    """Nothing is wrong with the question: who asks is not known to the provider."""


def did_you_mean(name: str, known: Iterable[str], count: int = 3) -> str:
    """``" (did you mean a, b?)"`` for the names nearest to ``name``, or an empty string."""
    by_lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=count, cutoff=0.5)
    return f" (did you mean {', '.join(by_lower[n] for n in near)}?)" if near else ""
