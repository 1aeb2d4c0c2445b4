"""Commands that explain the others: ``schema``, ``help``."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module
from planner.cli.options import guide as g


@app.command()
def schema(context: typer.Context, command: o.Command) -> None:
    """Print the JSON schema of what a command prints with --json."""
    run_module("schema", context)


@app.command("help")
def help_pages(
    context: typer.Context, page: g.HelpPage = None, markdown: g.Markdown = False, json: o.Json = False
) -> None:
    """Say what holds for all commands: conventions, exit-codes, environment."""
    run_module("help_pages", context)
