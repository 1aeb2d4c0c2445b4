"""Commands that explain the others: ``schema``."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module


@app.command()
def schema(context: typer.Context, command: o.Command) -> None:
    """Print the JSON schema of what a command prints with --json."""
    run_module("schema", context)
