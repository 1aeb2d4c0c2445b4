"""Seconds of the kernels that stream tensors through memory: norms, residuals, activations, rotary
positions, casts.

Every term is linear in tokens, so bytes per token are added up first: once for tensors that tensor
parallel does not split unless sequence parallel does (norms, residuals), once for those that it splits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LayoutColumns, ModelColumns
from planner.training.execution import ExecutionColumns, Traffic

# Streaming kernels that follow each other on a stream leave this gap (te42kyfo/gpu-benches, CUDA launches
# in a stream).
KERNEL_GAP_S = 1.5e-6


@dataclass(frozen=True, slots=True)
class Stream:
    """Seconds and launches of the streaming kernels of a block."""

    forward_s: Array
    backward_s: Array
    forward_launches: Array
    backward_launches: Array


def adapter_widths(model: ModelColumns, execution: ExecutionColumns) -> tuple[Array, Array]:
    """Add up input and output widths of the linears of a block that carry adapters."""
    ffn = np.where(model.dense_layers > 0, model.ffn, model.expert_ffn)
    inputs = (
        (execution.adapters.q + execution.adapters.k + execution.adapters.v) * model.hidden
        + execution.adapters.o * model.o_width
        + (execution.adapters.gate * model.gated + execution.adapters.up) * model.hidden
        + execution.adapters.down * ffn
    )
    outputs = (
        execution.adapters.q * model.q_width
        + execution.adapters.k * model.k_width
        + execution.adapters.v * model.v_width
        + execution.adapters.o * model.hidden
        + (execution.adapters.gate * model.gated + execution.adapters.up) * ffn
        + execution.adapters.down * model.hidden
    )
    return inputs, outputs


def adapter_count(model: ModelColumns, execution: ExecutionColumns) -> Array:
    """Adapted linears of a block."""
    return (
        execution.adapters.q
        + execution.adapters.k
        + execution.adapters.v
        + execution.adapters.o
        + execution.adapters.gate * model.gated
        + execution.adapters.up
        + execution.adapters.down
    )


def stream_work(
    model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, bandwidth: Array, tokens: Array
) -> Stream:
    """Streaming kernels of an average block for ``tokens`` tokens on one tensor-parallel rank."""
    repeated, split = _repeated_items(model, execution), _split_items(model, execution)
    extra_forward, extra_backward = _extra_bytes(model, execution)
    scale = execution.activation_bytes / 2
    share = tokens / layout.tp
    # without sequence parallel every tensor-parallel rank repeats norms and residuals
    whole = np.where(layout.sequence_parallel > 0, share, tokens)
    items = (*repeated, *split)
    moe = model.moe_layers / model.num_layers
    others = 4 * execution.eager_attention + 6 * moe
    forward_launches = sum(item.forward_launches * count for item, _, count in items) + others
    backward_launches = sum(item.backward_launches * count for item, _, count in items) + 2 * others
    forward = whole * (scale * _sum_forward(repeated)) + share * (scale * _sum_forward(split) + extra_forward)
    backward = whole * (scale * _sum_backward(repeated)) + share * (
        scale * _sum_backward(split) + extra_backward
    )
    return Stream(
        forward_s=forward / bandwidth + forward_launches * KERNEL_GAP_S,
        backward_s=backward / bandwidth + backward_launches * KERNEL_GAP_S,
        forward_launches=forward_launches + 5,
        backward_launches=backward_launches + 10,
    )


_Items = tuple[tuple[Traffic, Array, Array], ...]


def _sum_forward(items: _Items) -> Array:
    """Bytes per token, forward."""
    return np.asarray(sum(item.forward_bytes * elements for item, elements, _ in items))


def _sum_backward(items: _Items) -> Array:
    """Bytes per token, backward."""
    return np.asarray(sum(item.backward_bytes * elements for item, elements, _ in items))


def _repeated_items(model: ModelColumns, execution: ExecutionColumns) -> _Items:
    """Operations on the hidden state: (traffic, elements per token, count)."""
    rms = model.norms_per_layer * model.norm_is_rms
    layer = model.norms_per_layer * (1 - model.norm_is_rms)
    twice = 2 * execution.has_dropout
    return (
        (execution.kernels.rms_norm, rms * model.hidden, rms),
        (execution.kernels.layer_norm, layer * model.hidden, layer),
        (execution.kernels.residual, 2 * model.hidden, np.asarray(2.0)),
        (execution.kernels.dropout, twice * model.hidden, twice),
        (execution.kernels.linear, 2 * model.hidden, np.asarray(2.0)),
    )


def _ffn_elements(model: ModelColumns) -> Array:
    """Elements per token between the two multiplies of the feed-forward of an average block."""
    dense, moe = model.dense_layers / model.num_layers, model.moe_layers / model.num_layers
    return dense * model.ffn + moe * (model.shared_ffn + model.experts_per_token * model.expert_ffn)


def _is_gpt2(model: ModelColumns) -> Array:
    """Decoders with learned positions and as many key heads as query heads: GPT-2 and its kin, whose gelu
    eager code composes of element-wise kernels (huggingface/transformers activations.py NewGELUActivation).
    """
    whole = model.q_width == model.k_width
    alike: Array = model.learned_positions * model.causal * whole
    return alike


def _split_items(model: ModelColumns, execution: ExecutionColumns) -> _Items:
    """Operations on tensors that tensor parallel splits: (traffic, elements per token, count)."""
    ffn = _ffn_elements(model)
    rotates = 1 - model.learned_positions
    attention = model.q_width + model.k_width + model.v_width
    composed = (1 - model.gated) * _is_gpt2(model)
    return (
        (execution.kernels.gated_ffn, ffn * model.gated, model.gated),
        (execution.kernels.plain_ffn, ffn * (1 - model.gated - composed), 1 - model.gated - composed),
        (execution.kernels.composed_gelu, ffn * composed, composed),
        (execution.kernels.rope, (model.q_width + model.k_width) * rotates, rotates),
        (execution.kernels.linear, attention + (1 + model.gated) * ffn, 2 + model.gated),
    )


def _extra_bytes(model: ModelColumns, execution: ExecutionColumns) -> tuple[Array, Array]:
    """Bytes per token of casts to fp8, of the permutation of tokens to experts, and of what adapters add."""
    ffn = _ffn_elements(model)
    attention = model.q_width + model.k_width + model.v_width
    cast_forward = execution.fp8_cast_bytes * (2 * model.hidden + model.o_width + ffn)
    cast_backward = execution.fp8_cast_bytes * (2 * model.hidden + attention + (1 + model.gated) * ffn)
    routed = model.moe_layers / model.num_layers * model.experts_per_token
    permuted = 4 * routed * model.hidden * execution.activation_bytes
    inputs, outputs = adapter_widths(model, execution)
    adapters = execution.adapters.input_bytes * inputs + execution.adapters.output_bytes * outputs
    return cast_forward + permuted + adapters, cast_backward + permuted + adapters
