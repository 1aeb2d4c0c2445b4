"""Seconds of one optimizer step, by cause.

A micro-batch costs its matrix multiplies, attention and streaming kernels (``speed.layers``), or the
CPU time of its launches where that is longer, and the communication (``speed.links``) that does not
hide behind them. Micro-batches follow each other, pipeline stages fill and drain, and the optimizer
ends the step. The parts add up to the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns, ModelColumns, SpeedColumns
from planner.model import forward_flops_per_token
from planner.speed.layers import Work, block_work, ends_work, rates_of
from planner.speed.links import (
    Parameters,
    context_s,
    data_s,
    expert_s,
    parameters_of,
    pipeline_s,
    tensor_s,
)
from planner.speed.update import activation_offload_s, data_visible_s, last_share, update_s
from planner.training.execution import ExecutionColumns
from planner.training.numerics import TrainingColumns

# Share of tensor-parallel traffic that stays visible when it is overlapped chunk by chunk (Megatron user
# buffers, async TP): the first and last chunk and the slower multiplies. pytorch/torchtitan
# benchmarks/asyncTP: 5-16 % of a step.
TENSOR_OVERLAP = 0.6


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Seconds of one micro-batch on a mean stage, and what of it the slowest stage has more."""

    matmul: Array
    attention: Array
    memory_bound: Array
    launch: Array  # CPU launch time that the GPU waits for
    tensor: Array
    context: Array
    expert: Array
    uneven: Array  # slowest stage above the mean
    forward: Array  # busy seconds by direction, communication included
    backward: Array


