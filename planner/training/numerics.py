"""Number formats of a training, as columns: bytes of weights, gradients, states, activations and logits.

Where a format depends on how weights are sharded, both values are kept (``unsharded`` for ZeRO 0-2,
``sharded`` for ZeRO-3 / FSDP), so that the search may vary the stage as a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from planner.columns import Array
from planner.training import frameworks
from planner.training.formats import COMPUTE_BYTES, FormatColumns, format_columns, numerics_of, scalar
from planner.training.frameworks import MemoryProfile
from planner.training.lora import LoraTargets, parse_targets
from planner.types import LoraSpec, TrainingSpec

PAGED = ("adamw-paged", "adamw-paged-8bit")


@dataclass(frozen=True, slots=True)
class AdapterColumns:
    """LoRA: what is adapted and what an adapter keeps. ``lora`` 0: there are none."""

    lora: Array
    rank: Array
    dropout: Array  # 1 = some
    q: Array
    k: Array
    v: Array
    o: Array
    gate: Array
    up: Array
    down: Array
    head: Array
    quantised: Array  # 1 = the frozen base is kept in 4 or 8 bit
    kbit_inputs: Array  # 1 = quantised linears keep their inputs although they are frozen
    kbit_last_inputs: Array  # 1 = those of the last micro-batch too, while the next one runs forward
    merged_qkv: Array  # 1 = one adapter input for q, k and v
    qkv_storage_kept: Array  # 1 = v is a view of a merged tensor
    output_kept: Array  # 1 = outputs of q, k, v adapters are kept


@dataclass(frozen=True, slots=True)
class ShardingColumns:
    """What a framework's data parallelism keeps beside the states."""

    in_backward: Array  # 1 = the optimizer step runs inside backward, gradients do not pile up
    paged: Array  # 1 = optimizer states live in pageable memory that may leave the GPU
    keeps_gradients: Array  # 1 = one gradient buffer lives through the whole step
    bucket_copies: Array
    bucket_params: Array
    live_params: Array
    gathered_blocks: Array
    root_gathered: (
        Array  # what stays gathered from forward to backward: 0 nothing, 1 the head, 2 embedding too
    )
    reduce_bytes: Array
    unsharded_gradients: Array  # 1 = gradients stay whole while accumulating, 2 = always
    wraps_frozen: Array
    pipeline_keeps_gathered: Array
    naive_pipeline: Array  # 1 = layers are split over GPUs that work one after the other
    extra_bytes: Array
    extra_sharded_bytes: Array
    embedding_as_layer: Array
    ties_embeddings: Array


@dataclass(frozen=True, slots=True)
class BlockColumns:
    """How a framework's block is written: which tensors it keeps for backward."""

    fused_norm: Array
    gated_copies: Array  # tensors of feed-forward width that a gated feed-forward keeps
    plain_copies: Array  # the same without a gate
    gated_in_place: Array  # 1 = gradients of gate and up take the place of their values (Liger, Unsloth)
    kv_repeated: Array
    separate_linears: Array  # 1 = q, k, v (and gate, up) are linears of their own
    eager: Array  # 1 = attention scores are materialised
    score_bytes: Array
    dropout: Array  # 1 = some
    selective_op: Array
    selective_attention: Array
    selective_fraction: Array
    moe_copies: Array  # tokens of the fullest expert rank over the mean
    expert_output_kept: Array  # 1 = the router's weight multiplies experts' outputs, which are kept
    grouped_experts: Array  # 1 = all experts in one grouped matrix multiply, 0 = one after the other


@dataclass(frozen=True, slots=True)
class LossColumns:
    """Bytes per logit of head and cross-entropy."""

    backward: Array  # at the peak of the loss' backward pass
    forward: Array
    kept: Array  # logits that live on while the blocks run backward
    layer_norm: Array  # added where the model has layer norms: GPT-type code does not upcast its logits
    parallel: Array  # added at the backward peak where the vocabulary is split over tensor-parallel ranks
    linear: Array  # 1 = logits never exist whole
    in_pieces: Array  # 1 = the head's gradient grows while the loss runs
    vocab_parallel: Array


@dataclass(frozen=True, slots=True)
class TrainingColumns:
    """What memory needs to know of a training. Masks are 0 or 1."""

    seq_len: Array
    frozen_layers: Array
    unsharded: FormatColumns
    sharded: FormatColumns
    adapter: AdapterColumns
    sharding: ShardingColumns
    block: BlockColumns
    loss: LossColumns
    expandable: Array  # 1 = the caching allocator uses expandable segments
    fragmentation: Array  # 1 = micro-batches of one size; more where lengths vary
    context_bytes: Array
    groups_beside: Array  # communicators beside those of the axes: 1 = of the whole job, 2 = of the model too
    switch_rank_bytes: Array  # that a communicator takes for each rank of a node behind a switch that reduces
    loads: Array  # 1 = starts from a checkpoint
    loads_on_every_rank: Array  # 1 = every rank holds the whole checkpoint in host memory for a while


