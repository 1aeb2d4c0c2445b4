"""Commands that help to choose: ``table``, ``explain``."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module
from planner.cli.options import guide as g


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


@app.command()
def explain(
    context: typer.Context,
    topic: g.Topic = None,
    params: o.Params = None,
    model: o.Model = None,
    spec: o.Spec = None,
    gpu: o.OneGpu = None,
    gpus: o.NumGpus = None,
    gpus_per_node: o.GpusPerNode = None,
    interconnect: o.Link = None,
    tokens: o.Tokens = None,
    seq_len: o.SeqLen = None,
    precision: o.Precision = None,
    optimizer: o.Optimizer = None,
    micro_batch: o.MicroBatch = None,
    zero: o.Zero = None,
    headroom: o.Headroom = None,
    json: o.Json = False,
) -> None:
    """Explain a topic with the figures of your own model; alone: list the topics."""
    run_module("explain", context)
