"""Seconds that one block and the two ends of a model keep a GPU busy, for one micro-batch.

Matrix multiplies follow the curves of ``efficiency.py``; attention runs at a share of the 16-bit rate;
everything else moves bytes through memory. Each pass is counted by its own shapes, so that tensor
parallel splits, small micro-batches and experts with few tokens are slower per FLOP.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns, ModelColumns
from planner.hardware.efficiency import (
    PRECISIONS,
    attention_curves,
    bandwidth_bytes_per_s,
    gemm_curves,
    gemm_s,
    sustained_share,
)
from planner.model import visible_keys
from planner.speed.streams import adapter_count, adapter_widths, stream_work
from planner.training.execution import ExecutionColumns

# An expert's tokens fill tiles of this many rows; half of the last tile is empty on average.
TILE_ROWS = 128.0
# Matrix multiplies whose widths are no multiples of 64 elements load operands in narrower pieces (NVIDIA
# matrix multiplication guide, "Tensor Core requirements"); of 8 elements: see the step from 50257 to
# 50304 words in karpathy/nanoGPT. The factors are fitted.
ALIGNMENT = 64.0
MISALIGNED = 1.4
ODD_VOCAB = 1.8
# A sliding window is visited in tiles: queries of one tile see the window and up to this many keys more.
WINDOW_TILE_KEYS = 256.0
# Grouped matrix multiplies over experts against one of the same total size: the narrower an expert, the
# shorter the inner products and the more of each is start and end. Width at which half is left (fitted; see
# tests/accuracy/NOTES.md).
GROUPED_HALF_WIDTH = 700.0
# Kernels of one adapter (dropout, casts, two multiplies, scale, add: huggingface/peft
# tuners/lora/layer.py) and of unpacking one quantised weight (bitsandbytes functional.py
# dequantize_4bit).
ADAPTER_LAUNCHES = 8.0
UNPACK_LAUNCHES = 3.0
# Batched score products with a head's short inner dimension, where scores are materialised (PyTorch eager
# rows of Dao-AILab/flash-attention assets/flash2_a100_fwd_bwd_benchmark.png).
EAGER_SCORE_SHARE = 0.6
# Causal attention needs longer sequences than full attention for the same share: rows of the same
# figures.
FULL_ATTENTION_HALF_SEQ = 0.4


@dataclass(frozen=True, slots=True)
class Rates:
    """Speeds of the machine in the precisions of the run."""

    linear_flops_per_s: Array
    linear_operand_bytes_per_s: Array
    linear_latency_s: Array
    half_flops_per_s: Array
    half_operand_bytes_per_s: Array
    half_latency_s: Array
    bandwidth_bytes_per_s: Array
    attention_forward_flops_per_s: Array
    attention_backward_flops_per_s: Array


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds and launches of one piece of the model for one micro-batch, and FLOPs of its forward pass."""

    matmul_forward_s: Array
    matmul_input_gradient_s: Array
    matmul_weight_gradient_s: Array
    attention_forward_s: Array
    attention_backward_s: Array
    memory_forward_s: Array
    memory_backward_s: Array
    forward_launches: Array
    backward_launches: Array


def rates_of(
    model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, machine: MachineColumns
) -> Rates:
    """Speeds of each machine in the precision of each run."""
    gpu = machine.gpu_index.astype(np.intp)
    curves, attention = gemm_curves(), attention_curves()
    half_burst = curves.flops_per_s[gpu, execution.half_index]
    linear_share = sustained_share()[gpu, execution.precision_index]
    half_share = sustained_share()[gpu, execution.half_index]
    attention_share = sustained_share()[gpu, PRECISIONS.index("fp32")]  # of the card, whatever the precision
    seq = execution.attention_tokens / layout.cp
    half_seq = attention.half_seq[gpu, execution.attention_kernel] * (
        FULL_ATTENTION_HALF_SEQ + (1 - FULL_ATTENTION_HALF_SEQ) * model.causal
    )
    narrow = (
        np.minimum(model.head_dim / 128, 1) ** attention.head_dim_exponent[gpu, execution.attention_kernel]
    )
    wide = np.minimum(128 / model.head_dim, 1) ** attention.wide_exponent[gpu, execution.attention_kernel]
    shape = half_burst * attention_share * seq / (seq + half_seq) * narrow * wide
    return Rates(
        linear_flops_per_s=curves.flops_per_s[gpu, execution.precision_index]
        * linear_share
        * execution.linear_share,
        linear_operand_bytes_per_s=curves.operand_bytes_per_s[gpu, execution.precision_index],
        linear_latency_s=curves.latency_s[gpu, execution.precision_index],
        half_flops_per_s=half_burst * half_share,
        half_operand_bytes_per_s=curves.operand_bytes_per_s[gpu, execution.half_index],
        half_latency_s=curves.latency_s[gpu, execution.half_index],
        bandwidth_bytes_per_s=bandwidth_bytes_per_s()[gpu],
        attention_forward_flops_per_s=shape * attention.forward[gpu, execution.attention_kernel],
        attention_backward_flops_per_s=shape * attention.backward[gpu, execution.attention_kernel],
    )


