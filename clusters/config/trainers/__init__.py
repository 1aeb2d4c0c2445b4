"""The layout of a plan in the format of a library that trains: torchtitan, DeepSpeed, Accelerate.

What the layout has and the library's file cannot say is refused by name: a file that trains something else
than was planned would be worse than none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from clusters.config.trainers import accelerate, deepspeed, torchtitan
from planner.errors import UserError, did_you_mean
from planner.types import Record, Run

Trainer = Literal["torchtitan", "deepspeed", "accelerate"]

_WRITERS: dict[Trainer, tuple[str, Callable[[Run], str], Callable[[Run], list[str]]]] = {
    "torchtitan": ("torchtitan.args", torchtitan.text, torchtitan.refused),
    "deepspeed": ("deepspeed.json", deepspeed.text, deepspeed.refused),
    "accelerate": ("accelerate.yaml", accelerate.text, accelerate.refused),
}


class TrainConfig(Record):
    """A file for a library: its name beside the cluster's files, and its text."""

    name: str
    text: str


def train_config(run: Run, trainer: str) -> TrainConfig:
    """Write the layout of a run for a library.

    Raises ``UserError`` for an unknown library, and for what its file cannot express, all of it named.
    """
    known: tuple[Trainer, ...] = get_args(Trainer)
    found = next((each for each in known if each == trainer.strip().lower()), None)
    if found is None:
        near = did_you_mean(trainer, known)
        raise UserError(
            f"--train-config: unknown library {trainer!r:.60}{near}", f"--train-config {' or '.join(known)}"
        )
    name, text, refused = _WRITERS[found]
    why = refused(run)
    if why:
        raise UserError(f"{found} cannot express {'; '.join(why)}", _others(run, found))
    return TrainConfig(name=name, text=text(run))


def _others(run: Run, asked: Trainer) -> str:
    """Name the libraries that can express the run, or what runs it in any case."""
    able = [name for name, (_, _, refused) in _WRITERS.items() if name != asked and not refused(run)]
    return f"--train-config {able[0]}" if able else "plan.json with examples/train_gpt, or pin another layout"
