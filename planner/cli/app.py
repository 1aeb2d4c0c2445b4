"""The Typer app: commands are registered on it in ``commands/``, ``main`` runs it."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

app = typer.Typer(
    name="plan",
    help="Which GPUs, how many, laid out how, for how long, at what cost: and will it really fit?",
    rich_markup_mode=None,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    pretty_exceptions_enable=False,
)


def run_module(module: str, context: typer.Context) -> None:
    """Import the module of a command and run it with the options."""
    code = importlib.import_module(f"planner.cli.{module}").run(context.params)
    raise typer.Exit(code)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(installed("plan"))
        raise typer.Exit
