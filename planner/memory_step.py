"""Peak over the instants of a training step on one pipeline stage.

The closed form is that of an autograd trace (torch 2.13, fake CUDA tensors): the largest of the end of
forward, the loss, the first and the last block of backward, and the optimizer step.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array, LayoutColumns, ModelColumns
from planner.formats import FormatColumns
from planner.memory_activations import BlockBytes, TokenBytes
from planner.memory_loss import LossBytes
from planner.memory_states import Stage, StageParams, StateBytes
from planner.numerics import TrainingColumns

FORWARD, LOSS, BACKWARD, OPTIMIZER = range(4)


@dataclass(frozen=True, slots=True)
class Instant:
    """Bytes of what varies within a step; states come on top."""

    at: int
    gradients: Array
    optimizer: Array
    activations: Array
    logits: Array
    gathered: Array


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest instant, part by part."""

    total: Array
    gradients: Array
    optimizer: Array
    activations: Array
    logits: Array
    gathered: Array
    working: Array  # activations while blocks run backward, whichever instant is the largest
    loss: Array  # logits at the loss
    collective: Array  # gathered and reduced weights that come and go
    churn: Array  # gradients and scratch of the optimizer step
    at: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Kept:
    """Activations of a stage: what all micro-batches in flight keep, and one block while it runs backward."""

    saved: Array
    offloaded: Array  # of it, what is kept in host memory instead
    live: Array
    head: Array
    whole_share: Array  # share of blocks that are not recomputed: their cached weight casts live on
    embedding: Array


def tokens_per_rank(training: TrainingColumns, layout: LayoutColumns) -> Array:
    """Tokens of one micro-batch on one rank."""
    tokens: Array = layout.micro_batch * training.seq_len / layout.cp
    return tokens


def kept_activations(
    model: ModelColumns,
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    stage: Stage,
    block: BlockBytes,
) -> Kept:
    """Add up what blocks keep under no, selective and full recompute (of a fraction of the blocks)."""
    tokens = tokens_per_rank(training, layout)
    narrow = tokens / np.where(layout.sequence_parallel == 1, layout.tp, 1.0)
    split = tokens / layout.tp
    keys = split * np.minimum(training.seq_len, model.attention_window)

    def of(part: TokenBytes) -> Array:
        return part.wide * narrow + part.split * split + part.score * keys

    dense, moe = of(block.dense), of(block.moe)
    block_input = formats.residual * model.hidden * narrow
    selective, full = layout.recompute == 1, layout.recompute == 2
    share = np.where(full, layout.recompute_fraction, 0.0)
    nd, nm = stage.dense_layers, stage.moe_layers
    whole = nd * dense + nm * moe
    by_block = training.block.selective_fraction
    mixed = training.block.selective_op + training.block.selective_attention == 0
    some = np.where(
        mixed,
        (1 - by_block) * whole + by_block * (nd + nm) * block_input,
        nd * of(block.dense_selective) + nm * of(block.moe_selective),
    )
    unrecomputed = np.where(selective, some, whole)
    saved = (1 - share) * unrecomputed + share * (nd + nm) * block_input
    trained = 1 - np.minimum(training.frozen_layers / model.num_layers, 1)
    one = np.maximum(np.where(nd > 0, dense, 0.0), np.where(nm > 0, moe, 0.0))
    backward = block.backward_wide * narrow + block.backward_split * split
    offloaded = layout.offload_activations
    all_saved = trained * saved * stage.in_flight
    return Kept(
        offloaded=offloaded * all_saved,
        saved=all_saved * (1 - offloaded) + offloaded * np.minimum(2 * block_input, whole),
        live=np.where(layout.recompute > 0, one, 0.0) + backward,
        head=(block.head * narrow + 16 * tokens) * stage.head,
        whole_share=np.where(full, 1 - layout.recompute_fraction, 1.0),
        embedding=2 * block_input,
    )


@dataclass(frozen=True, slots=True)
class Gathered:
    """Unsharded weights and communication buffers of ZeRO-3 / FSDP and of bucketed reductions."""

    forward: Array
    backward: Array
    end: Array
    always: Array


def gathered_bytes(
    training: TrainingColumns, formats: FormatColumns, layout: LayoutColumns, params: StageParams
) -> Gathered:
    """FSDP2: root group, current and prefetched block in the compute dtype, one block's gradients in two
    dtypes.

    DeepSpeed instead keeps up to ``stage3_max_live_parameters`` and fixed buckets. With pipeline stages
    everything stays gathered between micro-batches and gradients pile up unsharded (torchtitan
    parallelize_llama.py @ 9dec370).
    """
    sharding = training.sharding
    sharded = (layout.zero_stage == 3) * (layout.shard_group > 1)
    gather = np.where(training.adapter.lora == 1, formats.base_linear, formats.compute)
    all_params = params.dense + params.expert + params.frozen + params.frozen_expert + params.root_all
    root = gather_root(training, formats) * params.root_all * (1 - sharding.root_resharded)
    # a module larger than the limit is gathered whole all the same: the head, while the loss runs
    live = np.minimum(sharding.live_params + params.root_all / 2, all_params) * gather
    fsdp = (sharding.live_params == 0) * sharded
    block = gather * params.block
    reduce = (formats.compute + sharding.reduce_bytes) * params.block_trainable
    piped = fsdp * (layout.pp > 1) * sharding.pipeline_keeps_gathered
    stays = piped * (
        gather * all_params + sharding.reduce_bytes * (params.dense + params.expert + params.root)
    )
    whole = np.where(
        sharding.unsharded_gradients == 1, layout.grad_accum > 1, sharding.unsharded_gradients > 1
    )
    flat = np.where(sharding.wraps_frozen == 1, all_params, params.dense + params.expert + params.root)
    accumulates = fsdp * (1 - piped) * whole * formats.gradient * flat
    buckets = np.minimum(sharding.bucket_params, params.dense + params.expert + params.root)
    fixed = (
        buckets * (formats.compute + formats.gradient) * (layout.shard_group > 1) * (layout.zero_stage > 0)
    )
    loose = fsdp * (1 - piped)
    # offloaded weights that are not sharded are streamed in, block by block
    streamed = layout.offload_params * (layout.zero_stage < 3)
    window = streamed * gather * np.minimum(2 * params.block + params.root_all, all_params)
    return Gathered(
        forward=loose * (root + block),
        backward=loose * (root + sharding.gathered_blocks * block + reduce),
        end=loose
        * (formats.compute + sharding.reduce_bytes - formats.gradient / layout.shard_group)
        * params.root,
        always=stays + accumulates + fixed + window + sharded * (1 - fsdp) * live,
    )


