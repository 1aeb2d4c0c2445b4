"""A probe's result as a measured run: the line that ``plan calibrate`` reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median

from planner.probed import ProbeResult, RankMemory
from planner.types import Layout, MemoryKind, ModelSpec, Run
from planner.units import GIB

# What torch counts says most of the step; the device also holds what other processes have.
_KINDS: tuple[MemoryKind, ...] = ("reserved", "allocated", "device")


def measured_run(run: Run, result: ProbeResult) -> str | None:
    """Run description of ``run`` with what the probe measured; ``None`` where nothing of it can be compared.

    A probe on CPUs says nothing of a GPU. Memory is that of the fullest rank; speed is that of the median
    step of the slowest rank. Where the step ran with fewer layers or fewer micro-batches than the run has,
    the line says so, and is compared with the prediction for that one.
    """
    if any(rank.backend != "nccl" for rank in result.hardware) or not result.hardware:
        return None
    layout, figures = _speed(run, result)
    figures |= _memory(result.memory)
    if not figures:
        return None
    line = {
        "id": f"probe of {run.id}, {result.started:%Y-%m-%d %H:%M}",
        "shape": run.shape.model_dump(mode="json"),
        "model": _model(run.model, result.num_layers).model_dump(mode="json"),
        "training": run.training.model_dump(mode="json"),
        "layout": layout.model_dump(mode="json"),
        "measured": figures,
    }
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _model(model: ModelSpec, num_layers: int) -> ModelSpec:
    """Take the model with the layers that ran."""
    if num_layers == model.num_layers:
        return model
    local = None if model.local_layers is None else min(model.local_layers, num_layers)
    return model.model_copy(update={"num_layers": num_layers, "local_layers": local})


def _speed(run: Run, result: ProbeResult) -> tuple[Layout, dict[str, float | str]]:
    """Tokens a second and GPU, with the layout whose micro-batches make up the step that was timed."""
    layout, steps = run.layout, result.steps
    if steps is None or not steps.seconds:
        return layout, {}
    micro_step = layout.dp * layout.micro_batch * run.training.seq_len
    count, left = divmod(steps.tokens_per_step, micro_step)
    if count < 1 or left or result.num_ranks != run.shape.num_gpus:
        return layout, {}
    rate = steps.tokens_per_step / median(steps.seconds) / result.num_ranks
    return layout.model_copy(update={"grad_accum": count}), {"tokens_per_s_per_gpu": rate}


def _memory(ranks: Sequence[RankMemory]) -> dict[str, float | str]:
    """Peak of the fullest rank, of the first kind that every rank states."""
    for kind in _KINDS:
        peaks = [getattr(rank, f"{kind}_bytes") for rank in ranks]
        if peaks and None not in peaks:
            return {"peak_memory_gib": max(peaks) / GIB, "memory_kind": kind}
    return {}
