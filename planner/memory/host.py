"""Host memory of a node, and device memory while a checkpoint is loaded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array, LayoutColumns, MachineColumns, ModelColumns
from planner.training.formats import FormatColumns
from planner.training.numerics import TrainingColumns

GIB = 2.0**30
# One training process: Python, torch, CUDA libraries (resident set of an idle rank; nvidia-smi says
# nothing of it).
PROCESS_BYTES = 3.0 * GIB
# Data workers and their prefetched batches, per rank. Tokenised text is small; the workers' own
# processes are not.
WORKERS_BYTES = 1.0 * GIB
RANK_BYTES = PROCESS_BYTES + WORKERS_BYTES
CHECKPOINT_BYTES = 2.0  # per parameter: published checkpoints are in 16 bit


def host_bytes(
    model: ModelColumns,
    training: TrainingColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
    offloaded: Array,
) -> Array:
    """Bytes of host memory per node: processes, data workers, and the larger of loading and offloaded
    states.

    A rank that reads a checkpoint holds all of it; frameworks that load on rank 0 alone hold it once per
    node. Offloaded states are pinned; DeepSpeed and FSDP keep one copy of them.
    """
    ranks = machine.gpus_per_node
    readers = np.where(training.loads_on_every_rank == 1, ranks, 1.0)
    stage = model.params_total / layout.pp
    loading = training.loads * readers * CHECKPOINT_BYTES * stage
    total: Array = ranks * RANK_BYTES + np.maximum(loading, ranks * offloaded)
    return total


def loads_or_offloads(host: Array | float, gpus_per_node: Array | float) -> NDArray[np.bool_]:
    """Whether a node needs more host memory than its processes alone, which every machine with GPUs has."""
    return np.asarray(host > RANK_BYTES * np.asarray(gpus_per_node))


def load_bytes(
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    weights: Array,
    block: Array,
    context: Array,
) -> Array:
    """Device bytes at the worst instant of loading: the resident weights, and one block before it is sharded.

    Quantised weights pass through 16 bit, a matrix at a time; a block bounds that.
    """
    passing = np.where(
        (layout.zero_stage == 3) | (training.adapter.quantised == 1), formats.compute * block, 0.0
    )
    total: Array = weights + training.loads * passing + context
    return total