def estimate(
    model: ModelColumns,
    training: TrainingColumns,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
) -> SpeedColumns:
    """Seconds of one optimizer step of each run, by cause, and its FLOPs per GPU. Shapes broadcast.

    A run on one node has no network: what its links would take is infinite there and never picked.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return _estimate(model, training, execution, layout, machine)


def _estimate(
    model: ModelColumns,
    training: TrainingColumns,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
) -> SpeedColumns:
    parameters = parameters_of(model, execution, layout)
    micro = _micro_batch(model, execution, layout, machine, parameters)
    count = layout.grad_accum
    data = data_visible_s(
        data_s(parameters, execution, layout, machine), micro.forward, micro.backward,
        last_share(model, layout, parameters), execution, layout, machine,
    )  # fmt: skip
    pipeline = pipeline_s(model, execution, layout, machine) * (1 - execution.habits.overlap_pipeline)
    busy = micro.forward + micro.backward
    bubble = count * micro.uneven + (layout.pp - 1) / layout.interleave * (busy + pipeline)
    optimizer, offload = update_s(model, parameters, execution, layout, machine)
    offload = offload + activation_offload_s(model, execution, layout, machine, micro.forward, micro.backward)
    overhead = execution.habits.step_overhead_s + count * (
        micro.launch + execution.habits.micro_batch_overhead_s
    )
    tensor, context, expert = count * micro.tensor, count * micro.context, count * micro.expert
    communication = data + tensor + context + expert + count * pipeline
    memory_bound = count * micro.memory_bound
    total = (
        count * (micro.matmul + micro.attention)
        + memory_bound
        + communication
        + bubble
        + optimizer
        + offload
        + overhead
    )
    idle = total * execution.habits.idle_share
    tokens = layout.micro_batch * count * layout.dp * training.seq_len
    gpus = layout.dp * layout.tp * layout.pp * layout.cp
    model_flops, hardware_flops = _flops(model, training, execution, layout, tokens / gpus)
    return SpeedColumns(
        matmul=count * micro.matmul,
        attention=count * micro.attention,
        memory_bound=memory_bound,
        exposed_communication=communication + offload,
        bubble=bubble,
        optimizer=optimizer,
        overhead=overhead + idle,
        step_s=total + idle,
        tokens_per_step=tokens + 0 * total,
        model_flops=model_flops,
        hardware_flops=hardware_flops,
        dp_s=data,
        tp_s=tensor,
        pp_s=count * pipeline,
        cp_s=context,
        ep_s=expert,
        offload_s=offload,
    )


def _micro_batch(
    model: ModelColumns,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
    parameters: Parameters,
) -> MicroBatch:
    """One micro-batch on the mean stage; what the slowest stage has more stands apart."""
    rates = rates_of(model, execution, layout, machine)
    block = block_work(model, execution, layout, rates)
    ends = ends_work(model, execution, layout, rates)
    matmul, attention, memory, again = _block_seconds(block, execution, layout, model)
    ends_matmul = ends.matmul_forward_s + ends.matmul_input_gradient_s + ends.matmul_weight_gradient_s
    ends_memory = ends.memory_forward_s + ends.memory_backward_s
    layers = model.num_layers / layout.pp
    weights = _weights_s(parameters, execution, rates.bandwidth_bytes_per_s, layout)
    stage_matmul = layers * matmul + ends_matmul / layout.pp
    stage_memory = layers * memory + ends_memory / layout.pp + weights
    tensor, context, expert = _block_traffic(model, execution, layout, machine, block, again)
    stage_tensor = layers * tensor
    busy = stage_matmul + layers * attention + stage_memory
    launches = layers * (block.forward_launches * (1 + again) + block.backward_launches) + (
        ends.forward_launches + ends.backward_launches
    )
    # While the GPU waits for a ring of context parallelism, the CPU launches on.
    launch = np.maximum(launches * execution.launch_s - busy - layers * context, 0)
    first = block.matmul_forward_s + block.attention_forward_s + block.memory_forward_s
    forward = np.maximum(first, block.forward_launches * execution.launch_s)
    backward_launches = block.forward_launches * again + block.backward_launches
    backward = np.maximum(matmul + attention + memory - first, backward_launches * execution.launch_s)
    forward_share = forward / (forward + backward)
    total = busy + launch + layers * (tensor + context + expert)
    per_block = matmul + attention + memory + tensor + context + expert
    uneven = _uneven_s(model, layout, per_block, ends_matmul + ends_memory)
    return MicroBatch(
        matmul=stage_matmul,
        attention=layers * attention,
        memory_bound=stage_memory,
        launch=launch,
        tensor=stage_tensor,
        context=layers * context,
        expert=layers * expert,
        uneven=uneven,
        forward=forward_share * total,
        backward=(1 - forward_share) * total,
    )


def _block_seconds(
    block: Work, execution: ExecutionColumns, layout: LayoutColumns, model: ModelColumns
) -> tuple[Array, Array, Array, Array]:
    """Seconds of matrix multiplies, attention and streaming kernels of a block with what recompute runs
    again, and the share of the forward pass that does.
    """
    full = np.where(layout.recompute == 2, layout.recompute_fraction, 0)
    selective = layout.recompute == 1
    again_matmul = full + selective * execution.habits.selective_matmul
    again_attention = full + selective * execution.habits.selective_attention
    again_memory = full + selective * execution.habits.selective_memory
    trained = np.maximum(1 - execution.frozen_layers / model.num_layers, 0)
    matmul = block.matmul_forward_s * (1 + again_matmul) + trained * (
        block.matmul_input_gradient_s + block.matmul_weight_gradient_s
    )
    attention = block.attention_forward_s * (1 + again_attention) + trained * block.attention_backward_s
    memory = block.memory_forward_s * (1 + again_memory) + trained * block.memory_backward_s
    return matmul, attention, memory, full


def _weights_s(
    parameters: Parameters, execution: ExecutionColumns, bandwidth: Array, layout: LayoutColumns
) -> Array:
    """Seconds per micro-batch to cast weights, add up gradients and dequantise a frozen base."""
    local = parameters.dense + parameters.experts + parameters.ends
    trained = parameters.trained_dense + parameters.trained_experts + parameters.trained_ends
    passes = 2 + (layout.recompute == 2)
    quantised = execution.dequantise_bytes * passes * (parameters.dense + parameters.experts)
    kept = np.where(execution.habits.fp8_weights_kept > 0, layout.grad_accum, 1)
    casts = execution.cast_bytes * (1 - execution.frozen_base) + execution.fp8_weight_bytes / kept
    copies = execution.habits.shard_copy_bytes * (layout.zero_stage >= 3) * (layout.dp * layout.cp > 1)
    seconds: Array = (local * (casts + copies) + trained * execution.accumulate_bytes + quantised) / bandwidth
    return seconds


def _block_traffic(
    model: ModelColumns,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
    block: Work,
    again: Array,
) -> tuple[Array, Array, Array]:
    """Visible seconds of tensor, context and expert parallel traffic of a block, both directions and
    recompute.
    """
    overlap = (
        np.where(np.isnan(layout.tp_overlap), execution.habits.overlap_tensor, layout.tp_overlap)
        * TENSOR_OVERLAP
    )
    tensor = tensor_s(model, execution, layout, machine) * (2 + again) * (1 - overlap)
    ring = context_s(model, execution, layout, machine)
    hidden = execution.habits.overlap_context
    context = (1 + again) * np.maximum(ring - hidden * block.attention_forward_s, 0) + np.maximum(
        2 * ring - hidden * block.attention_backward_s, 0
    )
    exchange = expert_s(model, execution, layout, machine) * (2 + again)
    expert = exchange * (1 - np.maximum(execution.habits.overlap_expert, 0.7 * layout.a2a_overlap))
    return tensor, context, expert


def _uneven_s(model: ModelColumns, layout: LayoutColumns, per_block: Array, ends: Array) -> Array:
    """Seconds that the slowest pipeline stage needs above the mean stage, for one micro-batch."""
    chunks = layout.pp * layout.interleave
    most = np.ceil(model.num_layers / chunks) * layout.interleave
    last = np.maximum(model.num_layers - (layout.pp - 1) * most, np.floor(model.num_layers / chunks))
    mean = (model.num_layers * per_block + ends) / layout.pp
    slowest = np.maximum(most * per_block, last * per_block + ends)
    above: Array = np.where(layout.pp > 1, np.maximum(slowest - mean, 0), 0)
    return above


def _flops(
    model: ModelColumns,
    training: TrainingColumns,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    tokens_per_gpu: Array,
) -> tuple[Array, Array]:
    """Model and hardware FLOPs per GPU and step. Frozen linears have no weight gradient: 4 FLOPs a
    parameter, not 6.
    """
    forward = forward_flops_per_token(model, training.seq_len)
    linears = forward.attention_linears + forward.ffn + forward.head
    model_flops = tokens_per_gpu * (linears * (3 - execution.frozen_base) + 3 * forward.scores)
    again = np.where(layout.recompute == 2, layout.recompute_fraction, 0)
    selective = layout.recompute == 1
    blocks = forward.attention_linears + forward.ffn
    recomputed = blocks * (again + selective * execution.habits.selective_matmul) + forward.scores * (
        again + selective * execution.habits.selective_attention
    )
    return model_flops, model_flops + tokens_per_gpu * recomputed
