"""Bytes per GPU of a training run, part by part, on the fullest GPU, as the maximum over the instants of a step.

``estimate`` takes columns and returns columns: one run, a batch of measured runs and a search over a million layouts
go through the same formulas.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns, MemoryColumns, ModelColumns
from planner.memory_activations import BlockBytes, TokenBytes, block_bytes
from planner.memory_device import outside_bytes
from planner.memory_loss import loss_bytes
from planner.memory_states import Stage, first_stage, last_stage, stage_params, state_bytes
from planner.memory_step import Peak, kept_activations, step_peak, tokens_per_rank
from planner.numerics import FormatColumns, TrainingColumns

PEAK_AT = ("forward", "loss", "backward", "optimizer")


def estimate(
    model: ModelColumns, training: TrainingColumns, layout: LayoutColumns, machine: MachineColumns
) -> MemoryColumns:
    """Memory of the fullest GPU. Bytes; all inputs broadcast against each other."""
    sharded = layout.zero_stage == 3
    formats = _formats(sharded, training)
    block = _blocks(
        sharded,
        block_bytes(model, training, training.unsharded),
        block_bytes(model, training, training.sharded),
    )
    first = _stage(model, training, formats, layout, first_stage(model, training, layout), block)
    if np.any(layout.pp > 1):
        last = _stage(model, training, formats, layout, last_stage(model, training, layout), block)
        first = _fuller(first, last)
    weights, optimizer, peak, offloaded = first
    states = weights + optimizer
    outside = outside_bytes(training, layout, machine, states, peak)
    allocated = states + peak.total
    reserved = allocated + outside.allocator_slack
    return MemoryColumns(
        parameters=weights,
        gradients=peak.gradients,
        optimizer=optimizer + peak.optimizer,
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
        host=offloaded * machine.gpus_per_node,
        load=weights,
    )


_StageBytes = tuple[Array, Array, Peak, Array]


def _stage(
    model: ModelColumns,
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    stage: Stage,
    block: BlockBytes,
) -> _StageBytes:
    params = stage_params(model, training, layout, stage)
    states = state_bytes(training, formats, layout, params)
    kept = kept_activations(model, training, formats, layout, stage, block)
    loss = loss_bytes(model, training, formats, layout, tokens_per_rank(training, layout))
    peak = step_peak(model, training, formats, layout, stage, params, states, kept, loss)
    return states.weights, states.optimizer, peak, states.offloaded


def _fuller(a: _StageBytes, b: _StageBytes) -> _StageBytes:
    """Row by row the stage that needs more."""
    more = b[0] + b[1] + b[2].total > a[0] + a[1] + a[2].total
    peak = Peak(*(np.where(more, getattr(b[2], f.name), getattr(a[2], f.name)) for f in fields(Peak)))
    return np.where(more, b[0], a[0]), np.where(more, b[1], a[1]), peak, np.where(more, b[3], a[3])


def _formats(sharded: Array, training: TrainingColumns) -> FormatColumns:
    return FormatColumns(
        *(
            _pick(sharded, getattr(training.unsharded, f.name), getattr(training.sharded, f.name))
            for f in fields(FormatColumns)
        )
    )


def _blocks(sharded: Array, a: BlockBytes, b: BlockBytes) -> BlockBytes:
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
    """The value of the row's sharding; stays a scalar where both are the same one."""
    if np.ndim(unsharded_value) == 0 and np.ndim(sharded_value) == 0 and unsharded_value == sharded_value:
        return unsharded_value
    picked: Array = np.where(sharded, sharded_value, unsharded_value)
    return picked
