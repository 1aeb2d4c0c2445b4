"""Parameters that a GPU holds, and the bytes of their states: weights, gradients, optimizer.

ZeRO stages as in arXiv 1910.02054: stage 1 shards optimizer states over ``shard_group`` ranks, 2 also
gradients, 3 also weights. Experts have data-parallel ranks of their own: dp x cp x tp / (ep x etp) of
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LayoutColumns, ModelColumns
from planner.masks import ZERO, pick, times
from planner.training import lora
from planner.training.formats import FormatColumns
from planner.training.numerics import TrainingColumns


@dataclass(frozen=True, slots=True)
class Stage:
    """Which part of the model a pipeline stage holds. ``in_flight``: micro-batches of it kept at once."""

    dense_layers: Array
    moe_layers: Array
    embedding: Array  # 1 = holds the input tables
    head: Array  # 1 = holds final norm, output projection and loss
    in_flight: Array


@dataclass(frozen=True, slots=True)
class StageParams:
    """Parameters per GPU of one stage, before ZeRO. ``expert`` ones are sharded over their own ranks."""

    dense: Array  # trainable, not experts, blocks only
    expert: Array  # trainable experts
    root: Array  # trainable embedding, head, final norm
    frozen: Array  # frozen linears of blocks
    frozen_expert: Array
    frozen_other: Array  # frozen embedding, head, norms
    block: Array  # all parameters of the largest block, trainable or not, local experts among them
    block_trainable: Array
    largest_linear: Array  # widest frozen matrix, for the buffer it is dequantised into
    head: Array  # trainable parameters of the output projection, its own or tied
    cast_frozen: Array  # frozen linears that autocast casts
    root_all: Array  # embedding, head and final norm, trainable or not
    head_all: Array  # of it, what the loss needs


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Bytes per GPU between two steps (``gradients``: once backward is done)."""

    weights: Array
    gradients: Array
    optimizer: Array
    step_temporary: Array
    offloaded: Array  # bytes per GPU that live in host memory instead


def first_stage(model: ModelColumns, training: TrainingColumns, layout: LayoutColumns) -> Stage:
    """First pipeline stage: embedding, dense-first layers, the most micro-batches in flight.

    In flight: 1F1B min(m, p); interleaved (p v + p - 1) / v chunks' worth (arXiv 2104.04473, 2205.05198
    section 4.2.3).
    """
    p, v = layout.pp, layout.interleave
    with_embedding = np.minimum(np.ceil((model.num_layers + 2) / p) - 1, model.num_layers)
    layers = pick(training.sharding.embedding_as_layer == 1, with_embedding, np.ceil(model.num_layers / p))
    dense = np.minimum(model.dense_layers, layers) if np.any(model.moe_layers) else layers
    only = np.asarray(p == 1, dtype=np.float64)
    chunks = np.where(v > 1, p + (p - 1) / v, p)
    return Stage(
        dense_layers=dense,
        moe_layers=layers - dense if np.any(model.moe_layers) else ZERO,
        embedding=np.asarray(1.0),
        head=only,
        in_flight=_in_flight(training, layout, chunks),
    )


def last_stage(model: ModelColumns, training: TrainingColumns, layout: LayoutColumns) -> Stage:
    """Last pipeline stage: head and loss, one micro-batch in flight (interleaved: (p (v - 1) + 1) / v)."""
    p, v = layout.pp, layout.interleave
    with_embedding = np.minimum(np.ceil((model.num_layers + 2) / p) - 1, model.num_layers)
    even = np.maximum(np.floor(model.num_layers / p), 1)
    layers = pick(training.sharding.embedding_as_layer == 1, with_embedding, even)
    moe = np.minimum(model.moe_layers, layers) if np.any(model.moe_layers) else ZERO
    return Stage(
        dense_layers=layers - moe,
        moe_layers=moe,
        embedding=np.asarray(p == 1, dtype=np.float64),
        head=np.asarray(1.0),
        in_flight=_in_flight(training, layout, np.where(v > 1, (p * (v - 1) + 1) / v, 1.0)),
    )


