"""What a training says against its model: checks that need both, for every way a training is written down."""

from __future__ import annotations

from planner.errors import UserError, did_you_mean
from planner.types import ModelSpec, TrainingSpec

FP8_RECIPES = ("tensorwise", "rowwise", "current-scaling", "mx-or-subchannel")


def check_training(model: ModelSpec, training: TrainingSpec) -> None:
    """Raise ``UserError`` where the training cannot be of this model, or says what nobody can honor."""
    if training.frozen_layers > model.num_layers:
        raise UserError(
            f"frozen_layers is {training.frozen_layers}, but {model.name} has {model.num_layers} layers",
            f"frozen_layers: {model.num_layers}",
        )
    if training.dropout is not None and not 0 <= training.dropout < 1:
        raise UserError(f"dropout is {training.dropout:g}, not a share from 0 to below 1", "dropout: 0.1")
    recipe = training.fp8_recipe
    if recipe is not None and recipe not in FP8_RECIPES:
        near = did_you_mean(recipe, FP8_RECIPES)
        raise UserError(
            f"fp8_recipe {recipe!r:.60}: not supported{near}", f"one of: {', '.join(FP8_RECIPES)}"
        )
