"""Memory beside torch's tensors: the caching allocator's slack, CUDA context, NCCL buffers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns
from planner.numerics import TrainingColumns

GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class Outside:
    """Bytes per GPU that torch's allocated figure does not count."""

    communication: Array
    context: Array
    allocator_slack: Array


def outside_bytes(
    training: TrainingColumns, layout: LayoutColumns, machine: MachineColumns, states: Array, moving: Array
) -> Outside:
    """Slack grows with what is allocated and freed within a step (``moving``), not with what stays (``states``)."""
    slack = np.where(training.expandable == 1, 0.10, 0.15)
    communicators = (
        (layout.dp * layout.cp > 1).astype(np.float64)
        + (layout.tp > 1)
        + (layout.pp > 1)
        + (layout.cp > 1)
        + (layout.ep > 1)
    )
    return Outside(
        communication=0.4 * GIB * communicators,
        context=training.context_bytes,
        allocator_slack=slack * moving + 0.01 * states,
    )
