"""Checks that need more than one record: a training against its model, machines against the links."""

from __future__ import annotations

from planner.errors import UserError, did_you_mean
from planner.hardware.links import link
from planner.types import ModelSpec, Shape, TrainingSpec

FP8_RECIPES = ("tensorwise", "rowwise", "current-scaling", "mx-or-subchannel")

MOST_TOKENS = 1e18
MOST_SEQ_LEN = 2**30


def check_training(model: ModelSpec, training: TrainingSpec) -> None:
    """Raise ``UserError`` where the training cannot be of this model, or says what nobody can honor."""
    if training.frozen_layers > model.num_layers:
        raise UserError(
            f"frozen_layers is {training.frozen_layers}, but {model.name} has {model.num_layers} layers",
            f"frozen_layers: {model.num_layers}",
        )
    if training.dropout is not None and not 0 <= training.dropout < 1:
        raise UserError(f"dropout is {training.dropout:g}, not a share from 0 to below 1", "dropout: 0.1")
    for name, value, most in (
        ("num_tokens", training.num_tokens, MOST_TOKENS),
        ("global_batch_tokens", training.global_batch_tokens, MOST_TOKENS),
        ("seq_len", training.seq_len, MOST_SEQ_LEN),
    ):
        if value is not None and not 0 < value <= most:
            raise UserError(f"{name} is {value:g}, not a number of tokens", f"{name} from 1 to {most:g}")
    if model.positional == "learned" and model.max_position and training.seq_len > model.max_position:
        raise UserError(
            f"sequence length {training.seq_len} is over the {model.max_position} positions of {model.name}",
            f"--seq-len {model.max_position}",
        )
    recipe = training.fp8_recipe
    if recipe is not None and recipe not in FP8_RECIPES:
        near = did_you_mean(recipe, FP8_RECIPES)
        raise UserError(
            f"fp8_recipe {recipe!r:.60}: not supported{near}", f"one of: {', '.join(FP8_RECIPES)}"
        )


def check_shape(shape: Shape) -> None:
    """Raise ``UserError`` for machines with unknown links, or with zero or less of something."""
    link(shape.links.intra)
    link(shape.links.inter)
    for name, value in (
        ("links.inter_gbit_per_s", shape.links.inter_gbit_per_s),
        ("vcpus", shape.vcpus),
        ("host_memory_bytes", shape.host_memory_bytes),
    ):
        if value is not None and value <= 0:
            raise UserError(f"shape.{name} is {value:g}, not a positive number", f"leave {name} out")