def training_columns(trainings: Sequence[TrainingSpec]) -> TrainingColumns:
    """Columns of shape ``()`` for one training, ``(n,)`` for n."""
    rows = [_row(training) for training in trainings]
    if len(rows) == 1:
        return rows[0]
    stacked: TrainingColumns = _stacked(rows)
    return stacked


def _stacked(rows: list[Any]) -> Any:  # noqa: ANN401 - any record of columns
    """Join records of columns field by field, records inside them too."""
    if not is_dataclass(rows[0]):
        return np.stack(rows)
    kind: Any = type(rows[0])
    return kind(*(_stacked([getattr(row, f.name) for row in rows]) for f in fields(kind)))


# ------------------------------------------------------------------------------------------------ one
# training


@lru_cache(maxsize=4096)
def _row(training: TrainingSpec) -> TrainingColumns:
    profile = frameworks.match(training.framework).memory
    lora = training.lora or (LoraSpec() if training.method in ("lora", "qlora") else None)
    return TrainingColumns(
        seq_len=scalar(training.seq_len),
        frozen_layers=scalar(training.frozen_layers),
        unsharded=format_columns(training, lora, profile, sharded=False),
        sharded=format_columns(training, lora, profile, sharded=True),
        adapter=_adapter(training, lora, profile),
        sharding=_sharding(training, lora, profile),
        block=_block(training, profile),
        loss=_loss(training, profile),
        expandable=scalar(profile.expandable_segments),
        fragmentation=scalar(profile.fragmentation),
        context_bytes=scalar(profile.context_mib * 2**20),
        groups_beside=scalar(profile.groups_beside),
        switch_rank_bytes=scalar(_switch_rank_bytes(training.framework, profile)),
        loads=scalar(training.method != "pretrain"),
        loads_on_every_rank=scalar(profile.loads_on_every_rank),
    )


# Two buffers for each of 16 channels, of 6 MiB, since NCCL 2.24 (January 2025) of 1 MiB: NVIDIA/nccl
# src/transport/nvls.cc prints them as nvlsPerRankSize.
_SMALL_BUFFERS_SINCE = "2025-01"
_SWITCH_RANK_BYTES, _EARLY_SWITCH_RANK_BYTES = 2 * 16 * 2.0**20, 2 * 16 * 6 * 2.0**20


def _switch_rank_bytes(framework: str, profile: MemoryProfile) -> float:
    """Bytes of NCCL's buffers for reduction inside the switch, per rank of a node, by date."""
    early = frameworks.date_of(framework) < _SMALL_BUFFERS_SINCE
    return profile.switch_buffers * (_EARLY_SWITCH_RANK_BYTES if early else _SWITCH_RANK_BYTES)


def _adapter(training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile) -> AdapterColumns:
    targets = parse_targets(lora.targets) if lora else LoraTargets()
    dropout = lora is not None and (lora.dropout or profile.lora_dropout) > 0
    quantised = lora is not None and lora.base_bits < 16
    bnb = quantised and lora is not None and lora.quant != "gptq"
    tied = bnb and frameworks.date_of(training.framework) < profile.kbit_keeps_inputs_until
    return AdapterColumns(
        lora=scalar(lora is not None),
        rank=scalar(lora.rank if lora else 0),
        dropout=scalar(dropout),
        q=scalar(targets.q),
        k=scalar(targets.k),
        v=scalar(targets.v),
        o=scalar(targets.o),
        gate=scalar(targets.gate),
        up=scalar(targets.up),
        down=scalar(targets.down),
        head=scalar(targets.head),
        quantised=scalar(quantised),
        kbit_inputs=scalar(tied),
        kbit_last_inputs=scalar(tied and profile.keeps_last_graph),
        merged_qkv=scalar(profile.merged_qkv),
        qkv_storage_kept=scalar(profile.qkv_storage_kept),
        output_kept=scalar(profile.adapter_output_kept),
    )


def _sharding(training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile) -> ShardingColumns:
    impl = training.optimizer_impl or profile.optimizer_impl
    bf16_optimizer = profile.gradient_bytes_bf16_optimizer > 0 and training.precision == "bf16"
    full = lora is None
    return ShardingColumns(
        in_backward=scalar(impl == "in-backward"),
        paged=scalar(impl == "paged" or training.optimizer in PAGED),
        keeps_gradients=scalar(profile.keeps_gradients and lora is None),
        bucket_copies=scalar(profile.bucket_copies),
        bucket_params=scalar(profile.bucket_params),
        live_params=scalar(profile.live_params),
        gathered_blocks=scalar(profile.gathered_blocks),
        root_gathered=scalar(("none", "head", "all").index(profile.root_gathered)),
        reduce_bytes=scalar(profile.reduce_bytes),
        unsharded_gradients=scalar(("never", "accumulating", "always").index(profile.unsharded_gradients)),
        wraps_frozen=scalar(profile.wraps_frozen),
        ties_embeddings=scalar(profile.ties_embeddings),
        pipeline_keeps_gathered=scalar(profile.pipeline_keeps_gathered),
        naive_pipeline=scalar(profile.naive_pipeline),
        extra_bytes=scalar(profile.extra_bytes_per_param if full and not bf16_optimizer else 0.0),
        extra_sharded_bytes=scalar(profile.extra_sharded_bytes_per_param if full else 0.0),
        embedding_as_layer=scalar(profile.embedding_counts_as_layer),
    )


