"""``plan``: the entry point, and how what went wrong becomes a message and an exit code.

Nothing heavy is imported before a command runs.
The answer goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

import typer

from planner.cli import commands, text  # noqa: F401 (registers every command)
from planner.cli.app import app
from planner.errors import MissingCredentialsError, UserError
from planner.exits import BAD_INPUT, FAILED, INTERRUPTED, NO_CREDENTIALS


def main() -> None:
    """Entry point of the console script: a short process that has no use for two things that take time."""
    gc.disable()  # what imports and a search leave behind is less than the collector takes
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # searched for in every installed package
    _open_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Every error of the user is one message and a hint."""
    try:
        code = app(list(arguments) or ["--help"], prog_name="plan", standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED:  # Typer turns the interrupt into this exit code
            raise KeyboardInterrupt
    except MissingCredentialsError as error:
        _complain(str(error), error.hint)
        return NO_CREDENTIALS
    except UserError as error:
        return _complain(str(error), error.hint or _help_of(arguments))
    except typer.TyperException as error:
        return _complain(error.format_message(), _help_of(arguments))
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return FAILED
    except OSError as error:  # a full disk under stdout; files that the user names have their own messages
        _drop_output()
        where = f" ({error.filename})" if error.filename else ""
        sys.stderr.write(f"error: the answer was not written: {error.strerror or error}{where}\n")
        return FAILED
    return code if isinstance(code, int) else 0


def _open_streams() -> None:
    """Put an empty file where a stream was closed before we started, so that nothing need ask for it."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _drop_output() -> None:
    """Send what is still buffered nowhere, or Python complains about it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, hint: str) -> int:
    """Say what happened, and what to do, on stderr."""
    sys.stderr.write(text.complaint(message, hint))
    return BAD_INPUT


def _help_of(arguments: Sequence[str]) -> str:
    """Name the help page that knows the options of this command line."""
    known = {c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands}
    known |= {str(g.name) for g in app.registered_groups}
    named = [a for a in arguments[:1] if a in known]
    return " ".join(["plan", *named, "--help"])