def _in_flight(training: TrainingColumns, layout: LayoutColumns, chunks: Array) -> Array:
    kept = pick(training.sharding.naive_pipeline == 1, np.asarray(1.0), chunks)
    fewest: Array = np.minimum(kept, layout.grad_accum)
    return fewest


def stage_params(
    model: ModelColumns, training: TrainingColumns, layout: LayoutColumns, stage: Stage
) -> StageParams:
    """Parameters of a stage on one GPU, split by how they are kept and sharded."""
    whole = _all_trained(model, training, layout, stage)
    if not np.any(training.adapter.lora) and not np.any(training.frozen_layers):
        return whole
    return _partly_trained(model, training, layout, stage, whole)


def _all_trained(
    model: ModelColumns, training: TrainingColumns, layout: LayoutColumns, stage: Stage
) -> StageParams:
    t, zero = layout.tp, ZERO
    has_experts = np.any(model.moe_layers)
    attention = model.params_attention_layer / t
    dense_linear = attention + model.params_ffn_dense_layer / t
    moe_linear, expert = ZERO, ZERO
    if has_experts:
        moe_linear = attention + model.params_shared_layer / t + model.params_router_layer
        expert = model.params_experts_layer / (layout.ep * layout.etp)
    nd, nm = stage.dense_layers, stage.moe_layers
    # a tied head is a table of its own on a later stage, and in frameworks that do not tie
    tied_copies = np.where(layout.pp > 1, 1.0, 1 - training.sharding.ties_embeddings)
    tied_table = model.tied * model.hidden * model.vocab
    head = stage.head * (model.params_head + times(tied_table, tied_copies)) / t
    root = stage.embedding * model.params_embedding / t + head + stage.head * model.params_root_other
    table = stage.head * (model.params_head + tied_table) / t
    largest = dense_linear
    if has_experts:
        largest = np.maximum(np.where(nd > 0, dense_linear, 0.0), np.where(nm > 0, moe_linear + expert, 0.0))
    block = largest + model.params_norm_layer
    return StageParams(
        dense=nd * dense_linear + nm * moe_linear + (nd + nm) * model.params_norm_layer,
        expert=nm * expert,
        root=root,
        frozen=zero,
        frozen_expert=zero,
        frozen_other=zero,
        block=block,
        block_trainable=block,
        largest_linear=zero,
        head=table,
        cast_frozen=zero,
        root_all=root,
        head_all=table + stage.head * model.params_root_other,
    )


def _partly_trained(
    model: ModelColumns, training: TrainingColumns, layout: LayoutColumns, stage: Stage, whole: StageParams
) -> StageParams:
    """Adapters on a frozen base, or a model whose first layers and embedding are frozen."""
    adapters, t, experts_over = training.adapter, layout.tp, layout.ep * layout.etp
    nd, nm = stage.dense_layers, stage.moe_layers
    full = 1 - adapters.lora
    train = full * (1 - np.minimum(training.frozen_layers / model.num_layers, 1))
    root_train = full * (training.frozen_layers == 0)
    norms = (nd + nm) * model.params_norm_layer
    linear = whole.dense - norms
    adapter, adapter_moe, adapter_experts, adapter_head = _adapter_params(model, training)
    on_blocks = (nd * adapter + nm * adapter_moe) / t + nm * adapter_experts / experts_over
    on_block = np.maximum(adapter, adapter_moe) / t + adapter_experts / experts_over
    return StageParams(
        dense=train * whole.dense + on_blocks,
        expert=train * whole.expert,
        root=root_train * whole.root + stage.head * adapter_head,
        frozen=(1 - train) * linear,
        frozen_expert=(1 - train) * whole.expert,
        frozen_other=(1 - train) * norms + (1 - root_train) * whole.root,
        block=whole.block,
        block_trainable=full * whole.block + on_block,
        largest_linear=adapters.quantised * _widest_matrix(model) / t,
        head=root_train * whole.head,
        cast_frozen=adapters.lora * (linear + whole.expert),
        root_all=whole.root,
        head_all=whole.head_all,
    )


