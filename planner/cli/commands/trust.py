"""Commands about how far predictions can be trusted: ``accuracy``, ``calibrate``."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module


@app.command()
def accuracy(context: typer.Context, by: o.By = None, json: o.Json = False) -> None:
    """Show how far predictions were from measured runs."""
    run_module("accuracy", context)


@app.command()
def calibrate(
    context: typer.Context, file: o.Measured = None, reset: o.Reset = False, json: o.Json = False
) -> None:
    """Correct predictions by runs that you measured."""
    run_module("calibrate", context)
