"""Number formats of a training, as columns: bytes of weights, gradients, states, activations and logits.

Where a format depends on how weights are sharded, both values are kept (``unsharded`` for ZeRO 0-2, ``sharded`` for
ZeRO-3 / FSDP), so that the search may vary the stage as a column. Optimizers vary as a column through ``choose``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import frameworks
from planner.columns import Array
from planner.frameworks import MemoryProfile
from planner.lora import LoraTargets, parse_targets
from planner.types import LoraSpec, Numerics, Optimizer, TrainingSpec

GROUP_8BIT = 2048  # elements that share one fp32 scale in bitsandbytes' 8-bit optimizers
PAGED = ("adamw-paged", "adamw-paged-8bit")


@dataclass(frozen=True, slots=True)
class FormatColumns:
    """Bytes per trainable parameter of each state, and bytes per element of what the step computes with."""

    weight: Array  # as kept between steps
    gradient: Array
    master: Array  # fp32 copy that the optimizer updates, 0 where it updates the weights
    moments: Array  # optimizer states of block weights
    moments_root: Array  # the same of embedding and head
    step_temporary: Array  # scratch of the optimizer step, per parameter
    step_params: Array  # parameters that the step works on at once under ZeRO-3
    compute: Array  # activations and gathered weights
    residual: Array  # block inputs
    casts: Array  # 1 = autocast over fp32 weights: every linear keeps its own 16-bit input
    cast_cache: Array  # bytes of autocast's cached 16-bit copy of a weight
    frozen_cast: Array  # the same of a frozen weight, kept for backward
    head_cast: Array  # the same of the output projection
    adapter_copy: Array  # bytes per element of an adapter's own copy of its input; 0 = shares the module's
    adapter_value: Array  # bytes per element of what lies between an adapter's two matrices
    base_linear: Array  # frozen weights of blocks, quantised or not
    base_other: Array  # frozen embedding, head and norms


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
    # bytes per element that quantised linears keep of their inputs although they are frozen
    kbit_saved_hidden: Array
    kbit_saved_ffn: Array
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
    root_resharded: Array
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
    kv_repeated: Array
    separate_linears: Array  # 1 = q, k, v (and gate, up) are linears of their own
    eager: Array  # 1 = attention scores are materialised
    score_bytes: Array
    dropout: Array  # 1 = some
    selective_op: Array
    selective_attention: Array
    selective_fraction: Array
    moe_copies: Array  # tokens of the fullest expert rank over the mean
    grouped_experts: Array  # 1 = all experts in one grouped matrix multiply, 0 = one after the other


@dataclass(frozen=True, slots=True)
class LossColumns:
    """Bytes per logit of head and cross-entropy."""

    backward: Array  # at the peak of the loss' backward pass
    forward: Array
    kept: Array  # logits that live on while the blocks run backward
    parallel: Array  # added at the backward peak where the vocabulary is split over tensor-parallel ranks
    linear: Array  # 1 = logits never exist whole
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
    loads: Array  # 1 = starts from a checkpoint
    loads_on_every_rank: Array  # 1 = every rank holds the whole checkpoint in host memory for a while


def training_columns(trainings: Sequence[TrainingSpec]) -> TrainingColumns:
    """Columns of shape ``()`` for one training, ``(n,)`` for n."""
    rows = [_row(training) for training in trainings]
    if len(rows) == 1:
        return rows[0]
    stacked: TrainingColumns = _merge(rows, np.stack)
    return stacked


def choose(columns: Sequence[TrainingColumns], index: NDArray[np.int64]) -> TrainingColumns:
    """Row i is ``columns[index[i]]``; what is the same in all of them stays of shape ``()``.

    The search varies the optimizer this way: one ``TrainingColumns`` for each, and a column of indices.
    """

    def pick(values: list[Array]) -> Array:
        same = all(np.array_equal(value, values[0]) for value in values)
        return values[0] if same else np.asarray(np.stack(values)[index])

    picked: TrainingColumns = _merge(list(columns), pick)
    return picked


def _merge(rows: list[Any], join: Any) -> Any:
    """Join records of columns field by field, records inside them too."""
    if not is_dataclass(rows[0]):
        return join(rows)
    kind: Any = type(rows[0])
    return kind(*(_merge([getattr(row, f.name) for row in rows], join) for f in fields(kind)))


def numerics_of(training: TrainingSpec, profile: MemoryProfile, *, sharded: bool) -> Numerics:
    """Number format of weights and states: as asked, else by precision and the framework's profile."""
    if training.numerics is not None:
        return training.numerics
    if training.precision in ("fp32", "tf32"):
        return "fp32"
    if training.precision == "bf16-pure":
        return "bf16-all"
    return profile.numerics_sharded if sharded else profile.numerics


