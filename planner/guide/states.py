"""Bytes of a run's states between two steps, by the formulas of ``planner.memory``."""

from __future__ import annotations

from planner.layouts import layout_columns
from planner.memory import states_of
from planner.model import model_columns
from planner.training.numerics import training_columns
from planner.types import Run


def state_bytes(run: Run) -> float:
    """Weights, gradients and optimizer states on the fullest GPU once a backward pass is done, bytes."""
    found = states_of(
        model_columns([run.model]), training_columns([run.training]), layout_columns([run.layout])
    )
    return float(found.weights + found.gradients + found.optimizer)
