"""Seconds of one optimizer step, by cause.

A micro-batch costs its matrix multiplies, attention and streaming kernels (``speed_layers``), or the
CPU time of its launches where that is longer, and the communication (``speed_links``) that does not
hide behind them. Micro-batches follow each other, pipeline stages fill and drain, and the optimizer
ends the step. The parts add up to the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns, ModelColumns, SpeedColumns
from planner.efficiency import bandwidth_bytes_per_s
from planner.execution import ExecutionColumns
from planner.model import forward_flops_per_token
from planner.numerics import TrainingColumns
from planner.speed_layers import Work, block_work, ends_work, rates_of
from planner.speed_links import (
    Parameters,
    context_s,
    data_s,
    expert_s,
    parameters_of,
    pipeline_s,
    tensor_s,
)

# Share of tensor-parallel traffic that stays visible when it is overlapped chunk by chunk (Megatron user
# buffers, async TP): the first and last chunk and the slower multiplies. pytorch/torchtitan
# benchmarks/asyncTP: 5-16 % of a step.
TENSOR_OVERLAP = 0.6
# Communication that runs beside compute takes its memory bandwidth and SMs: share of its own time that
# compute loses.
INTERFERENCE = 0.15
# Tensors that an optimizer visits per block: weights of attention, feed-forward and norms.
TENSORS_PER_BLOCK = 9.0
# CPU Adam moves this many bytes per parameter through host memory at about this rate per GPU (DeepSpeed
# ZeRO-Offload).
HOST_OPTIMIZER_BYTES = 28.0
HOST_BYTES_PER_S = 20e9


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
    data = _data_exposed(micro, parameters, execution, layout, machine, model)
    pipeline = pipeline_s(model, execution, layout, machine) * (1 - execution.habits.overlap_pipeline)
    busy = micro.forward + micro.backward
    bubble = count * micro.uneven + (layout.pp - 1) / layout.interleave * (busy + pipeline)
    optimizer, offload = _optimizer_s(parameters, execution, layout, machine, model)
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
    launch = np.maximum(launches * execution.launch_s - busy, 0)
    forward_share = (block.matmul_forward_s + block.attention_forward_s + block.memory_forward_s) / (
        matmul + attention + memory
    )
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


def _data_exposed(
    micro: MicroBatch,
    parameters: Parameters,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
    model: ModelColumns,
) -> Array:
    """Visible seconds a step of data-parallel traffic: what does not fit under compute, the first
    block's share, and what compute loses to traffic beside it.
    """
    data = data_s(parameters, execution, layout, machine)
    trained = parameters.trained_dense + parameters.trained_experts + parameters.trained_ends
    inputs = parameters.trained_ends * model.params_embedding / (model.params_embedding + model.params_head)
    first = np.minimum(layout.pp / model.num_layers + inputs / trained, 1)
    count = layout.grad_accum
    every = np.where(layout.pp > 1, 1, count)
    sharded = layout.zero_stage >= 3
    room_forward = execution.habits.overlap_gather * micro.forward
    room_backward = execution.habits.overlap_data * micro.backward
    # ZeRO-3: parameters for each direction of each micro-batch, gradients with each backward pass
    full = every * (
        _visible(data.gather, room_forward, first) + _visible(data.gather + data.reduce, room_backward, first)
    )
    # ZeRO 0-2: gradients once behind the last backward pass, updated parameters once before the next
    # forward pass
    reduces = np.where(execution.habits.reduce_every_micro_batch > 0, every, 1)
    gathers = np.where(layout.zero_stage > 0, 1, 0)
    plain = reduces * _visible(data.reduce, room_backward, first) + gathers * _visible(
        data.gather, room_forward, first
    )
    return np.where(sharded, full, plain)


def _visible(traffic: Array, room: Array, first: Array) -> Array:
    """Seconds of ``traffic`` that show when ``room`` seconds of compute may hide it."""
    hidden = np.minimum(traffic * (1 - first), room)
    return traffic - hidden + INTERFERENCE * hidden


def _optimizer_s(
    parameters: Parameters,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
    model: ModelColumns,
) -> tuple[Array, Array]:
    """Seconds of the optimizer on the GPU, and of offloaded states: PCIe and CPU."""
    ranks = layout.dp * layout.cp
    shards = np.where(layout.zero_stage > 0, np.clip(layout.shard_group, 1, ranks), 1)
    expert_ranks = np.maximum(ranks * layout.tp / (layout.ep * layout.etp), 1)
    local = (
        parameters.trained_dense + parameters.trained_ends
    ) / shards + parameters.trained_experts / np.minimum(shards, expert_ranks)
    bandwidth = bandwidth_bytes_per_s()[machine.gpu_index.astype(np.intp)]
    launches = (
        execution.optimizer_launches * TENSORS_PER_BLOCK * model.num_layers / layout.pp * execution.launch_s
    )
    on_gpu = local * execution.optimizer_bytes / bandwidth + launches
    on_host = local * (6 / machine.pcie_bytes_per_s + HOST_OPTIMIZER_BYTES / HOST_BYTES_PER_S)
    fetched = (parameters.dense + parameters.experts + parameters.ends) / shards * execution.gather_bytes
    weights = layout.offload_params * layout.grad_accum * 2 * fetched / machine.pcie_bytes_per_s
    return on_gpu * (1 - layout.offload_optimizer), layout.offload_optimizer * on_host + weights


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
