"""Tensors that a block keeps for its backward pass, in bytes per token.

Read off autograd traces of Llama-, GPT- and BERT-type blocks in pure bf16, under autocast and in fp32
(torch 2.13), and counted by hand from arXiv 2205.05198 table 2. Sequence parallelism divides what is as
wide as the model, tensor parallelism what is as wide as heads or feed-forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, ModelColumns
from planner.training.formats import FormatColumns
from planner.training.numerics import AdapterColumns, BlockColumns, TrainingColumns


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """Bytes per token of one block. ``wide``: hidden-wide tensors; ``split``: those that tensor parallel
    splits.
    """

    wide: Array
    split: Array
    score: Array  # per token and key, split by tensor parallel


@dataclass(frozen=True, slots=True)
class BlockBytes:
    """Per-token bytes of a dense and a MoE block, kept whole, and under selective recompute."""

    dense: TokenBytes
    moe: TokenBytes
    dense_selective: TokenBytes
    moe_selective: TokenBytes
    head: Array  # final norm and input of the output projection
    backward_wide: Array  # gradients alive while a block runs backward
    backward_split: Array


def block_bytes(model: ModelColumns, training: TrainingColumns, formats: FormatColumns) -> BlockBytes:
    """Per-token bytes for a model and a number format; depends on no layout."""
    block, adapter, e = training.block, training.adapter, formats.compute
    norms = _norm_bytes(model, training, formats)
    attention, score = _attention_bytes(model, block, adapter, formats)
    dropout = block.dropout * 2 * model.hidden
    dense_ffn = _ffn_bytes(model, block, adapter, formats, model.ffn)
    dense = TokenBytes(norms + dropout, attention + dense_ffn, score)
    routed = _expert_bytes(model, block, adapter, formats)
    shared = _ffn_bytes(model, block, adapter, formats, model.shared_ffn)
    moe = TokenBytes(norms + dropout + routed[0], attention + routed[1] + shared, score)
    at_once = np.where(block.grouped_experts == 1, 1.0, 1 / np.maximum(model.num_experts, 1))
    routed_width = model.expert_ffn * model.experts_per_token * at_once
    widest = np.maximum(model.ffn * (model.dense_layers > 0), np.maximum(model.shared_ffn, routed_width))
    return BlockBytes(
        dense=dense,
        moe=moe,
        dense_selective=_without_modules(
            model, block, formats, _selective(model, block, formats, dense, model.ffn), np.asarray(0.0)
        ),
        moe_selective=_without_modules(
            model, block, formats, _selective(model, block, formats, moe, model.shared_ffn), model.expert_ffn
        ),
        head=_norm_tensors(model, block, formats) * model.hidden + e * model.hidden + 4,
        backward_wide=(formats.residual + e) * model.hidden,
        backward_split=(1 + model.gated * (1 - block.gated_in_place)) * e * widest,
    )


def _norm_tensors(model: ModelColumns, block: BlockColumns, formats: FormatColumns) -> Array:
    """Bytes per element that one norm keeps. A python RMSNorm keeps an fp32 copy and the normalized
    tensor.
    """
    unfused = model.norm_is_rms * (1 - block.fused_norm)
    normalized = np.maximum(formats.compute, 4 * formats.casts)
    tensors: Array = np.where(unfused == 1, 4.0 + normalized, formats.residual)
    return tensors


def _norm_bytes(model: ModelColumns, training: TrainingColumns, formats: FormatColumns) -> Array:
    """Norms of a block and the inputs of the linears behind them (full training), or what adapters need
    of them.

    A frozen norm weight keeps no normalized tensor. Autocast over fp32 weights casts the input of every
    linear.
    """
    block, adapter, h = training.block, training.adapter, model.hidden
    unfused = model.norm_is_rms * (1 - block.fused_norm)
    frozen = np.where(unfused == 1, 4.0, formats.residual)
    one = np.where(adapter.lora == 1, frozen, _norm_tensors(model, block, formats))
    statistics = np.where(model.norm_is_rms == 1, 4.0, 8.0)
    on_qk = model.qk_norm * (model.q_width + model.k_width) * one / h
    separate = np.where(block.separate_linears == 1, 4.0 + model.gated, 2.0)
    full = np.where(
        formats.casts == 1, 2 * separate, formats.linear_input * np.minimum(model.norms_per_layer, 2)
    )
    groups = np.maximum(np.maximum(adapter.q, adapter.k), adapter.v) + np.maximum(adapter.gate, adapter.up)
    qkv = adapter.q + adapter.k + adapter.v
    merged = np.where(adapter.merged_qkv == 1, np.minimum(qkv, 1), qkv)
    count = merged + adapter.gate * model.gated + adapter.up
    own = count * (formats.adapter_copy + adapter.dropout)
    held = formats.compute * adapter.kbit_inputs * np.minimum(model.norms_per_layer, 2)
    inputs = np.where(formats.adapter_copy > 0, own + held, np.maximum(formats.compute * groups, held))
    return h * (np.where(adapter.lora == 1, inputs, full) + model.norms_per_layer * one) + (
        model.norms_per_layer * statistics + on_qk * h
    )


def _attention_bytes(
    model: ModelColumns, block: BlockColumns, adapter: AdapterColumns, formats: FormatColumns
) -> tuple[Array, Array]:
    """q, k, v, output and log-sum-exp of flash attention; scores where they are materialised (per key)."""
    e = formats.compute
    # the fp32 memory-efficient kernel needs k and v at the width of q too
    repeated = np.maximum(block.kv_repeated, e == 4)
    k = np.where(repeated == 1, model.q_width, model.k_width)
    v = np.where(repeated == 1, model.o_width, model.v_width)
    latents = model.mla_q_rank + model.mla_kv_rank
    own = adapter.o * (formats.adapter_copy + adapter.dropout) * model.o_width
    between = formats.adapter_value * adapter.rank * (adapter.q + adapter.k + adapter.v + adapter.o)
    flash = e * (model.q_width + k + v + model.o_width) + 2 * e * latents + 4 * model.num_heads
    outputs = (
        adapter.output_kept
        * e
        * (adapter.q * model.q_width + adapter.k * model.k_width + adapter.v * model.v_width)
    )
    one_group = model.q_width == model.k_width
    storage = adapter.qkv_storage_kept * one_group * e * (model.q_width + model.k_width)
    # an output projection in 8 bit keeps a copy; in 16 bit it shares attention's own
    low = np.where(formats.linear_input < e, formats.linear_input, 0.0) * model.o_width
    scores = block.eager * model.num_heads * (block.score_bytes + block.dropout * (1 + e))
    return flash + own + between + outputs + storage + low, scores


def _ffn_bytes(
    model: ModelColumns, block: BlockColumns, adapter: AdapterColumns, formats: FormatColumns, width: Array
) -> Array:
    """Feed-forward: gate, up, activation, product. Frozen linears keep no input, adapters their own copy."""
    copies = np.where(model.gated == 1, block.gated_copies, block.plain_copies)
    down_input = np.where(formats.adapter_copy > 0, formats.adapter_copy + adapter.dropout, formats.compute)
    own, held = adapter.down * down_input, adapter.kbit_inputs * formats.compute
    shared = np.where(formats.adapter_copy > 0, own + held, np.maximum(own, held))
    frozen = formats.compute * (copies - 1) + shared
    between = formats.adapter_value * adapter.rank * (adapter.gate * model.gated + adapter.up + adapter.down)
    kept: Array = np.where(
        adapter.lora == 1,
        frozen * width + between * (width > 0),
        (formats.compute * (copies - 1) + formats.linear_input) * width,
    )
    return kept


def last_input_bytes(model: ModelColumns, adapter: AdapterColumns, formats: FormatColumns) -> TokenBytes:
    """Inputs of a block's quantised linears that the graph of the last micro-batch still holds.

    bitsandbytes before 0.43.2 ties them to the graph itself (its pull request 1270), so backward does not
    free them; a loop that keeps its loss keeps the graph until the next one is there.
    """
    e = adapter.kbit_last_inputs * formats.compute
    ffn = np.where(
        model.num_experts > 0, model.expert_ffn * model.experts_per_token + model.shared_ffn, model.ffn
    )
    return TokenBytes(
        wide=e * np.minimum(model.norms_per_layer, 2) * model.hidden,
        split=e * (model.o_width + ffn),
        score=np.asarray(0.0),
    )


def _expert_bytes(
    model: ModelColumns, block: BlockColumns, adapter: AdapterColumns, formats: FormatColumns
) -> tuple[Array, Array]:
    """Routed experts: dispatched inputs and outputs of every copy of a token, and their feed-forwards."""
    copies = model.experts_per_token * block.moe_copies
    # frozen experts keep no input, only the output that the router's weight multiplies
    inputs = (1 - adapter.lora) * formats.linear_input
    tokens = (inputs + block.expert_output_kept * formats.compute) * model.hidden
    router = 8 * model.num_experts
    return copies * tokens + router, copies * _ffn_bytes(model, block, adapter, formats, model.expert_ffn)


def _selective(
    model: ModelColumns, block: BlockColumns, formats: FormatColumns, whole: TokenBytes, ffn: Array
) -> TokenBytes:
    """Keep, under selective recompute, what a per-operator list keeps, or all but attention scores.

    The list is torchtitan's: outputs of q, v, gate and down linears (not of routed experts), attention, block
    input. Megatron recomputes core attention (arXiv 2205.05198 section 5).
    """
    e = formats.compute
    op_wide = (formats.residual + e) * model.hidden
    op_split = e * (model.q_width + model.v_width + model.o_width + ffn) + 4 * model.num_heads
    op = block.selective_op == 1
    attention = block.selective_attention == 1
    return TokenBytes(
        wide=np.where(op, op_wide, whole.wide),
        split=np.where(op, op_split, whole.split),
        score=np.where(op | attention, 0.0, whole.score),
    )


def _without_modules(
    model: ModelColumns, block: BlockColumns, formats: FormatColumns, kept: TokenBytes, expert_ffn: Array
) -> TokenBytes:
    """Drop what Megatron's recipes for experts recompute: norms, expert activations, MLA's up-projections.

    ``recompute_modules`` of NVIDIA-NeMo/Megatron-Bridge perf_recipes: layernorm, moe_act, mla_up_proj.
    """
    e, modules = formats.compute, block.selective_attention * (model.num_experts > 0)
    experts = e * model.experts_per_token * block.moe_copies * expert_ffn
    latent = (model.mla_kv_rank > 0) * e * (model.q_width + model.k_width + model.v_width)
    return TokenBytes(
        wide=kept.wide - modules * 2 * e * model.hidden,
        split=kept.split - modules * (experts + latent),
        score=kept.score,
    )
