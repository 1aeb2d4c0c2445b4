"""A few steps from one seed, in fp32 and in the plan's precision: their losses should stay together."""

from __future__ import annotations

import dataclasses
import gc

import torch

from .measure import Report, close, run_steps
from .results import PrecisionCheck
from .spec import Run
from .step import build

NUM_STEPS = 5


def in_fp32(run: Run) -> Run:
    """Return the same run with fp32 weights and fp32 compute."""
    training = dataclasses.replace(run.training, precision="fp32", numerics=None)
    return dataclasses.replace(run, training=training)


def check(run: Run, device: torch.device, seed: int, report: Report) -> PrecisionCheck:
    """Train both ways; all ranks call this together. Losses are means over ranks, before each update."""
    fp32 = _losses(in_fp32(run), device, seed, lambda done, of: report(done, 2 * of))
    own = _losses(run, device, seed, lambda done, of: report(of + done, 2 * of))
    return PrecisionCheck(precision=run.training.precision, loss_fp32=fp32, loss=own)


def _losses(run: Run, device: torch.device, seed: int, report: Report) -> tuple[float, ...]:
    """Losses of a few steps of a model that is built and dropped here."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    trainer = build(run, device, seed=seed)
    steps = run_steps(trainer, 0, NUM_STEPS, seed, report)
    close(trainer)
    return steps.loss
