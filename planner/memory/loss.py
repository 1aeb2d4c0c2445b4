"""Logits and cross-entropy: bytes at the instant of the loss, often the largest single term of a step."""

from __future__ import annotations

from dataclasses import dataclass

from planner.columns import Array, LayoutColumns, ModelColumns
from planner.masks import pick, times
from planner.training.formats import FormatColumns
from planner.training.numerics import TrainingColumns

# A fused linear cross-entropy works on ceil(V / h) pieces of the tokens: logits, fp32 copy and gradient
# of a piece
# (LinkedIn Liger kernel, fused_linear_cross_entropy.py) come to this many bytes per token and hidden element.
FUSED_LINEAR_BYTES = 8.0


@dataclass(frozen=True, slots=True)
class LossBytes:
    """Bytes per GPU: whole logits and what the loss adds, at three instants."""

    forward: Array
    backward: Array
    kept: Array


def loss_bytes(
    model: ModelColumns,
    training: TrainingColumns,
    formats: FormatColumns,
    layout: LayoutColumns,
    tokens: Array,
) -> LossBytes:
    """Loss of one micro-batch of ``tokens`` tokens on this rank, where the stage has a head."""
    loss = training.loss
    vocab = pick(loss.vocab_parallel == 1, model.vocab / layout.tp, model.vocab)
    split = loss.vocab_parallel * (layout.tp > 1)
    extra = loss.layer_norm * (1 - model.norm_is_rms)
    logits = tokens * vocab * model.has_head
    fused = times(loss.linear * model.hidden * (FUSED_LINEAR_BYTES + formats.compute), tokens)
    head_adapter = times(training.adapter.head * formats.compute, logits)
    return LossBytes(
        forward=logits * (loss.forward + extra) + fused + head_adapter,
        backward=logits * (loss.backward + extra + times(loss.parallel, split)) + fused + head_adapter,
        kept=times(loss.kept, logits),
    )
