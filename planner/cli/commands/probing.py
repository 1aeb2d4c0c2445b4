"""Commands that measure what was planned: ``probe``."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module
from planner.cli.options import probe as p


@app.command()
def probe(
    context: typer.Context,
    plan: p.Plan = None,
    address: p.Address = None,
    auth_token_file: p.AuthTokenFile = None,
    params: o.Params = None,
    model: o.Model = None,
    spec: o.Spec = None,
    gpu: o.Gpus = None,
    seq_len: o.SeqLen = None,
    global_batch: o.GlobalBatch = None,
    precision: o.Precision = None,
    optimizer: o.Optimizer = None,
    micro_batch: o.MicroBatch = None,
    grad_accum: o.GradAccum = None,
    recompute: o.Recompute = None,
    zero: o.Zero = None,
    dp: o.Dp = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    headroom: o.Headroom = None,
    budget: o.Budget = None,
    only: p.Only = None,
    scale: p.Scale = None,
    repeat: p.Repeat = None,
    check_precision: p.CheckPrecision = False,
    entrypoint: p.Entrypoint = None,
    probe_timeout: o.ProbeTimeout = None,
    no_calibration: o.NoCalibration = False,
    json: o.Json = False,
    quiet: p.Quiet = False,
) -> None:
    """Measure a plan's own step, links and machines, and hold them against the prediction."""
    run_module("probe.run", context)
