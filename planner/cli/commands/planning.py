"""Commands that answer before anything is rented: ``suggest``, ``estimate``, ``gpus``."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module


@app.command()
def suggest(
    context: typer.Context,
    params: o.Params = None,
    model: o.Model = None,
    spec: o.Spec = None,
    tokens: o.Tokens = None,
    seq_len: o.SeqLen = None,
    global_batch: o.GlobalBatch = None,
    method: o.Method = None,
    precision: o.Precision = None,
    optimizer: o.Optimizer = None,
    framework: o.Framework = None,
    loss: o.Loss = None,
    attention: o.Attention = None,
    compile: o.Compile = None,
    numerics: o.Numerics = None,
    optimizer_impl: o.OptimizerImpl = None,
    frozen_layers: o.FrozenLayers = None,
    lora_rank: o.LoraRank = None,
    lora_targets: o.LoraTargets = None,
    lora_dropout: o.LoraDropout = None,
    quant: o.Quant = None,
    budget: o.Budget = None,
    project: o.Project = None,
    deadline: o.Deadline = None,
    gpu: o.Gpus = None,
    provider: o.Providers = None,
    region: o.Regions = None,
    excluded: o.Excluded = None,
    market: o.Market = None,
    spot: o.Spot = False,
    own: o.OwnMachines = None,
    own_ray: o.OwnRay = None,
    price_list: o.PriceList = None,
    max_gpus: o.MaxGpus = None,
    stage: o.Stage = None,
    headroom: o.Headroom = None,
    no_checkpoints: o.NoCheckpoints = False,
    allow_slow_link: o.SlowLink = False,
    micro_batch: o.MicroBatch = None,
    grad_accum: o.GradAccum = None,
    recompute: o.Recompute = None,
    zero: o.Zero = None,
    shard_group: o.ShardGroup = None,
    dp: o.Dp = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    cp: o.Cp = None,
    ep: o.Ep = None,
    etp: o.Etp = None,
    interleave: o.Interleave = None,
    sequence_parallel: o.SequenceParallel = None,
    offload: o.Offload = None,
    no_calibration: o.NoCalibration = False,
    start: o.From = None,
    upload_mbit: o.UploadMbit = None,
    sort: o.Sort = None,
    top: o.Top = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    out: o.Out = None,
) -> None:
    """Rank GPUs, counts and layouts that train a model within a budget."""
    run_module("suggest", context)


@app.command()
def estimate(
    context: typer.Context,
    plan_id: o.PlanId = None,
    runs: o.Runs = None,
    params: o.Params = None,
    model: o.Model = None,
    spec: o.Spec = None,
    gpu: o.OneGpu = None,
    gpus: o.NumGpus = None,
    gpus_per_node: o.GpusPerNode = None,
    interconnect: o.Link = None,
    tokens: o.Tokens = None,
    seq_len: o.SeqLen = None,
    global_batch: o.GlobalBatch = None,
    method: o.Method = None,
    precision: o.Precision = None,
    optimizer: o.Optimizer = None,
    framework: o.Framework = None,
    loss: o.Loss = None,
    attention: o.Attention = None,
    compile: o.Compile = None,
    numerics: o.Numerics = None,
    optimizer_impl: o.OptimizerImpl = None,
    frozen_layers: o.FrozenLayers = None,
    lora_rank: o.LoraRank = None,
    lora_targets: o.LoraTargets = None,
    lora_dropout: o.LoraDropout = None,
    quant: o.Quant = None,
    headroom: o.Headroom = None,
    micro_batch: o.MicroBatch = None,
    grad_accum: o.GradAccum = None,
    recompute: o.Recompute = None,
    zero: o.Zero = None,
    shard_group: o.ShardGroup = None,
    dp: o.Dp = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    cp: o.Cp = None,
    ep: o.Ep = None,
    etp: o.Etp = None,
    interleave: o.Interleave = None,
    sequence_parallel: o.SequenceParallel = None,
    offload: o.Offload = None,
    no_calibration: o.NoCalibration = False,
    explain: o.Explain = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Show where memory and time go, for a plan, for one run, or for a file of runs."""
    run_module("estimate", context)


@app.command()
def gpus(
    context: typer.Context, names: o.GpuNames = None, json: o.Json = False, quiet: o.Quiet = False
) -> None:
    """List GPUs: class, memory, bandwidth, dense FLOPS, link, ECC, cheapest offer."""
    run_module("gpu_table", context)
