"""Runs that run out of memory beside the step: while loading, or in the host; and which layout would not."""

from __future__ import annotations

import numpy as np

from planner.layouts import BatchRule, layout_of
from planner.model.count import count_params
from planner.results import MemoryEstimate
from planner.search import search
from planner.training import frameworks
from planner.trust.nearness import Residuals
from planner.types import Layout, LayoutPins, Run
from planner.units import gib

FP32_BYTES = 4.0
WORTH_SAYING_BYTES = 64 * 2**30  # of host memory, where nobody says what the machine has


def warnings(run: Run, in_memory: MemoryEstimate, headroom: float, known: Residuals) -> tuple[str, ...]:
    """Say that loading or host memory breaks the run, with a layout that would not break."""
    said: list[str] = []
    usable, host = in_memory.usable_bytes, run.shape.host_memory_bytes
    if usable is not None and in_memory.load_bytes > usable:
        said.append(f"runs out of memory while loading: {gib(in_memory.load_bytes)} of {gib(usable)}")
    if host is not None and in_memory.host_bytes > host:
        said.append(f"needs {gib(in_memory.host_bytes)} of host memory per node, which has {gib(host)}")
    whole = _loaded_whole(run, usable)
    if host is None and in_memory.host_bytes > WORTH_SAYING_BYTES:
        return (*said, *whole, f"needs {gib(in_memory.host_bytes)} of host memory per node")
    if not said:
        return whole
    other = _layout_that_holds(run, headroom, known)
    advice = f"; {flags(other)} would not" if other is not None else "; no layout on these GPUs would not"
    return (*(f"{each}{advice}" for each in said), *whole)


def _loaded_whole(run: Run, usable_bytes: float | None) -> tuple[str, ...]:
    """Say that a script may fail before the first step, where nobody knows how its framework loads.

    Recipes of 2023 put the whole fp32 checkpoint on each GPU before FSDP sharded it (llama-recipes issues:
    7B in fp32 on 24 GB cards fails while FSDP is built, on 40 GB cards it trains).
    """
    sharded = run.layout.zero_stage == 3 and run.layout.dp * run.layout.cp > 1
    if run.training.method == "pretrain" or not sharded or usable_bytes is None:
        return ()
    if frameworks.match_id(run.training.framework) is not None:
        return ()
    weights = FP32_BYTES * count_params(run.model).total
    if weights <= usable_bytes:
        return ()
    return (
        f"not known how {run.training.framework} loads: the whole model in fp32 on each GPU before it is "
        f"sharded would take {gib(weights)} of {gib(usable_bytes)}; load on the host or the meta device",
    )


def flags(layout: Layout) -> str:
    """Write a layout as flags; degrees of one are left out."""
    degrees = (("tp", layout.tp), ("pp", layout.pp), ("cp", layout.cp), ("ep", layout.ep))
    words = [f"--zero {layout.zero_stage}", *(f"--{name} {degree}" for name, degree in degrees if degree > 1)]
    words += [f"--micro-batch {layout.micro_batch}", f"--recompute {layout.recompute}"]
    if layout.offload != "none":
        words.append(f"--offload {layout.offload}")
    return " ".join(words)


def _layout_that_holds(run: Run, headroom: float, known: Residuals) -> Layout | None:
    """Find the fastest layout on the same machines that loads, fits and leaves the host alone."""
    layout = run.layout
    sequences = layout.dp * layout.micro_batch * layout.grad_accum
    found = search.search(
        run.model,
        run.training,
        BatchRule(sequences, exact=False),
        LayoutPins(),
        [run.shape],
        headroom,
        free_optimizer=False,
        allow_slow_link=True,
        known=known,
    ).picks
    return layout_of(found.table, int(np.argmin(found.grade))) if len(found.shape) else None