def gather_root(training: TrainingColumns, formats: FormatColumns) -> Array:
    """Bytes per gathered parameter of embedding and head."""
    gather: Array = np.where(training.adapter.lora == 1, formats.base_other, formats.compute)
    return gather


def step_peak(
    model: ModelColumns,
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    stage: Stage,
    params: StageParams,
    states: StateBytes,
    kept: Kept,
    loss: LossBytes,
) -> Peak:
    """Find the largest instant of a step on this stage."""
    gathered = gathered_bytes(training, formats, layout, params)
    sharding = training.sharding
    replicas = (layout.dp * layout.cp > 1) * (layout.zero_stage < 2)
    buckets = replicas * (1 - sharding.keeps_gradients)
    persists = np.maximum(
        np.maximum(sharding.keeps_gradients, buckets * (sharding.bucket_copies == 1)), layout.grad_accum > 1
    )
    extra = states.gradients * buckets * np.maximum(sharding.bucket_copies - 1, 0)
    early = states.gradients * persists + extra
    late = states.gradients + extra
    unsharded = layout.zero_stage < 3
    head_gradient = (1 - persists) * unsharded * params.head * formats.gradient + (
        layout.zero_stage == 3
    ) * params.head * formats.compute
    casts = formats.cast_cache * unsharded
    block_casts = (
        casts * (params.dense + params.expert) + formats.frozen_cast * unsharded * params.cast_frozen
    )
    head_casts = (
        formats.head_cast * stage.head * unsharded * model.has_head * model.hidden * model.vocab / layout.tp
    )
    norm = np.where((training.block.fused_norm == 0) * (model.norm_is_rms == 1), 20.0, 6.0)
    tokens = tokens_per_rank(training, layout)
    live = np.maximum(
        kept.live, norm * model.hidden * tokens / np.where(layout.sequence_parallel == 1, layout.tp, 1)
    )
    block_gradient = unsharded * (1 - persists) * formats.gradient * params.block_trainable
    last = np.maximum(kept.embedding, kept.live - block_gradient)
    dequantised = formats.compute * params.largest_linear
    zero = np.asarray(0.0)
    instants = (
        Instant(
            FORWARD,
            early,
            zero,
            kept.saved + kept.head + block_casts + head_casts,
            loss.forward * stage.head,
            gathered.forward + gathered.always,
        ),
        Instant(
            LOSS,
            early,
            zero,
            kept.saved + kept.head + kept.whole_share * block_casts + head_casts,
            loss.backward * stage.head,
            gathered.forward + gathered.always,
        ),
        Instant(
            BACKWARD,
            early + head_gradient,
            zero,
            kept.saved + kept.whole_share * block_casts + live,
            loss.kept * stage.head,
            gathered.backward + gathered.always + dequantised,
        ),
        Instant(BACKWARD, late, zero, last, zero, gathered.end + gathered.always),
        Instant(OPTIMIZER, late, states.step_temporary, zero, zero, gathered.always),
    )
    return _largest(
        instants,
        kept.saved + live,
        loss.backward * stage.head,
        gathered.backward,
        late + states.step_temporary,
    )


def _largest(
    instants: tuple[Instant, ...], working: Array, loss: Array, collective: Array, churn: Array
) -> Peak:
    """Take the running maximum over the instants; the parts are those of the largest one."""
    best = instants[0]
    total = best.gradients + best.optimizer + best.activations + best.logits + best.gathered
    parts = (best.gradients, best.optimizer, best.activations, best.logits, best.gathered)
    at = np.asarray(best.at, dtype=np.int8)
    for instant in instants[1:]:
        here = (instant.gradients, instant.optimizer, instant.activations, instant.logits, instant.gathered)
        bytes_here = here[0] + here[1] + here[2] + here[3] + here[4]
        more = bytes_here > total
        parts = _choose(more, here, parts)
        total = np.where(more, bytes_here, total)
        at = np.where(more, np.int8(instant.at), at)
    return Peak(total, *parts, working=working, loss=loss, collective=collective, churn=churn, at=at)


_Parts = tuple[Array, Array, Array, Array, Array]


def _choose(more: NDArray[np.bool_], here: _Parts, best: _Parts) -> _Parts:
    pick = [np.where(more, new, old) for new, old in zip(here, best, strict=True)]
    return pick[0], pick[1], pick[2], pick[3], pick[4]


def fuller_peak(more: NDArray[np.bool_], a: Peak, b: Peak) -> Peak:
    """Row by row ``b`` where ``more``, else ``a``."""
    return Peak(*(np.where(more, getattr(b, f.name), getattr(a, f.name)) for f in fields(Peak)))