# ------------------------------------------------------------------------------------------------ one training


@lru_cache(maxsize=4096)
def _row(training: TrainingSpec) -> TrainingColumns:
    profile = frameworks.match(training.framework).memory
    lora = training.lora or (LoraSpec() if training.method in ("lora", "qlora") else None)
    return TrainingColumns(
        seq_len=_scalar(training.seq_len),
        frozen_layers=_scalar(training.frozen_layers),
        unsharded=_formats(training, lora, profile, sharded=False),
        sharded=_formats(training, lora, profile, sharded=True),
        adapter=_adapter(training, lora, profile),
        sharding=_sharding(training, lora, profile),
        block=_block(training, profile),
        loss=_loss(training, profile),
        expandable=_scalar(profile.expandable_segments),
        fragmentation=_scalar(profile.fragmentation),
        context_bytes=_scalar(profile.context_mib * 2**20),
        loads=_scalar(training.method != "pretrain"),
        loads_on_every_rank=_scalar(profile.loads_on_every_rank),
    )


_WEIGHT = {"fp32": 4, "fp32-weights-amp": 4, "fsdp-mixed": 4, "16bit-weights-fp32-master": 2, "bf16-all": 2}
_COMPUTE = {"fp32": 4, "fp32-weights-amp": 2, "fsdp-mixed": 2, "16bit-weights-fp32-master": 2, "bf16-all": 2}


def _formats(
    training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile, *, sharded: bool
) -> FormatColumns:
    numerics = numerics_of(training, profile, sharded=sharded)
    mastered = numerics == "16bit-weights-fp32-master" and lora is None
    amp = numerics == "fp32-weights-amp" and lora is None
    weight = float(_adapter_bytes(training, lora, profile) if lora else _WEIGHT[numerics])
    compute = float(_COMPUTE[numerics])
    state = 4.0 if mastered else weight
    moments, moments_root = moment_bytes(training.optimizer, state)
    base_linear, base_other = _base_bytes(training, lora, profile, compute)
    wide = profile.adapter_residual_bytes if sharded else 0.0
    wide_residual = amp or (lora is not None and (base_other == 4 or wide == 4))
    frozen_cast = lora is not None and base_linear == 4 and compute == 2
    copy = _adapter_copy(training, lora, profile, sharded=sharded)
    return FormatColumns(
        weight=_scalar(weight),
        gradient=_scalar(_master_gradient(training, profile) if mastered else weight),
        master=_scalar(4.0 if mastered else 0.0),
        moments=_scalar(moments),
        moments_root=_scalar(moments_root),
        step_temporary=_scalar(_step_bytes(training, profile, state, mastered=mastered)),
        step_params=_scalar(profile.step_copy_params if mastered and sharded else np.inf),
        compute=_scalar(compute),
        residual=_scalar(4.0 if wide_residual else compute),
        casts=_scalar(amp),
        cast_cache=_scalar(2.0 if amp else 0.0),
        frozen_cast=_scalar(2.0 if frozen_cast else 0.0),
        head_cast=_scalar(2.0 if amp or (lora is not None and base_other == 4) else 0.0),
        adapter_copy=_scalar(copy),
        adapter_value=_scalar(4.0 if copy == 4 else 2.0),
        base_linear=_scalar(base_linear),
        base_other=_scalar(base_other),
    )


def _step_bytes(training: TrainingSpec, profile: MemoryProfile, state: float, *, mastered: bool) -> float:
    """Scratch of the optimizer step: foreach AdamW's temporary list, DeepSpeed's fp32 copy of the gradients."""
    if mastered:
        return profile.step_copy_bytes
    impl = training.optimizer_impl or profile.optimizer_impl
    return state if impl == "foreach" and training.optimizer == "adamw" else 0.0


def _master_gradient(training: TrainingSpec, profile: MemoryProfile) -> float:
    """DeepSpeed's bf16 optimizer keeps 16-bit gradients and an fp32 accumulation of them."""
    own = profile.gradient_bytes_bf16_optimizer
    return own if own and training.precision == "bf16" else profile.gradient_bytes_master


