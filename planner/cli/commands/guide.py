"""Commands that help to choose: ``table``."""

from __future__ import annotations

import typer

from planner.cli import guide_options as g
from planner.cli import options as o
from planner.cli.app import app, run_module


@app.command()
def table(
    context: typer.Context,
    params: g.Sizes = None,
    seq_len: o.SeqLen = None,
    micro_batch: o.MicroBatch = None,
    optimizer: o.Optimizer = None,
    headroom: o.Headroom = None,
    json: o.Json = False,
) -> None:
    """Show the least GPU memory, and the class of GPU that has it, by size of model."""
    run_module("table", context)
