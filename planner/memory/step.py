"""What a stage keeps and gathers in a step: saved activations, a live block, FSDP's buffers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LayoutColumns, ModelColumns
from planner.masks import ZERO, pick, times
from planner.memory.activations import BlockBytes, TokenBytes, last_input_bytes
from planner.memory.states import Stage, StageParams
from planner.training.formats import FormatColumns
from planner.training.numerics import TrainingColumns


@dataclass(frozen=True, slots=True)
class Kept:
    """Activations of a stage: what all micro-batches in flight keep, and one block while it runs backward."""

    saved: Array
    offloaded: Array  # of it, what is kept in host memory instead
    late: Array  # what gathers until backward ends, beside what was saved
    last: Array  # what the last micro-batch's graph still holds while the next one runs forward
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
        return part.wide * narrow + part.split * split + times(part.score, keys)

    experts = np.any(model.moe_layers)
    dense, moe = of(block.dense), of(block.moe) if experts else ZERO
    block_input = formats.residual * model.hidden * narrow
    selective, full = layout.recompute == 1, layout.recompute == 2
    share = np.where(full, layout.recompute_fraction, 0.0)
    nd, nm = stage.dense_layers, stage.moe_layers
    layers = nd + nm
    whole = nd * dense + times(nm, moe)
    by_block = training.block.selective_fraction
    mixed = training.block.selective_op + training.block.selective_attention == 0
    inputs = layers * block_input
    dense_listed, moe_listed = of(block.dense_selective), of(block.moe_selective) if experts else ZERO
    listed = nd * dense_listed + times(nm, moe_listed)
    some = pick(mixed, (1 - by_block) * whole + by_block * inputs, listed)
    unrecomputed = np.where(selective, some, whole)
    saved = unrecomputed + share * (inputs - unrecomputed)
    trained = 1 - np.minimum(training.frozen_layers / model.num_layers, 1)
    one = np.maximum(np.where(nd > 0, dense, 0.0), np.where(nm > 0, moe, 0.0)) if experts else dense
    # selective recompute brings back what the list left out
    again = pick(mixed, ZERO, np.minimum(dense_listed, moe_listed) if experts else dense_listed)
    backward = block.backward_wide * narrow + block.backward_split * split
    offloaded = layout.offload_activations
    all_saved = times(trained, saved) * stage.in_flight
    return Kept(
        offloaded=offloaded * all_saved,
        last=times(1 - share, layers * of(last_input_bytes(model, training.adapter, formats))),
        late=times(trained * formats.adapter_backward * model.hidden, stage.in_flight * layers * narrow),
        saved=all_saved * (1 - offloaded) + offloaded * np.minimum(2 * block_input, whole),
        live=np.where(layout.recompute > 0, one - selective * again, 0.0) + backward,
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
    held: Array  # whole gradients of earlier micro-batches, until the last backward pass shards them
    always: Array
    live: Array  # of it, what DeepSpeed gathers and frees again and again


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
    gather = pick(training.adapter.lora == 1, formats.base_linear, formats.compute)
    all_params = params.dense + params.expert + params.frozen + params.frozen_expert + params.root_all
    trained = params.dense + params.expert + params.root
    stays_gathered = pick(sharding.root_gathered == 2, params.root_all, params.head_all)
    root = times(gather_root(training, formats) * (sharding.root_gathered > 0), stays_gathered)
    fsdp = sharded * (sharding.live_params == 0)
    block = gather * params.block
    reduce = (formats.compute + sharding.reduce_bytes) * params.block_trainable
    piped = fsdp * (layout.pp > 1) * sharding.pipeline_keeps_gathered
    stays = piped * (gather * all_params + sharding.reduce_bytes * trained)
    loose = fsdp * (1 - piped)
    # offloaded weights that are not sharded (one GPU, at any stage) are streamed in, block by block
    streamed = layout.offload_params * (1 - sharded)
    window = streamed * gather * np.minimum(2 * params.block + params.root_all, all_params)
    buckets, live = _fixed_buffers(training, formats, layout, params, all_params)
    return Gathered(
        forward=loose * (root + block),
        backward=loose * (root + sharding.gathered_blocks * block + reduce),
        end=loose
        * (formats.compute + sharding.reduce_bytes - formats.gradient / layout.shard_group)
        * params.root,
        held=_whole_gradients(training, formats, layout, loose, all_params, trained),
        always=stays + window + buckets + live,
        live=live,
    )


def _whole_gradients(
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    loose: Array,
    all_params: Array,
    trained: Array,
) -> Array:
    """Gradients that FSDP keeps whole between micro-batches (no_sync); flat ones cover frozen weights too."""
    sharding = training.sharding
    if not np.any(sharding.unsharded_gradients):
        return ZERO
    whole = np.where(
        sharding.unsharded_gradients == 1, layout.grad_accum > 1, sharding.unsharded_gradients > 1
    )
    flat = pick(sharding.wraps_frozen == 1, all_params, trained)
    held: Array = loose * whole * formats.gradient * flat
    return held


def _fixed_buffers(
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    params: StageParams,
    all_params: Array,
) -> tuple[Array, Array]:
    """DeepSpeed: buckets of fixed size, and under ZeRO-3 the weights that may be live at once.

    Two buckets are allocated whole, however little is trained and by a single rank too
    (deepspeed/runtime/zero/stage_1_and_2.py backward). A module larger than the limit is gathered whole all
    the same: the head, while the loss runs. A block lies twice, as it comes over the wire and cut into its
    parameters (partition_parameters.py AllGatherCoalescedHandle).
    """
    sharding = training.sharding
    if not np.any(sharding.bucket_params) and not np.any(sharding.live_params):
        return ZERO, ZERO
    many = layout.shard_group > 1
    gather = pick(training.adapter.lora == 1, formats.base_linear, formats.compute)
    live = np.minimum(sharding.live_params + params.root_all / 2, all_params) + params.block
    at_stage_3 = (layout.zero_stage == 3) * (sharding.live_params > 0)
    buckets: Array = (layout.zero_stage > 0) * 2 * sharding.bucket_params * formats.compute
    return buckets, many * at_stage_3 * live * gather


def gather_root(training: TrainingColumns, formats: FormatColumns) -> Array:
    """Bytes per gathered parameter of embedding and head."""
    return pick(training.adapter.lora == 1, formats.base_other, formats.compute)