def moment_bytes(optimizer: Optimizer, state: float) -> tuple[float, float]:
    """Optimizer bytes per parameter of block weights, and of embedding and head.

    AdamW keeps two moments in the dtype it updates; sgd (with momentum) and Lion (arXiv 2302.06675) one; Muon one for
    matrices and AdamW elsewhere; Adafactor (arXiv 1804.04235) a row and a column of each matrix, here as nothing.
    bitsandbytes 8-bit (arXiv 2110.02861) keeps two bytes and a scale per block, embeddings in 32 bit.
    """
    if optimizer in ("adamw-8bit", "adamw-paged-8bit"):
        return 2 * (1 + 4 / GROUP_8BIT), 8.0
    if optimizer == "adafactor":
        return 0.0, 0.0
    if optimizer in ("sgd", "lion"):
        return state, state
    if optimizer == "muon":
        return state, 2 * state
    return 2 * state, 2 * state


# bitsandbytes NF4: an absmax per 64 weights, in fp32 or (double quantisation, arXiv 2305.14314) in 8 bit;
# GPTQ: a 16-bit scale and a 4-bit zero per 128 weights; bitsandbytes int8: a scale per row
_QUANT_BYTES = {
    ("nf4", 4): 0.5 + 4 / 64,
    ("nf4-dq", 4): 0.5 + 1 / 64 + 4 / (64 * 256),
    ("gptq", 4): 0.5 + 2.5 / 128,
    ("gptq", 8): 1.0 + 3.0 / 128,
    ("nf4", 8): 1.0,
    ("nf4-dq", 8): 1.0,
}


def _base_bytes(
    training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile, compute: float
) -> tuple[float, float]:
    """Bytes per frozen parameter of linears in blocks, and of everything else."""
    mixed = training.precision in ("bf16", "fp16", "fp8") and training.numerics is None
    plain = profile.base_bytes_mixed if mixed else compute
    if lora is None or lora.base_bits == 16:
        return plain, plain
    linear = _QUANT_BYTES[lora.quant or "nf4", lora.base_bits]
    prepared = profile.kbit_preparation and lora.quant != "gptq"
    return linear, 4.0 if prepared else compute


def _adapter_bytes(training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile) -> float:
    if lora is not None and lora.adapter_bits is not None:
        return lora.adapter_bits / 8
    if training.precision in ("fp32", "tf32"):
        return 4.0
    if training.numerics == "bf16-all":
        return 2.0
    return (profile.adapter_bits_pure if training.precision == "bf16-pure" else profile.adapter_bits) / 8


def _adapter_copy(
    training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile, *, sharded: bool
) -> float:
    """Bytes per element of the copy that an adapter keeps of its input.

    An fp32 adapter keeps a 16-bit one under autocast, an fp32 one without; FSDP mixed precision casts the adapter
    instead. Dropout makes a copy in any case.
    """
    if lora is None:
        return 0.0
    dropped = 2.0 if (lora.dropout or profile.lora_dropout) > 0 else 0.0
    wide = _adapter_bytes(training, lora, profile) == 4
    cast_away = sharded and not profile.adapter_copies_sharded
    if not wide or cast_away or training.precision in ("fp32", "tf32"):
        return dropped
    autocast = profile.adapter_autocast and training.precision in ("bf16", "fp16", "fp8")
    return 2.0 if autocast else 4.0


def _adapter(training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile) -> AdapterColumns:
    targets = parse_targets(lora.targets) if lora else LoraTargets()
    dropout = lora is not None and (lora.dropout or profile.lora_dropout) > 0
    quantised = lora is not None and lora.base_bits < 16
    bnb = quantised and lora is not None and lora.quant != "gptq"
    return AdapterColumns(
        lora=_scalar(lora is not None),
        rank=_scalar(lora.rank if lora else 0),
        dropout=_scalar(dropout),
        q=_scalar(targets.q),
        k=_scalar(targets.k),
        v=_scalar(targets.v),
        o=_scalar(targets.o),
        gate=_scalar(targets.gate),
        up=_scalar(targets.up),
        down=_scalar(targets.down),
        head=_scalar(targets.head),
        quantised=_scalar(quantised),
        kbit_saved_hidden=_scalar(profile.kbit_saved_hidden * bnb),
        kbit_saved_ffn=_scalar(profile.kbit_saved_ffn * bnb),
        merged_qkv=_scalar(profile.merged_qkv),
        qkv_storage_kept=_scalar(profile.qkv_storage_kept),
        output_kept=_scalar(profile.adapter_output_kept),
    )


