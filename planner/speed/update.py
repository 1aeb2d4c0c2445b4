"""What a step does besides micro-batches: visible data-parallel traffic, the optimizer, host transfers."""

from __future__ import annotations

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns, ModelColumns
from planner.hardware.efficiency import PRECISIONS, bandwidth_bytes_per_s, gemm_curves
from planner.speed.layers import tokens_per_micro_batch
from planner.speed.links import DataSeconds, Parameters
from planner.training.execution import ExecutionColumns

# Communication that runs beside compute takes its memory bandwidth and SMs: share of its own time that
# compute loses (fitted).
INTERFERENCE = 0.15
# Tensors that an optimizer visits per block: weights of attention, feed-forward and norms.
TENSORS_PER_BLOCK = 9.0
# CPU Adam moves this many bytes per parameter through host memory at about this rate per GPU (DeepSpeed
# ZeRO-Offload tutorial).
HOST_OPTIMIZER_BYTES = 28.0
HOST_BYTES_PER_S = 20e9
# Transfers to the host are prefetched: share of compute that they may hide behind.
OFFLOAD_OVERLAP = 0.9
# Widths of the hidden state that a block keeps for its backward pass: its input alone with full
# recompute, else about what arXiv 2205.05198 table 2 counts without attention scores.
KEPT_WIDTHS_FULL = 1.0
KEPT_WIDTHS = 17.0
# Muon orthogonalises each matrix with 5 Newton-Schulz iterations of 3 multiplies (KellerJordan/Muon
# muon.py).
NEWTON_SCHULZ_FLOPS = 30.0


def last_share(model: ModelColumns, layout: LayoutColumns, parameters: Parameters) -> Array:
    """Share of the traffic that has nothing left to hide behind: one block and the embedding's gradient."""
    trained = parameters.trained_dense + parameters.trained_experts + parameters.trained_ends
    inputs = parameters.trained_ends * model.params_embedding / (model.params_embedding + model.params_head)
    return np.minimum(layout.pp / model.num_layers + inputs / np.maximum(trained, 1), 1)


def data_visible_s(
    data: DataSeconds,
    forward: Array,
    backward: Array,
    last: Array,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
) -> Array:
    """Visible seconds a step of data-parallel traffic: what does not fit under compute, the last block's
    share, and what compute loses to traffic beside it.

    Traffic through host memory does not hide: two RTX 3090 take compute plus traffic, whatever the batch
    (AnswerDotAI/fsdp_qlora benchmarks_03_2024.md, huggingface/transformers issue 9371).
    """
    habits = execution.habits
    every = np.where(layout.pp > 1, 1, layout.grad_accum)
    hides = machine.links.hidden_share
    room_forward, room_backward = (
        hides * habits.overlap_gather * forward,
        hides * habits.overlap_data * backward,
    )
    # ZeRO-3: parameters for each direction of each micro-batch, gradients with each backward pass
    sharded = every * (
        _visible(data.gather, room_forward, last) + _visible(data.gather + data.reduce, room_backward, last)
    )
    # ZeRO 0-2: gradients behind the last backward pass (ZeRO-2 of DeepSpeed: behind each), updated
    # parameters before the next forward pass
    reduces = np.where((habits.reduce_every_micro_batch > 0) & (layout.zero_stage == 2), every, 1)
    gathers = np.where(layout.zero_stage > 0, 1, 0)
    plain = reduces * _visible(data.reduce, room_backward, last) + gathers * _visible(
        data.gather, room_forward, last
    )
    return np.where(layout.zero_stage >= 3, sharded, plain)


def _visible(traffic: Array, room: Array, last: Array) -> Array:
    """Seconds of ``traffic`` that show when ``room`` seconds of compute may hide it."""
    hidden = np.minimum(traffic * (1 - last), room)
    return traffic - hidden + INTERFERENCE * hidden


def update_s(
    model: ModelColumns,
    parameters: Parameters,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
) -> tuple[Array, Array]:
    """Seconds of the optimizer on the GPU, and of offloaded states and weights: PCIe and CPU."""
    gpu = machine.gpu_index.astype(np.intp)
    ranks = layout.dp * layout.cp
    shards = np.where(layout.zero_stage > 0, np.clip(layout.shard_group, 1, ranks), 1)
    expert_ranks = np.maximum(ranks * layout.tp / (layout.ep * layout.etp), 1)
    trained = parameters.trained_dense + parameters.trained_ends
    local = trained / shards + parameters.trained_experts / np.minimum(shards, expert_ranks)
    launches = execution.optimizer_launches * TENSORS_PER_BLOCK * model.num_layers / layout.pp
    on_gpu = local * execution.optimizer_bytes / bandwidth_bytes_per_s()[gpu] + launches * execution.launch_s
    if np.any(execution.newton_schulz):
        rate = gemm_curves().flops_per_s[gpu, PRECISIONS.index("bf16")]
        on_gpu = on_gpu + execution.newton_schulz * local * NEWTON_SCHULZ_FLOPS * model.hidden / rate
    on_host = local * (6 / machine.pcie_bytes_per_s + HOST_OPTIMIZER_BYTES / HOST_BYTES_PER_S)
    fetched = (parameters.dense + parameters.experts + parameters.ends) / shards * execution.gather_bytes
    weights = layout.offload_params * layout.grad_accum * 2 * fetched / machine.pcie_bytes_per_s
    return on_gpu * (1 - layout.offload_optimizer), layout.offload_optimizer * on_host + weights


def activation_offload_s(
    model: ModelColumns,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    machine: MachineColumns,
    forward: Array,
    backward: Array,
) -> Array:
    """Visible seconds a step to move what blocks keep to host memory and back."""
    if not np.any(layout.offload_activations):
        return np.zeros(())
    widths = np.where(layout.recompute == 2, KEPT_WIDTHS_FULL, KEPT_WIDTHS)
    kept = tokens_per_micro_batch(execution, layout) / layout.tp * model.hidden * execution.activation_bytes
    one_way = widths * kept * model.num_layers / layout.pp / machine.pcie_bytes_per_s
    shown = np.maximum(one_way - OFFLOAD_OVERLAP * forward, 0) + np.maximum(
        one_way - OFFLOAD_OVERLAP * backward, 0
    )
    seconds: Array = layout.offload_activations * layout.grad_accum * shown
    return seconds