def tokens_per_micro_batch(execution: ExecutionColumns, layout: LayoutColumns) -> Array:
    """Tokens that a rank holds of one micro-batch (before tensor parallel)."""
    return layout.micro_batch * execution.seq_len / layout.cp


def block_work(model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, rates: Rates) -> Work:
    """One block, averaged over plain and expert blocks, on one tensor-parallel rank."""
    tokens = tokens_per_micro_batch(execution, layout)
    linears = _linears_s(model, execution, layout, rates, tokens)
    adapters = _adapters_s(model, execution, layout, rates, tokens)
    attention_forward, attention_backward = _attention_s(model, execution, layout, rates, tokens)
    stream = stream_work(model, execution, layout, rates.bandwidth_bytes_per_s, tokens)
    trained = 1 - execution.frozen_base
    count = adapter_count(model, execution) * (execution.adapters.rank > 0)
    unpacked = UNPACK_LAUNCHES * execution.quantised * (5 + model.gated)
    return Work(
        matmul_forward_s=linears + adapters,
        matmul_input_gradient_s=linears + adapters,
        matmul_weight_gradient_s=linears * trained + adapters,
        attention_forward_s=attention_forward,
        attention_backward_s=attention_backward,
        memory_forward_s=stream.forward_s,
        memory_backward_s=stream.backward_s,
        forward_launches=stream.forward_launches + ADAPTER_LAUNCHES * count + unpacked,
        backward_launches=stream.backward_launches + 1.5 * ADAPTER_LAUNCHES * count + unpacked,
    )


def _linears_s(
    model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, rates: Rates, tokens: Array
) -> Array:
    """Seconds of one pass (forward, input gradient or weight gradient) over the linears of an average
    block.
    """
    dense, moe = model.dense_layers / model.num_layers, model.moe_layers / model.num_layers
    per_expert = model.params_experts_layer / np.maximum(model.num_experts, 1)
    shared = np.maximum(model.matmul_moe_layer - model.experts_per_token * per_expert, 0)
    plain = model.matmul_attention_layer + dense * model.matmul_ffn_dense_layer + moe * shared
    attention_widths = model.q_width + model.k_width + model.v_width + model.o_width
    inner = (
        (1 + model.gated) * (dense * model.ffn + moe * model.shared_ffn)
        + dense * model.ffn
        + moe * model.shared_ffn
    )
    widths = (
        (4 + 2 * moe * (model.shared_ffn > 0)) * model.hidden
        + (attention_widths + inner) / layout.tp
        + 2 * (model.mla_q_rank + model.mla_kv_rank)
    )
    launches = 4 + 2 * (execution.kernels.linear.forward_launches > 1.25) + (model.mla_kv_rank > 0) * 3
    plain_s = gemm_s(
        2 * tokens * plain / layout.tp * _alignment(model, layout),
        execution.linear_bytes * (tokens * widths + plain / layout.tp),
        launches,
        rates.linear_flops_per_s,
        rates.linear_operand_bytes_per_s,
        rates.linear_latency_s,
    )
    if not np.any(model.num_experts):
        return plain_s
    return plain_s + moe * _experts_s(model, execution, layout, rates, tokens, per_expert)


def _alignment(model: ModelColumns, layout: LayoutColumns) -> Array:
    """Factor on the linears' time where widths on a tensor-parallel rank do not fill whole loads."""
    odd = (model.hidden % ALIGNMENT > 0) | (model.q_width / layout.tp % ALIGNMENT > 0)
    odd = odd | (model.ffn / layout.tp % ALIGNMENT > 0)
    factor: Array = np.where(odd, MISALIGNED, 1.0)
    return factor


def _experts_s(
    model: ModelColumns,
    execution: ExecutionColumns,
    layout: LayoutColumns,
    rates: Rates,
    tokens: Array,
    per_expert: Array,
) -> Array:
    """Seconds of one pass over the routed experts of an expert block: few rows each, uneven, half-empty
    last tiles.
    """
    experts = np.maximum(model.num_experts, 1)
    routed = tokens * model.experts_per_token * layout.etp / layout.tp
    local_experts = experts / layout.ep
    rows = np.maximum(routed / local_experts, 1)
    uneven = np.where(layout.ep > 1, execution.expert_imbalance, 1)
    narrow = GROUPED_HALF_WIDTH * layout.etp / np.maximum(model.expert_ffn, 1)
    waste = (1 + 0.5 * TILE_ROWS / rows) * uneven * (1 + (execution.habits.grouped_experts > 0) * narrow)
    launches = np.where(execution.habits.grouped_experts > 0, 4 + local_experts / 8, 3 * local_experts)
    return gemm_s(
        2 * routed * per_expert / layout.etp * waste,
        execution.linear_bytes
        * (
            routed * (2 * model.hidden + (2 + model.gated) * model.expert_ffn / layout.etp)
            + local_experts * per_expert / layout.etp
        ),
        launches,
        rates.linear_flops_per_s,
        rates.linear_operand_bytes_per_s,
        rates.linear_latency_s,
    )