def _sharding(training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile) -> ShardingColumns:
    impl = training.optimizer_impl or profile.optimizer_impl
    bf16_optimizer = profile.gradient_bytes_bf16_optimizer > 0 and training.precision == "bf16"
    full = lora is None
    return ShardingColumns(
        in_backward=_scalar(impl == "in-backward"),
        paged=_scalar(impl == "paged" or training.optimizer in PAGED),
        keeps_gradients=_scalar(profile.keeps_gradients and lora is None),
        bucket_copies=_scalar(profile.bucket_copies),
        bucket_params=_scalar(profile.bucket_params),
        live_params=_scalar(profile.live_params),
        gathered_blocks=_scalar(profile.gathered_blocks),
        root_resharded=_scalar(profile.root_resharded),
        reduce_bytes=_scalar(profile.reduce_bytes),
        unsharded_gradients=_scalar(("never", "accumulating", "always").index(profile.unsharded_gradients)),
        wraps_frozen=_scalar(profile.wraps_frozen),
        ties_embeddings=_scalar(profile.ties_embeddings),
        pipeline_keeps_gathered=_scalar(profile.pipeline_keeps_gathered),
        naive_pipeline=_scalar(profile.naive_pipeline),
        extra_bytes=_scalar(profile.extra_bytes_per_param if full and not bf16_optimizer else 0.0),
        extra_sharded_bytes=_scalar(profile.extra_sharded_bytes_per_param if full else 0.0),
        embedding_as_layer=_scalar(profile.embedding_counts_as_layer),
    )


def _block(training: TrainingSpec, profile: MemoryProfile) -> BlockColumns:
    compiled = bool(training.compile)
    dropout = profile.dropout if training.dropout is None else training.dropout
    gated = 3.0 if profile.fused_gated or compiled or training.fused_kernels else 4.0
    return BlockColumns(
        fused_norm=_scalar(profile.fused_norm or compiled or bool(training.fused_kernels)),
        gated_copies=_scalar(gated),
        plain_copies=_scalar(min(2.0, profile.plain_ffn_copies) if compiled else profile.plain_ffn_copies),
        kv_repeated=_scalar(profile.kv_repeated),
        separate_linears=_scalar(profile.separate_linears),
        eager=_scalar(training.attention == "eager"),
        score_bytes=_scalar(profile.score_bytes),
        dropout=_scalar(dropout > 0),
        selective_op=_scalar(profile.selective == "op"),
        selective_attention=_scalar(profile.selective == "attention"),
        selective_fraction=_scalar(profile.selective_fraction),
        moe_copies=_scalar(1.0 if training.moe_token_drop else profile.moe_copies),
        grouped_experts=_scalar(profile.grouped_experts),
    )


def _loss(training: TrainingSpec, profile: MemoryProfile) -> LossColumns:
    """Bytes per logit: 16-bit logits, their fp32 copy, log-probabilities and gradients, as each loss keeps them."""
    loss = training.loss or profile.loss
    if training.loss is None and loss == "plain" and training.compile and profile.compiles_loss:
        loss = "compiled"
    compute = _COMPUTE[numerics_of(training, profile, sharded=False)]
    upcast = {2: 12.0 if profile.loss_upcast else 10.0, 4: 12.0}[compute]
    if compute == 2 and not profile.loss_upcast and training.precision == "bf16-pure":
        upcast = 6.0
    plain = profile.loss_plain_bytes or upcast
    kept = compute * float(profile.logits_kept)
    backward = {
        "plain": plain + kept,
        "compiled": profile.loss_compiled_bytes,
        "chunked": (0 if profile.chunks_head else 2 * compute) + plain / profile.loss_chunks,
        "fused": profile.loss_fused_bytes,
        "fused-linear": 0.0,
    }[loss]
    forward = max(plain - 2, 0.0) if loss == "plain" else backward
    return LossColumns(
        backward=_scalar(backward),
        forward=_scalar(forward),
        kept=_scalar(kept if loss in ("plain", "fused") else 0.0),
        parallel=_scalar(max(profile.loss_parallel_bytes - plain, 0.0) if loss == "plain" else 0.0),
        linear=_scalar(loss == "fused-linear"),
        vocab_parallel=_scalar(profile.vocab_parallel),
    )


def _scalar(value: float) -> Array:
    return np.asarray(value, dtype=np.float64)
