"""Bytes of a run's states between two steps, by the formulas of ``planner.memory``."""

from __future__ import annotations

from planner.layouts import layout_columns
from planner.memory import states_of
from planner.model import model_columns
from planner.training.numerics import training_columns
from planner.types import Record, Run


class States(Record):
    """Bytes on the fullest GPU once a backward pass is done."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        """All three together."""
        return self.weights + self.gradients + self.optimizer


def states(run: Run) -> States:
    """Weights, gradients and optimizer states of a run."""
    model, training = model_columns([run.model]), training_columns([run.training])
    found = states_of(model, training, layout_columns([run.layout]))
    return States(
        weights=float(found.weights), gradients=float(found.gradients), optimizer=float(found.optimizer)
    )


def state_bytes(run: Run) -> float:
    """Weights, gradients and optimizer states together, bytes."""
    return states(run).total
