"""Peak over the instants of a training step on one pipeline stage.

The closed form is that of an autograd trace (torch 2.13, fake CUDA tensors): the largest of the end of
forward, the loss, the first and the last block of backward, and the optimizer step.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array, LayoutColumns, ModelColumns
from planner.masks import ZERO, times
from planner.memory.loss import LossBytes
from planner.memory.states import Stage, StageParams, StateBytes
from planner.memory.step import Kept, gathered_bytes, tokens_per_rank
from planner.training.formats import FormatColumns
from planner.training.numerics import TrainingColumns

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
class GradientBytes:
    """Gradients that lie in memory: while forward runs, when backward begins, and when it ends."""

    early: Array
    at_loss: Array
    first: Array
    late: Array
    second: Array  # the embedding's own gradient where the table is tied, before it is added
    block: Array  # those of one block, where they are not there from the start


def gradient_bytes(
    model: ModelColumns,
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    params: StageParams,
    gradients: Array,
) -> GradientBytes:
    """Gradients over the step. They persist in a buffer of the framework, in DDP's buckets, or while
    accumulating.

    DDP without bucket views keeps buckets beside the gradients; with views the buckets are the gradients
    (torch DistributedDataParallel, gradient_as_bucket_view).
    """
    sharding, sharded = training.sharding, layout.zero_stage == 3
    buckets = (layout.dp * layout.cp > 1) * (layout.zero_stage < 2) * (1 - sharding.keeps_gradients)
    views = buckets * (sharding.bucket_copies == 1)
    persists = np.maximum(np.maximum(sharding.keeps_gradients, views), layout.grad_accum > 1)
    beside = times(np.maximum(sharding.bucket_copies - 1, 0), gradients * buckets)
    appears = (1 - persists) * ~sharded * formats.gradient
    early = gradients * persists + beside
    head = appears * params.head + sharded * params.head * formats.compute
    late = gradients + beside
    tied = times(model.tied, (layout.pp == 1) * ~sharded * formats.gradient * params.head)
    at_loss = early + times(training.loss.in_pieces, head)
    return GradientBytes(early, at_loss, early + head, late, tied, appears * params.block_trainable)


def _weight_casts(
    model: ModelColumns, formats: FormatColumns, layout: LayoutColumns, stage: Stage, params: StageParams
) -> tuple[Array, Array]:
    """Autocast's 16-bit copies of weights: of the blocks, and of the output projection."""
    if not (np.any(formats.cast_cache) or np.any(formats.frozen_cast) or np.any(formats.head_cast)):
        return ZERO, ZERO
    unsharded = layout.zero_stage < 3
    blocks = times(formats.cast_cache, params.dense + params.expert)
    blocks = blocks + times(formats.frozen_cast, params.cast_frozen)
    head = formats.head_cast * model.has_head * model.hidden * model.vocab * stage.head / layout.tp
    return unsharded * blocks, unsharded * head


def _norm_backward(model: ModelColumns, training: TrainingColumns, layout: LayoutColumns) -> Array:
    """Temporaries of the final norm's backward pass: five fp32 tensors of a python RMSNorm, less when
    fused.
    """
    unfused = (training.block.fused_norm == 0) * (model.norm_is_rms == 1)
    narrow = tokens_per_rank(training, layout) / np.where(layout.sequence_parallel == 1, layout.tp, 1)
    temporaries: Array = np.where(unfused, 20.0, 6.0) * model.hidden * narrow
    return temporaries


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
    gradients = gradient_bytes(model, training, formats, layout, params, states.gradients)
    block_casts, head_casts = _weight_casts(model, formats, layout, stage, params)
    # each micro-batch in flight keeps casts of its own: autocast's cache ends with its forward pass
    saved_casts = kept.whole_share * block_casts * stage.in_flight
    cached_casts = saved_casts + (1 - kept.whole_share) * block_casts
    live = np.maximum(kept.live, _norm_backward(model, training, layout))
    last = np.maximum(kept.embedding + gradients.second, kept.live - gradients.block)
    to_loss = kept.saved + kept.head + head_casts
    during = gathered.always + gathered.held
    backward = gathered.backward + during + formats.compute * params.largest_linear
    logits = loss.backward * stage.head
    zero, always, forward = np.asarray(0.0), gathered.always, gathered.forward + during
    instants = (
        Instant(
            FORWARD,
            gradients.early,
            zero,
            to_loss + cached_casts + kept.last,
            loss.forward * stage.head,
            forward,
        ),
        Instant(LOSS, gradients.at_loss, zero, to_loss + saved_casts, logits, forward),
        Instant(
            BACKWARD,
            gradients.first,
            zero,
            kept.saved + kept.late + saved_casts + live,
            loss.kept * stage.head,
            backward,
        ),
        Instant(BACKWARD, gradients.late, zero, last, zero, gathered.end + always),
        Instant(OPTIMIZER, gradients.late, states.step_temporary, zero, zero, always),
    )
    churn = gradients.late + states.step_temporary
    comes_and_goes = gathered.backward + gathered.live
    return _largest(instants, kept.saved + kept.late + live, logits, comes_and_goes, churn)


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