def _adapters_s(
    model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, rates: Rates, tokens: Array
) -> Array:
    """Seconds of one pass over the adapters of a block: two thin multiplies for each adapted linear."""
    if not np.any(execution.adapters.rank):
        return np.zeros(())
    inputs, outputs = adapter_widths(model, execution)
    widths = (inputs + outputs) / layout.tp
    return gemm_s(
        2 * tokens * execution.adapters.rank * widths,
        execution.activation_bytes * tokens * widths,
        2 * adapter_count(model, execution),
        rates.half_flops_per_s,
        rates.half_operand_bytes_per_s,
        rates.half_latency_s,
    )


def _attention_s(
    model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, rates: Rates, tokens: Array
) -> tuple[Array, Array]:
    """Forward and backward seconds of the scores of a block. The fused backward pass does 2.5 times the
    forward work.
    """
    local = model.local_layers / model.num_layers
    span = execution.attention_tokens
    tiles = local * np.minimum(WINDOW_TILE_KEYS, np.maximum(span - model.attention_window, 0))
    keys = visible_keys(model, span) + tiles
    flops = 2 * tokens * model.attention_dims / layout.tp * keys
    fused_forward = flops / rates.attention_forward_flops_per_s + rates.half_latency_s
    fused_backward = 2.5 * flops / rates.attention_backward_flops_per_s + 2 * rates.half_latency_s
    if not np.any(execution.eager_attention):
        return fused_forward, fused_backward
    full = 2 * tokens * model.attention_dims / layout.tp * execution.seq_len
    scores = tokens * execution.seq_len * model.num_heads / layout.tp
    traffic = scores * execution.score_bytes * execution.activation_bytes / 2 / rates.bandwidth_bytes_per_s
    product = full / (rates.half_flops_per_s * EAGER_SCORE_SHARE) + 2 * rates.half_latency_s
    eager = execution.eager_attention
    return (
        np.where(eager > 0, product + 0.42 * traffic, fused_forward),
        np.where(eager > 0, 2 * product + 0.58 * traffic, fused_backward),
    )


def ends_work(model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, rates: Rates) -> Work:
    """Embedding, output head and loss: on the first and last pipeline stage."""
    tokens = tokens_per_micro_batch(execution, layout)
    split = np.where(execution.vocab_parallel > 0, layout.tp, 1)
    vocab = model.vocab * model.has_head / split
    odd = np.where(model.vocab % 8 > 0, ODD_VOCAB, np.where(model.vocab % ALIGNMENT > 0, MISALIGNED, 1.0))
    factor = np.where(execution.habits.pads_vocab > 0, 1.0, odd)
    head = gemm_s(
        2 * tokens * model.matmul_head / split * factor,
        execution.activation_bytes * (tokens * (model.hidden + vocab) + model.matmul_head / split),
        np.asarray(1.0),
        rates.half_flops_per_s,
        rates.half_operand_bytes_per_s,
        rates.half_latency_s,
    )
    adapters = _head_adapter_s(model, execution, rates, tokens, split)
    loss = tokens * vocab * execution.loss_bytes / rates.bandwidth_bytes_per_s
    embedding = 6 * tokens * model.hidden * execution.activation_bytes / 2 / rates.bandwidth_bytes_per_s
    trained = 1 - execution.frozen_base
    zero = np.zeros(())
    return Work(
        matmul_forward_s=head + adapters,
        matmul_input_gradient_s=head + adapters,
        matmul_weight_gradient_s=head * trained + adapters,
        attention_forward_s=zero,
        attention_backward_s=zero,
        memory_forward_s=0.4 * loss + embedding,
        memory_backward_s=0.6 * loss + embedding * trained,
        forward_launches=np.asarray(12.0),
        backward_launches=np.asarray(15.0),
    )


def _head_adapter_s(
    model: ModelColumns, execution: ExecutionColumns, rates: Rates, tokens: Array, split: Array
) -> Array:
    """Seconds of one pass over an adapter of the output head."""
    rank = execution.adapters.rank * execution.adapters.head
    widths = (model.hidden + model.vocab) / split
    seconds = gemm_s(
        2 * tokens * rank * widths,
        execution.activation_bytes * tokens * widths,
        np.asarray(2.0),
        rates.half_flops_per_s,
        rates.half_operand_bytes_per_s,
        rates.half_latency_s,
    )
    return seconds * (rank > 0)
