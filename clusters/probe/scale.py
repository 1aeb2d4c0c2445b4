"""How many layers of the model a probe runs: all, or fewer where all cannot fit or a step would take long.

Two depths give what one layer adds; the whole model's peak follows from them. Which depths is reckoned
roughly here, from counts only; what is compared with the prediction is measured.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .model import count_on_meta
from .spec import Model, Run

# Share of what is free that a rough figure may fill, and what states alone are multiplied with where the
# planner's figure is not there: activations and scratch are not reckoned here.
SAFE_SHARE = 0.8
ACTIVATIONS = 1.5
# Share of a large matrix multiply's rate that a step is taken to reach
STEP_EFFICIENCY = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What bounds a step on the weakest rank. ``flops_per_s``: of a large matrix multiply."""

    free_bytes: float
    flops_per_s: float
    max_step_s: float
    predicted_bytes: float | None


def cut(run: Run, num_layers: int) -> Run:
    """Return the run with fewer layers, all else equal; layers with a sliding window keep their share."""
    model = run.model
    local = model.local_layers
    fewer = dataclasses.replace(
        model,
        num_layers=num_layers,
        local_layers=None if local is None else round(local * num_layers / model.num_layers),
    )
    frozen = min(run.training.frozen_layers, num_layers)
    return dataclasses.replace(
        run, model=fewer, training=dataclasses.replace(run.training, frozen_layers=frozen)
    )


def depths(run: Run, scale: str, limits: Limits) -> tuple[int, ...]:
    """Numbers of layers to run, ascending: the last one is the probe's main run.

    One number where nothing is cut, or where nothing smaller is left for a second.
    """
    whole = run.model.num_layers
    if scale == "none":
        return (whole,)
    if scale != "auto":
        return _pair(run, int(scale)) if int(scale) < whole else (whole,)
    if _fits(run, whole, limits):
        return (whole,)
    unit, least = _unit(run), _least(run)
    fitting = [n for n in range(least, whole, unit) if _fits(run, n, limits)]
    return _pair(run, fitting[-1] if fitting else least)


def _pair(run: Run, num_layers: int) -> tuple[int, ...]:
    """Return the depth and about half of it, where the layout can run that."""
    unit, least = _unit(run), _least(run)
    half = max(num_layers // 2 // unit * unit, least)
    return (half, num_layers) if half < num_layers else (num_layers,)


def _unit(run: Run) -> int:
    """Layers by which a depth grows so that every pipeline stage has the same number."""
    return run.layout.pp * run.layout.interleave


def _least(run: Run) -> int:
    """Fewest layers that still have every kind of layer, and one for each stage."""
    dense = run.model.moe.dense_layers if run.model.moe else 0
    unit = _unit(run)
    return min(-(-(dense + 1) // unit) * unit, run.model.num_layers)


def _fits(run: Run, num_layers: int, limits: Limits) -> bool:
    """Whether that many layers fit and are quick enough, as far as counts say."""
    if num_layers < _least(run):
        return False
    part = cut(run, num_layers)
    states = state_bytes(part)
    needed = ACTIVATIONS * states
    if limits.predicted_bytes is not None:
        needed = limits.predicted_bytes * states / state_bytes(run)
    seconds = step_flops(part) / (limits.flops_per_s * STEP_EFFICIENCY)
    return needed <= SAFE_SHARE * limits.free_bytes and seconds <= limits.max_step_s


def state_bytes(run: Run) -> float:
    """Bytes of weights, gradients and Adam states on one rank, roughly."""
    layout = run.layout
    params = count_on_meta(run) / (layout.tp * layout.pp)
    width = 2 if run.numerics == "bf16-all" or run.lora is not None else 4
    trained = 0.0 if run.lora is not None else params
    shards = (layout.shard_group or layout.dp) if run.sharded else 1
    moment_shards = layout.dp if layout.zero_stage in (1, 2) else shards
    return width * (params + trained) / shards + 2 * width * trained / moment_shards


def step_flops(run: Run) -> float:
    """FLOPs of one rank in one step, roughly: 6 for each active weight and token (arXiv 2001.08361)."""
    layout, training = run.layout, run.training
    tokens = layout.micro_batch * layout.grad_accum * training.seq_len
    again = 8 if layout.recompute == "full" else 6
    return again * active_params(run.model, count_on_meta(run)) * tokens / (layout.tp * layout.pp)


def active_params(model: Model, total: int) -> int:
    """Weights that one token is multiplied with, where experts are chosen."""
    if model.moe is None:
        return total
    matrices = 3 if model.gated_ffn else 2
    idle = model.moe.num_experts - model.moe.experts_per_token
    return total - (model.num_layers - model.moe.dense_layers) * idle * (
        matrices * model.hidden_size * model.moe.expert_ffn_size
    )
