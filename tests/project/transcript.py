"""Transcripts of commands for the README: run on a fixed day, with nothing of this user's own.

``cog -r README.md README.zh-CN.md`` writes them, ``cog --check`` is a test. Prices age, and a screen says how
old they are: so the day is fixed, and stands in the README beside the transcript.
"""

import contextlib
import io
import os
import shlex
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import time_machine

from planner.cli import main

DAY = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def transcript(*commands: str) -> str:
    """Return what the commands print, one after another, each below its own line."""
    said = []
    with tempfile.TemporaryDirectory() as directory:
        mine = {
            "PLAN_DATA_DIR": str(Path(directory) / "data"),
            "PLAN_CACHE_DIR": str(Path(directory) / "cache"),
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }
        with mock.patch.dict(os.environ, mine), time_machine.travel(DAY, tick=False):
            for command in commands:
                said.append(f"$ {command}\n{_output(command)}")
    return "\n".join(said)


def _output(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), mock.patch("sys.argv", shlex.split(command)):
        main.run(shlex.split(command)[1:])
    return out.getvalue()


def show(*commands: str) -> None:
    """Write the commands and what they print into the file that cog reads."""
    _write(f"```text\n{transcript(*commands).rstrip()}\n```")


def quote(name: str) -> None:
    """Write what stands in README.md between ``<!-- name`` and ``<!-- /name -->``, so that both agree."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    begins = readme.index("-->", readme.index(f"<!-- {name}")) + len("-->")
    _write(readme[begins : readme.index(f"<!-- /{name} -->")].strip())


def _write(text: str) -> None:
    import cog  # looked up each time: every Cog of a process brings a module of its own

    cog.outl(text)
