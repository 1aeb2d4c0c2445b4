"""Bytes per GPU of a training run, part by part, on the fullest GPU, as the maximum over the instants of
a step.

``estimate`` takes columns and returns columns: one run, a batch of measured runs and a search over a
million layouts go through the same formulas. States are in ``memory.states``, what blocks keep in
``memory.activations``, the loss in ``memory.loss``, the instants in ``memory.step`` and ``memory.peak``,
all beside tensors in ``memory.device``, host memory and loading in ``memory.host``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns, MemoryColumns, ModelColumns
from planner.memory.activations import BlockBytes, TokenBytes, block_bytes
from planner.memory.device import outside_bytes, slack_bytes
from planner.memory.host import host_bytes, load_bytes
from planner.memory.loss import loss_bytes
from planner.memory.peak import Peak, fuller_peak, step_peak
from planner.memory.states import Stage, StateBytes, first_stage, last_stage, stage_params, state_bytes
from planner.memory.step import kept_activations, tokens_per_rank
from planner.training.formats import FormatColumns
from planner.training.numerics import TrainingColumns


@dataclass(frozen=True, slots=True)
class StageBytes:
    """What one pipeline stage needs on a GPU: states, the peak within a step, and what is kept on the
    host.
    """

    weights: Array
    optimizer: Array
    offloaded: Array
    block: Array  # parameters of the largest block
    allocated: Array
    slack: Array  # of the caching allocator, where memory has no end
    peak: Peak


def estimate(
    model: ModelColumns, training: TrainingColumns, layout: LayoutColumns, machine: MachineColumns
) -> MemoryColumns:
    """Memory of the fullest GPU. Bytes; all inputs broadcast against each other."""
    formats = _formats(layout.zero_stage == 3, training)
    block = _blocks(model, training, layout)
    fullest = _stage_bytes(model, training, formats, layout, first_stage(model, training, layout), block)
    if np.any(layout.pp > 1):
        last = _stage_bytes(model, training, formats, layout, last_stage(model, training, layout), block)
        fullest = _fuller(fullest, last)
    peak, allocated = fullest.peak, fullest.allocated
    outside = outside_bytes(training, layout, machine, allocated, fullest.slack)
    reserved = allocated + outside.allocator_slack
    return MemoryColumns(
        parameters=fullest.weights,
        gradients=peak.gradients,
        optimizer=fullest.optimizer + peak.optimizer,
        activations=peak.activations,
        logits=peak.logits,
        gathered=peak.gathered,
        communication=outside.communication,
        context=outside.context,
        allocator_slack=outside.allocator_slack,
        allocated=allocated,
        reserved=reserved,
        device=reserved + outside.communication + outside.context,
        peak_at=peak.at,
        host=host_bytes(model, training, layout, machine, fullest.offloaded),
        load=load_bytes(training, formats, layout, fullest.weights, fullest.block, outside.context),
    )


def states_of(model: ModelColumns, training: TrainingColumns, layout: LayoutColumns) -> StateBytes:
    """States of the first pipeline stage on one GPU, bytes, once a backward pass is done."""
    formats = _formats(layout.zero_stage == 3, training)
    params = stage_params(model, training, layout, first_stage(model, training, layout))
    return state_bytes(model, training, formats, layout, params)


def _stage_bytes(
    model: ModelColumns,
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    stage: Stage,
    block: BlockBytes,
) -> StageBytes:
    params = stage_params(model, training, layout, stage)
    states = state_bytes(model, training, formats, layout, params)
    kept = kept_activations(model, training, formats, layout, stage, block)
    loss = loss_bytes(model, training, formats, layout, tokens_per_rank(training, layout))
    peak = step_peak(model, training, formats, layout, stage, params, states, kept, loss)
    allocated = states.weights + states.optimizer + peak.total
    return StageBytes(
        weights=states.weights,
        optimizer=states.optimizer,
        offloaded=states.offloaded + kept.offloaded,
        block=params.block,
        allocated=allocated,
        slack=slack_bytes(training, layout, allocated, peak),
        peak=peak,
    )


def _fuller(a: StageBytes, b: StageBytes) -> StageBytes:
    """Row by row the stage that needs more; reserved is that of the stage that reserves more."""
    more = b.allocated > a.allocated
    allocated = np.maximum(a.allocated, b.allocated)

    def pick(x: Array, y: Array) -> Array:
        picked: Array = np.where(more, y, x)
        return picked

    return StageBytes(
        weights=pick(a.weights, b.weights),
        optimizer=pick(a.optimizer, b.optimizer),
        offloaded=pick(a.offloaded, b.offloaded),
        block=pick(a.block, b.block),
        allocated=allocated,
        slack=np.maximum(a.allocated + a.slack, b.allocated + b.slack) - allocated,
        peak=fuller_peak(more, a.peak, b.peak),
    )


def _formats(sharded: Array, training: TrainingColumns) -> FormatColumns:
    pairs = (
        (getattr(training.unsharded, f.name), getattr(training.sharded, f.name))
        for f in fields(FormatColumns)
    )
    return FormatColumns(*(_pick(sharded, a, b) for a, b in pairs))


def _blocks(model: ModelColumns, training: TrainingColumns, layout: LayoutColumns) -> BlockBytes:
    """Per-token bytes in the number format of each row's sharding."""
    sharded = layout.zero_stage == 3
    a = block_bytes(model, training, training.unsharded)
    b = block_bytes(model, training, training.sharded)

    def token(x: TokenBytes, y: TokenBytes) -> TokenBytes:
        return TokenBytes(
            *(_pick(sharded, getattr(x, f.name), getattr(y, f.name)) for f in fields(TokenBytes))
        )

    return BlockBytes(
        dense=token(a.dense, b.dense),
        moe=token(a.moe, b.moe),
        dense_selective=token(a.dense_selective, b.dense_selective),
        moe_selective=token(a.moe_selective, b.moe_selective),
        head=_pick(sharded, a.head, b.head),
        backward_wide=_pick(sharded, a.backward_wide, b.backward_wide),
        backward_split=_pick(sharded, a.backward_split, b.backward_split),
    )


def _pick(sharded: Array, unsharded_value: Array, sharded_value: Array) -> Array:
    """Pick the value of the row's sharding; a scalar where both are the same."""
    if np.ndim(unsharded_value) == 0 and np.ndim(sharded_value) == 0 and unsharded_value == sharded_value:
        return unsharded_value
    picked: Array = np.where(sharded, sharded_value, unsharded_value)
    return picked
