"""What a training is taken to be where the user does not say: tokens and global batch, each with the sentence
that the screen prints about it.
"""

from __future__ import annotations

import math
from functools import lru_cache

from planner.errors import UserError
from planner.layouts import BatchRule
from planner.model import model_columns
from planner.types import ModelSpec, TrainingSpec

TOKENS_PER_PARAMETER = 20  # Chinchilla, arXiv 2203.15556, table 3
# Batch of best loss for a compute budget C: arXiv 2401.02954 (DeepSeek LLM), section 3.1, in tokens.
BATCH_FACTOR, BATCH_EXPONENT = 0.2920, 0.3271
MOST_BATCH_TOKENS = 2**24
LEAST_BATCH_SEQUENCES = 8
FINE_TUNING_SEQUENCES = 64
FINE_TUNING_LEAST_STEPS = 100
CONTINUED_FROM_TOKENS = 2e9  # fine-tuning on more is pretraining that goes on


@lru_cache(maxsize=64)
def active_params(model: ModelSpec) -> float:
    """Parameters that one token visits: all of a dense model, the routed share of the experts of a MoE."""
    columns = model_columns([model])
    if model.moe is None:
        return float(columns.params_total)
    idle = 1.0 - model.moe.experts_per_token / model.moe.num_experts
    return float(columns.params_total - idle * columns.params_experts_layer * columns.moe_layers)


def complete_training(model: ModelSpec, training: TrainingSpec) -> tuple[TrainingSpec, tuple[str, ...]]:
    """Fill in tokens and global batch, with a sentence for each default that was taken.

    Raises ``UserError`` where fine-tuning has no ``num_tokens``, or the batch is smaller than one sequence.
    """
    said: list[str] = []
    tokens = training.num_tokens
    if tokens is None:
        if training.method != "pretrain":
            raise UserError(
                f"fine-tuning ({training.method}) needs the number of tokens to train on",
                "--tokens 10M   (examples x tokens of an example x epochs)",
            )
        tokens = float(TOKENS_PER_PARAMETER * model_columns([model]).params_total)
        said.append(f"tokens: {TOKENS_PER_PARAMETER} per parameter")
    batch = training.global_batch_tokens
    if batch is None:
        batch = default_batch_tokens(model, training.method == "pretrain", training.seq_len, tokens)
        said.append(
            f"global batch: {batch // training.seq_len} sequences, by the rule for this size and length"
        )
    if batch < training.seq_len:
        raise UserError(
            f"global batch of {batch} tokens is less than one sequence of {training.seq_len}",
            f"--global-batch {training.seq_len}",
        )
    return training.model_copy(update={"num_tokens": tokens, "global_batch_tokens": batch}), tuple(said)


def default_batch_tokens(model: ModelSpec, pretrain: bool, seq_len: int, num_tokens: float) -> int:
    """Tokens of a global batch where the user names none: a whole number of sequences.

    Pretraining: 0.2920 C^0.3271 tokens with C = 6 x active parameters x tokens (arXiv 2401.02954), to the
    nearest power of two of sequences, 8 sequences to 16.8 M tokens. Fine-tuning: 64 sequences, less where the
    run would be shorter than 100 steps; on 2 B tokens and more as pretraining.
    """
    if not pretrain and not CONTINUED_FROM_TOKENS <= num_tokens < math.inf:
        steps_allow = num_tokens / (seq_len * FINE_TUNING_LEAST_STEPS)
        sequences = 2 ** math.floor(math.log2(min(FINE_TUNING_SEQUENCES, max(1.0, steps_allow))))
        return int(sequences) * seq_len
    compute = 6.0 * active_params(model) * num_tokens
    ideal = min(MOST_BATCH_TOKENS, BATCH_FACTOR * compute**BATCH_EXPONENT) / seq_len
    sequences = max(LEAST_BATCH_SEQUENCES, 2 ** round(math.log2(max(1.0, ideal))))
    return int(sequences) * seq_len


def batch_rule(asked: TrainingSpec, completed: TrainingSpec) -> BatchRule:
    """Sequences of a global batch; exact where the user asked for it, divisible by rounding where not."""
    batch = completed.global_batch_tokens or completed.seq_len
    sequences = max(1, round(batch / completed.seq_len))
    return BatchRule(sequences=sequences, exact=asked.global_batch_tokens is not None)