def _block(training: TrainingSpec, profile: MemoryProfile) -> BlockColumns:
    compiled = bool(training.compile)
    dropout = profile.dropout if training.dropout is None else training.dropout
    gated = 3.0 if profile.fused_gated or compiled or training.fused_kernels else 4.0
    return BlockColumns(
        fused_norm=scalar(profile.fused_norm or compiled or bool(training.fused_kernels)),
        gated_copies=scalar(gated),
        gated_in_place=scalar(bool(training.fused_kernels)),
        plain_copies=scalar(min(2.0, profile.plain_ffn_copies) if compiled else profile.plain_ffn_copies),
        kv_repeated=scalar(profile.kv_repeated),
        separate_linears=scalar(profile.separate_linears),
        eager=scalar(training.attention == "eager"),
        score_bytes=scalar(profile.score_bytes),
        dropout=scalar(dropout > 0),
        selective_op=scalar(profile.selective == "op"),
        selective_attention=scalar(profile.selective == "attention"),
        selective_fraction=scalar(profile.selective_fraction),
        moe_copies=scalar(1.0 if training.moe_token_drop else profile.moe_copies),
        expert_output_kept=scalar(profile.expert_output_kept),
        grouped_experts=scalar(profile.grouped_experts),
    )


def _loss(training: TrainingSpec, profile: MemoryProfile) -> LossColumns:
    """Bytes per logit: 16-bit logits, their fp32 copy, log-probabilities and gradients, as each loss
    keeps them.
    """
    loss = training.loss or profile.loss
    if training.loss is None and loss == "plain" and training.fused_kernels:
        loss = "fused"
    if training.loss is None and loss == "plain" and training.compile and profile.compiles_loss:
        loss = "compiled"
    compute = COMPUTE_BYTES[numerics_of(training, profile, sharded=False)]
    upcast = {2: 12.0 if profile.loss_upcast else 10.0, 4: 12.0}[compute]
    if compute == 2 and not profile.loss_upcast and training.precision == "bf16-pure":
        upcast = 6.0
    plain = profile.loss_plain_bytes or upcast
    kept = compute * float(profile.logits_kept)
    backward = {
        "plain": plain + kept,
        "compiled": profile.loss_compiled_bytes,
        "chunked": _chunked_bytes(training, profile, compute, plain),
        "fused": profile.loss_fused_bytes,
        "fused-linear": 0.0,
    }[loss]
    forward = max(plain - 2, 0.0) if loss == "plain" else backward
    return LossColumns(
        backward=scalar(backward),
        forward=scalar(forward),
        kept=scalar(kept if loss in ("plain", "fused") else 0.0),
        layer_norm=scalar(_layer_norm_bytes(training, profile) if loss in ("plain", "fused") else 0.0),
        parallel=scalar(max(profile.loss_parallel_bytes - plain, 0.0) if loss == "plain" else 0.0),
        linear=scalar(loss == "fused-linear"),
        in_pieces=scalar(loss in ("chunked", "fused-linear")),
        vocab_parallel=scalar(profile.vocab_parallel),
    )


def _layer_norm_bytes(training: TrainingSpec, profile: MemoryProfile) -> float:
    """What GPT-type models (layer norms) add: Hugging Face's do not upcast logits as Llama-type ones do.

    All in bf16 that saves copies; under autocast the loss and accelerate's fp32 outputs make their own
    (slopes of foundation-model-stack/fms-acceleration scripts/benchmarks/refs/*.csv over batch).
    """
    if not profile.loss_by_model or training.precision in ("fp32", "tf32"):
        return 0.0
    return -4.0 if training.precision == "bf16-pure" else 6.0


def _chunked_bytes(training: TrainingSpec, profile: MemoryProfile, compute: float, plain: float) -> float:
    """Bytes per logit where the loss runs piece by piece.

    Logits stay whole unless the head runs in pieces too. Eager code keeps every piece's
    log-probabilities; compiled code recomputes them (pytorch/torchtune
    modules/loss/ce_chunked_output_loss.py).
    """
    if profile.chunks_head:
        return plain / profile.loss_chunks
    if training.compile:
        return compute + profile.loss_compiled_bytes / profile.loss_chunks
    return compute + (4.0 if profile.loss_upcast else compute) + plain / profile.loss_chunks / 2
