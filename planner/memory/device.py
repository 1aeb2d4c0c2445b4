"""Memory beside torch's tensors: the caching allocator's slack and the CUDA context.

What a step frees and cannot use again stays reserved: blocks of other sizes, and blocks of other streams
(FSDP gathers and reduces on streams of their own). The shares below were fitted on runs where both
figures exist, and on replays of traced allocations through a model of the allocator; they depend on the
kind of allocator and layout only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns
from planner.memory.communicators import communicator_bytes
from planner.memory.peak import Peak
from planner.training.numerics import TrainingColumns

GIB = 2.0**30

# Native allocator (blocks of fixed size): share of activations, logits, gathered weights, everything
NATIVE_WORKING = 0.08
NATIVE_LOSS = 0.45
NATIVE_COLLECTIVE = 0.6
NATIVE_BASE = 0.06
NATIVE_MOST_BASE_BYTES = 2.0 * GIB
# Expandable segments: streams of their own, and gradients and scratch that are not there at the peak
EXPANDABLE_BASE = 0.02
EXPANDABLE_WORKING = 0.02
EXPANDABLE_LOSS = 0.02
EXPANDABLE_COLLECTIVE = 1.1
EXPANDABLE_CHURN = 0.9


@dataclass(frozen=True, slots=True)
class Outside:
    """Bytes per GPU that torch's allocated figure does not count."""

    communication: Array
    context: Array
    allocator_slack: Array


def outside_bytes(
    training: TrainingColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
    allocated: Array,
    slack: Array,
) -> Outside:
    """Slack, context and communicators. A nearly full card flushes cached blocks: slack ends where
    memory does.
    """
    communication = communicator_bytes(training, layout, machine)
    # a byte less than all, so that rounding of the sum does not pass what the card has
    room = machine.usable_memory_bytes - allocated - communication - training.context_bytes - 1.0
    return Outside(
        communication=communication,
        context=training.context_bytes,
        allocator_slack=np.minimum(slack, np.maximum(room, 0.0)),
    )


def slack_bytes(training: TrainingColumns, layout: LayoutColumns, allocated: Array, peak: Peak) -> Array:
    """Reserved but not allocated, where memory has no end."""
    churn = peak.churn * (layout.zero_stage == 3) * (layout.shard_group > 1)
    working = NATIVE_WORKING * peak.working + NATIVE_LOSS * peak.loss
    native = (
        training.fragmentation * working
        + NATIVE_COLLECTIVE * peak.collective
        + np.minimum(NATIVE_BASE * allocated, NATIVE_MOST_BASE_BYTES)
    )
    expandable = (
        EXPANDABLE_BASE * allocated
        + EXPANDABLE_WORKING * peak.working
        + EXPANDABLE_LOSS * peak.loss
        + EXPANDABLE_COLLECTIVE * np.maximum(peak.collective - peak.gathered, 0.0)
        + EXPANDABLE_CHURN * churn
    )
    slack: Array = np.where(training.expandable == 1, expandable, native)
    return slack