def _adapter_params(model: ModelColumns, training: TrainingColumns) -> tuple[Array, Array, Array, Array]:
    """Adapter parameters of a dense block, of a MoE block without experts, of its experts, of the head."""
    a = training.adapter
    attention = lora.attention_params(model, a.rank, a.q, a.k, a.v, a.o)
    dense = lora.ffn_params(model, a.rank, model.ffn, a.gate, a.up, a.down)
    expert = lora.ffn_params(model, a.rank, model.expert_ffn, a.gate, a.up, a.down)
    shared = lora.ffn_params(model, a.rank, model.shared_ffn, a.gate, a.up, a.down) * (model.shared_ffn > 0)
    has_experts = model.num_experts > 0
    return (
        a.lora * (attention + dense),
        a.lora * has_experts * (attention + shared),
        a.lora * model.num_experts * expert,
        a.lora * lora.head_params(model, a.rank, a.head),
    )


def _widest_matrix(model: ModelColumns) -> Array:
    return model.hidden * np.maximum(np.maximum(model.ffn, model.expert_ffn), model.q_width)


def expert_shards(layout: LayoutColumns) -> Array:
    """Ranks that an expert's states are sharded over."""
    shards: Array = np.maximum(layout.shard_group * layout.tp / (layout.ep * layout.etp), 1)
    return shards


def _shares(zero_stage: Array, ranks: Array) -> tuple[Array, Array, Array]:
    """Share of optimizer states, gradients and weights that a rank holds."""
    part = 1 / ranks
    return (
        np.where(zero_stage >= 1, part, 1.0),
        np.where(zero_stage >= 2, part, 1.0),
        np.where(zero_stage >= 3, part, 1.0),
    )


def state_bytes(
    model: ModelColumns,
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    params: StageParams,
) -> StateBytes:
    """Bytes of the states of one stage on one GPU.

    Megatron bf16: 18 bytes per parameter, 6 + 12 / N with a distributed optimizer; DeepSpeed fp16: 2 + 2
    + 12 / N; autocast and FSDP mixed precision: 4 + 4 + 8; all bf16: 2 + 2 + 4.
    """
    z = layout.zero_stage
    shares = _shares(z, layout.shard_group)
    # without experts their share multiplies a scalar zero
    expert_shares = _shares(z, expert_shards(layout)) if np.any(model.moe_layers) else shares
    own, own_expert = params.dense + params.root, params.expert
    optimizer_params, gradient_params, weight_params = (
        own * share + times(own_expert, expert) for share, expert in zip(shares, expert_shares, strict=True)
    )
    frozen = times(formats.base_linear, times(params.frozen, shares[2]))
    frozen = frozen + formats.base_linear * times(params.frozen_expert, expert_shares[2])
    frozen = frozen + formats.base_other * times(params.frozen_other, shares[2])
    per_param = formats.master + training.sharding.extra_sharded_bytes
    root_extra = times(formats.moments_root - formats.moments, params.root) * shares[0]
    optimizer = optimizer_params * (per_param + formats.moments) + root_extra
    weights = weight_params * formats.weight + frozen
    weights = weights + times(training.sharding.extra_bytes, own + own_expert) * (z < 3)
    if np.any(formats.low_copy):
        low = params.dense * shares[2] + params.expert * expert_shares[2]
        weights = weights + formats.low_copy * low
    gradients = times(1 - training.sharding.in_backward, gradient_params * formats.gradient)
    temporary = ZERO
    if np.any(formats.step_temporary):
        at_once = np.where(z == 3, np.minimum(optimizer_params, formats.step_params), optimizer_params)
        temporary = at_once * formats.step_temporary * (1 - layout.offload_optimizer)
    paged = times(training.sharding.paged, optimizer)
    # the CPU step needs the gradients beside the states
    off_optimizer = layout.offload_optimizer * (optimizer + gradients)
    off_params = layout.offload_params * (weights + gradients)
    return StateBytes(
        weights=weights * (1 - layout.offload_params),
        gradients=gradients * (1 - layout.offload_params),
        optimizer=times(1 - training.sharding.paged, optimizer * (1 - layout.offload_optimizer)),
        step_temporary=temporary,
        offloaded=np.maximum(off_optimizer, paged) + off_params,
    )
