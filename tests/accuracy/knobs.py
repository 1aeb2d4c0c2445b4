"""Constants that were fitted to measured runs, as knobs that a refit turns.

A knob's position 0 is neutral: a round value that another machine, framework or textbook gives; one unit
of position is a natural step (a factor of e, or a stated amount). Whatever public code or a micro-benchmark
says is no knob.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.hardware import efficiency, gpus
from planner.memory import device
from planner.speed import layers, update
from planner.training.execution import ExecutionColumns
from planner.training.numerics import TrainingColumns


@dataclass(frozen=True)
class Knob:
    """``turn(position)`` puts the value for a position where the formulas read it, ``restore()`` the shipped
    one.
    """

    name: str
    turn: Callable[[float], None]
    restore: Callable[[], None]


def constant(module: object, name: str, neutral: float) -> Knob:
    """A positive number of a module; a unit is a factor of e."""
    shipped = getattr(module, name)
    return Knob(
        name, lambda x: setattr(module, name, neutral * np.exp(x)), lambda: setattr(module, name, shipped)
    )


def _restores(column: np.ndarray, rows: np.ndarray) -> Callable[[], None]:
    shipped = column[rows].copy()

    def restore() -> None:
        column[rows] = shipped

    return restore


def share_of(name: str, column: np.ndarray, rows: np.ndarray, neutral: float) -> Knob:
    """A share between 0 and 1 of some rows of a column; a unit is 0.1."""

    def turn(x: float) -> None:
        column[rows] = np.clip(neutral + 0.1 * x, 0.0, 1.0)

    return Knob(name, turn, _restores(column, rows))


def amount(name: str, column: np.ndarray, rows: np.ndarray, neutral: float, unit: float) -> Knob:
    """A number of some rows of a column, 0 or more; a unit is ``unit``."""

    def turn(x: float) -> None:
        column[rows] = np.maximum(neutral + unit * x, 0.0)

    return Knob(name, turn, _restores(column, rows))


def of_memory(training: TrainingColumns, profile: np.ndarray) -> list[Knob]:
    """The allocator's shares, and what a profile keeps beyond what its code says."""
    found = [
        constant(device, "NATIVE_WORKING", 0.10),
        constant(device, "NATIVE_LOSS", 0.30),
        constant(device, "NATIVE_COLLECTIVE", 0.50),
        constant(device, "NATIVE_BASE", 0.05),
        constant(device, "NATIVE_MOST_BASE_BYTES", 2.0 * device.GIB),
        constant(device, "EXPANDABLE_BASE", 0.02),
        constant(device, "EXPANDABLE_WORKING", 0.05),
        constant(device, "EXPANDABLE_LOSS", 0.05),
        constant(device, "EXPANDABLE_COLLECTIVE", 1.0),
        constant(device, "EXPANDABLE_CHURN", 0.5),
    ]
    oldest = profile == "megatron-2021"
    return [*found, amount("extra 2021", training.sharding.extra_bytes, oldest, 0.0, 2.0)]


def of_time(execution: ExecutionColumns, profile: np.ndarray) -> list[Knob]:
    """Sustained shares, what the code fits, and overheads of a few profiles."""
    found = [
        constant(update, "INTERFERENCE", 0.10),
        constant(layers, "GROUPED_HALF_WIDTH", 400.0),
        constant(layers, "MISALIGNED", 1.2),
        constant(layers, "ODD_VOCAB", 1.4),
        *sustained(),
        *first_attention(),
    ]
    habits, every = execution.habits, execution
    hugging = _like(profile, "hf") | _like(profile, "fms-acceleration") | np.isin(
        profile, ("fsdp-qlora", "unsloth", "axolotl", "ms-swift", "colossalai", "deepspeed")
    )  # fmt: skip
    apex = np.isin(profile, ("apex-o2", "transformer-xl"))
    megatron = _like(profile, "megatron") | np.isin(profile, ("nemo", "simumax", "flagscale", "pai-megatron"))
    return [
        *found,
        amount("launch hf", every.launch_s, hugging, 10e-6, 4e-6),
        amount("micro-batch hf", habits.micro_batch_overhead_s, hugging, 0.002, 0.004),
        amount("step hf", habits.step_overhead_s, hugging, 0.01, 0.01),
        share_of("idle hf", habits.idle_share, hugging, 0.02),
        amount("step megatron", habits.step_overhead_s, megatron, 0.01, 0.01),
        share_of("idle megatron-deepspeed", habits.idle_share, profile == "megatron-deepspeed", 0.02),
        share_of("idle apex", habits.idle_share, profile == "apex-o2", 0.02),
        amount("score transformer-xl", every.score_bytes, profile == "transformer-xl", 44.0, 100.0),
        share_of("overlap expert", habits.overlap_expert, profile == "megatron-bridge", 0.0),
        amount("imbalance", every.expert_imbalance, every.expert_imbalance > 1, 1.2, 0.1),
        amount("launch apex", every.launch_s, apex, 6e-6, 2e-6),
    ]


def sustained() -> list[Knob]:
    """Shares of micro-benchmark rates that last, by architecture and class: rows marked fitted."""
    table = efficiency.sustained_share()
    cards = gpus.gpus()
    found = []
    for row in efficiency._rows("efficiency_sustained.csv"):
        if row["basis"] != "fitted":
            continue
        kind = (row["architecture"], row["gpu_class"])
        own = np.array([(efficiency.family(g.architecture), g.gpu_class) == kind for g in cards])
        measured = table != np.where(own[:, None], float(row["share"]), np.nan)
        cells = own[:, None] & ~measured
        found.append(share_of(" ".join(kind), table, cells, 0.90))
    return found


def first_attention() -> list[Knob]:
    """The first flash attention on Hopper: its own FlashAttention-2 rate at Ampere's ratio of the two."""
    curves = efficiency.attention_curves()
    hopper = np.array([efficiency.family(g.architecture) == "Hopper" for g in gpus.gpus()])
    first = efficiency.KERNELS.index("first")

    def turn(x: float) -> None:
        curves.forward[hopper, first] = 0.25 * np.exp(x)
        curves.backward[hopper, first] = 0.20 * np.exp(x)

    back = [_restores(of[:, first], hopper) for of in (curves.forward, curves.backward)]

    def restore() -> None:
        for each in back:
            each()

    return [Knob("first attention, Hopper", turn, restore)]


def _like(profile: np.ndarray, prefix: str) -> np.ndarray:
    return np.char.startswith(profile, prefix)
