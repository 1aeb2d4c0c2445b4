"""The user's run with something else: what the pages of the guide compare."""

from __future__ import annotations

from collections.abc import Mapping

from planner.hardware.gpus import gpu
from planner.hardware.links import links_for
from planner.results import Estimate, MemoryEstimate, SpeedEstimate
from planner.types import Links, Run, Shape

GPUS_OF_A_MACHINE = 8


def both(answer: Estimate) -> tuple[MemoryEstimate, SpeedEstimate]:
    """Memory and speed of an answer; the formulas give both for every run that could be completed."""
    assert answer.memory is not None
    assert answer.speed is not None
    return answer.memory, answer.speed


def changed(run: Run, training: Mapping[str, object] | None = None, **layout: object) -> Run:
    """Run with other fields of training and layout."""
    return run.model_copy(
        update={
            "training": run.training.model_copy(update=dict(training or {})),
            "layout": run.layout.model_copy(update=layout),
        }
    )


def of_run(run: Run) -> str:
    """Say which run figures are of."""
    layout = run.layout
    words = (
        f"{run.shape.num_gpus}× {run.shape.gpu}, micro-batch {layout.micro_batch} × {run.training.seq_len}"
    )
    return f"{words}, ZeRO stage {layout.zero_stage}, recompute {layout.recompute}"


def machine_of(run: Run) -> Shape:
    """Machine of a run; one of 8 GPUs where the run has one GPU, so that there is a link to speak of."""
    if run.shape.num_gpus > 1:
        return run.shape
    links = links_for(gpu(run.shape.gpu), GPUS_OF_A_MACHINE)
    return run.shape.model_copy(update={"gpus_per_node": GPUS_OF_A_MACHINE, "links": links})


def two_nodes(shape: Shape, links: Links | None = None) -> Shape:
    """Two machines like that of ``shape``, over the fabric of its class, or over ``links``."""
    known = shape.num_nodes > 1
    own = shape.links if known else links_for(gpu(shape.gpu), shape.gpus_per_node, num_nodes=2)
    return shape.model_copy(update={"num_nodes": 2, "links": links or own})


def data_parallel(run: Run) -> Run:
    """Run as plain data parallel over the GPUs of its machines (``machine_of``), one micro-batch a step."""
    shape = machine_of(run)
    whole = {"dp": shape.num_gpus, "tp": 1, "pp": 1, "cp": 1, "ep": 1, "etp": None}
    plain = {"interleave": 1, "offload": "none", "grad_accum": 1, "shard_group": None}
    layout = run.layout.model_copy(update={**whole, **plain})
    return run.model_copy(update={"layout": layout, "shape": shape})
