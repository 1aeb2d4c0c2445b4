"""How fast each rank is by itself: one layer of the plan, forward and backward, without any communication.

Ranks of one step wait for each other, so that its seconds are alike on all of them: a slow GPU shows here.
"""

from __future__ import annotations

import contextlib
import statistics
import time

import torch

from .attention import positions
from .model import Block
from .parallel import compute_dtype, weight_dtype
from .place import settle
from .spec import Run

WARMUP, REPEATS = 2, 5
SHARE_OF_FREE = 0.25  # of memory that the layer's weights and gradients may take


def layer_seconds(run: Run, device: torch.device, free_bytes: float) -> float | None:
    """Median seconds of one layer on this rank; ``None`` where a whole layer has no room beside others."""
    dtype = weight_dtype(run, "blocks.0.weight")
    block = _empty_block(run)
    held = 2 * sum(parameter.numel() for parameter in block.parameters()) * dtype.itemsize
    if held > SHARE_OF_FREE * free_bytes:
        return None
    block = block.to_empty(device=device).to(dtype)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    shape = (run.layout.micro_batch, run.training.seq_len, run.model.hidden_size)
    x = torch.randn(shape, device=device, dtype=dtype).requires_grad_()
    places = positions(run.model, run.training.seq_len, device, compute_dtype(run))
    seconds = []
    for _ in range(WARMUP + REPEATS):
        settle(device)
        started = time.perf_counter()
        with _autocast(run, device):
            out = block(x, places)
        torch.autograd.backward(out.float().sum())
        settle(device)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARMUP:])


def _empty_block(run: Run) -> Block:
    """Last layer of the model, without memory."""
    with torch.device("meta"):
        eager = run.training.attention == "eager"
        return Block(run.model, run.model.num_layers - 1, eager=eager, recompute="none")


def _autocast(run: Run, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Autocast where the step computes narrower than its weights are kept here."""
    if compute_dtype(run) == weight_dtype(run, "blocks.0.weight"):
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=compute_dtype(run))
