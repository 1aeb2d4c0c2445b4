"""A run on CPUs over gloo: what can be said of it beforehand is its memory; nobody measured its speed.

Torch's tensors are the same bytes on a CPU, so that what is allocated at the peak is what a GPU would hold,
without context, communicators and an allocator's slack. A process that gives freed blocks back holds about
that above its baseline.
"""

from __future__ import annotations

from planner import answers
from planner.results import Estimate, MemoryEstimate
from planner.trust.nearness import Residuals
from planner.types import Layout, Links, ModelSpec, Run, Shape, TrainingSpec
from planner.verdict import limits

CPU = "CPU"
_AS_ON = "H200-SXM-141GB"  # roomy: nothing is squeezed; what is allocated does not depend on the card
NO_SPEED = "no prediction of time or bandwidth for a CPU: both are shown, not judged"
LOCAL_LINKS = Links(intra="unknown-intra", inter="one-node")


def shape(num_workers: int) -> Shape:
    """A machine of ours without GPUs, one worker for each part of it."""
    return Shape(gpu=CPU, gpus_per_node=num_workers, num_nodes=1, links=LOCAL_LINKS)


def run(model: ModelSpec, training: TrainingSpec, layout: Layout) -> Run:
    """A run of as many workers as the layout has ranks."""
    ranks = layout.dp * layout.tp * layout.pp * layout.cp
    return Run(id="here", model=model, training=training, layout=layout, shape=shape(ranks))


def estimate(asked: Run, known: Residuals | None = None) -> Estimate:
    """Memory of a worker; speed is ``None``."""
    stand_in = asked.model_copy(update={"shape": asked.shape.model_copy(update={"gpu": _AS_ON})})
    found, _ = answers.evaluate([stand_in], known)[0]
    held = found.allocated_bytes
    wide = held.model_copy(update={"high": max(held.high, held.mid * limits.limit("cpu_memory"))})
    none = {"context": 0.0, "communication": 0.0, "allocator_slack": 0.0}
    memory = MemoryEstimate(
        parts_bytes=found.parts_bytes.model_copy(update=none),
        allocated_bytes=wide,
        reserved_bytes=wide,
        device_bytes=wide,
        peak_at=found.peak_at,
        usable_bytes=None,
        fits=None,
        safe=None,
        host_bytes=0.0,
        load_bytes=0.0,
    )
    return Estimate(run=asked, memory=memory, speed=None, warnings=(NO_SPEED,))
