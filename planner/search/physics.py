"""What the formulas need of a model and a training, and small tools on the columns that they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from planner.columns import Array, LayoutColumns, MemoryColumns, ModelColumns, SpeedColumns
from planner.model import model_columns
from planner.training.execution import ExecutionColumns, execution_columns
from planner.training.numerics import TrainingColumns, training_columns
from planner.types import ModelSpec, TrainingSpec

Columns = TypeVar("Columns", LayoutColumns, MemoryColumns, SpeedColumns)


@dataclass(frozen=True, slots=True)
class Physics:
    """One model and training as columns of shape ()."""

    training_spec: TrainingSpec
    model: ModelColumns
    training: TrainingColumns
    execution: ExecutionColumns


def physics_of(model: ModelSpec, training: TrainingSpec) -> Physics:
    """Columns of one model and training."""
    return Physics(
        training, model_columns([model]), training_columns([training]), execution_columns([training])
    )


def communication_share(found: SpeedColumns) -> Array:
    """Share of the step that GPUs wait for each other."""
    share: Array = (found.dp_s + found.tp_s + found.pp_s + found.cp_s + found.ep_s) / found.step_s
    return share
