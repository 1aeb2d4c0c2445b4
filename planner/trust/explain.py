"""What each term of an estimate is made of: the counts that go in, and what one of them comes to.

A term is a product: counts of the run (parameters on the GPU, tokens, layers, FLOPs) times what the formulas
give for one of them. So the products are the parts of the estimate, and add up to its middle. Formulas,
sources and how sure they are stand in ``data/terms.csv``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.hardware.efficiency import bandwidth_bytes_per_s
from planner.hardware.gpus import flops_per_s, gpu, gpu_index
from planner.layouts import layout_columns
from planner.memory import states as memory_states
from planner.model import model_columns
from planner.results import Estimate, MemoryEstimate, SpeedEstimate
from planner.training.numerics import training_columns
from planner.types import Run

Kind = Literal["memory", "time"]


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a term. ``unit`` is plain text; ``divides``: the term is divided by it."""

    what: str
    value: float
    unit: str = ""
    divides: bool = False


@dataclass(frozen=True, slots=True)
class Explained:
    """A term, its value in bytes or seconds, and the factors that it is the product of."""

    kind: Kind
    name: str
    value: float
    factors: tuple[Factor, ...]

    @property
    def product(self) -> float:
        """What the factors multiply to."""
        result = 1.0
        for factor in self.factors:
            result = result / factor.value if factor.divides else result * factor.value
        return result


@dataclass(frozen=True, slots=True)
class _Counts:
    """What is counted of a run, on the fullest GPU."""

    trained: float
    parameters: float
    layers: float
    in_flight: float
    tokens: float
    logits: float
    axes: float


def explain(answer: Estimate) -> tuple[Explained, ...]:
    """All terms of memory and of time, in the order of the parts."""
    counts = _counts(answer.run)
    found: list[Explained] = []
    if answer.memory is not None:
        found += _memory(answer.memory, counts)
    if answer.speed is not None:
        found += _time(answer.speed, answer.run, counts)
    return tuple(found)


def _counts(run: Run) -> _Counts:
    model, training = model_columns([run.model]), training_columns([run.training])
    layout = layout_columns([run.layout])
    stage = memory_states.first_stage(model, training, layout)
    held = memory_states.stage_params(model, training, layout, stage)
    trained = float(held.dense + held.expert + held.root)
    frozen = float(held.frozen + held.frozen_expert + held.frozen_other)
    tokens = run.layout.micro_batch * run.training.seq_len / run.layout.cp
    degrees = (run.layout.dp * run.layout.cp, run.layout.tp, run.layout.pp, run.layout.cp, run.layout.ep)
    return _Counts(
        trained=trained,
        parameters=trained + frozen,
        layers=float(stage.dense_layers + stage.moe_layers),
        in_flight=float(stage.in_flight),
        tokens=tokens,
        logits=tokens * run.model.vocab_size / run.layout.tp,
        axes=float(sum(degree > 1 for degree in degrees)),
    )


def _term(kind: Kind, name: str, value: float, *counts: Factor, each: str) -> Explained:
    """Term of counts and of what one of them comes to; of nothing where it is nothing."""
    product = float(np.prod([f.value for f in counts])) if counts else 1.0
    if value == 0 or product == 0:
        return Explained(kind, name, value, ())
    unit = "bytes" if kind == "memory" else "s"
    return Explained(kind, name, value, (*counts, Factor(each, value / product, unit)))


def _memory(found: MemoryEstimate, counts: _Counts) -> Iterator[Explained]:
    """Terms of memory."""
    parts = found.parts_bytes
    trained = Factor("trained parameters on this GPU before sharding", counts.trained)
    held = Factor("parameters on this GPU before sharding", counts.parameters)
    layers, tokens = Factor("layers on this GPU", counts.layers), Factor("tokens", counts.tokens)
    logits = Factor("logits on this GPU", counts.logits)
    yield _term("memory", "parameters", parts.parameters, held, each="of each")
    yield _term("memory", "gradients", parts.gradients, trained, each="of each")
    yield _term("memory", "optimizer", parts.optimizer, trained, each="of each")
    kept = Factor("micro-batches in flight", counts.in_flight)
    yield _term(
        "memory", "activations", parts.activations, layers, kept, tokens, each="of a token in a layer"
    )
    yield _term("memory", "logits", parts.logits, logits, each="of each")
    yield _term("memory", "gathered", parts.gathered, held, each="of each")
    axes = Factor("axes with more than one GPU", counts.axes)
    yield _term("memory", "communication", parts.communication, axes, each="of each")
    yield _term("memory", "context", parts.context, each="of the framework's profile")
    allocated = Factor("allocated bytes", found.allocated_bytes.mid)
    share = parts.allocator_slack / found.allocated_bytes.mid
    yield Explained(
        "memory",
        "allocator_slack",
        parts.allocator_slack,
        (allocated, Factor("share", share)) if share else (),
    )


def _time(found: SpeedEstimate, run: Run, counts: _Counts) -> Iterator[Explained]:
    """Terms of time."""
    parts, layout = found.parts_s, run.layout
    card = gpu(run.shape.gpu)
    peak = flops_per_s(card, run.training.precision) or 0.0
    flops = found.hfu * peak * found.step_s.mid
    yield _rate("matmul", parts.matmul, Factor("FLOPs of a step on this GPU", flops), "FLOPs/s")
    micro = Factor("micro-batches", float(layout.grad_accum))
    layers, tokens = Factor("layers", counts.layers), Factor("tokens", counts.tokens)
    yield _term("time", "attention", parts.attention, micro, layers, tokens, each="of a token in a layer")
    reached = float(bandwidth_bytes_per_s()[gpu_index(card.id)])
    moved = "bytes moved"
    yield _rate("memory_bound", parts.memory_bound, Factor(moved, parts.memory_bound * reached), "bytes/s")
    waits = Factor("of the step", parts.exposed_communication / found.step_s.mid)
    yield _term("time", "exposed_communication", parts.exposed_communication, waits, each="step")
    idle = Factor("pp − 1 slots, divided by interleave", (layout.pp - 1) / layout.interleave)
    yield _term("time", "bubble", parts.bubble, idle, each="of a micro-batch on a stage")
    yield _rate("optimizer", parts.optimizer, Factor(moved, parts.optimizer * reached), "bytes/s")
    yield _term("time", "overhead", parts.overhead, micro, each="of each, with its share of the step's")


def _rate(name: str, value: float, amount: Factor, unit: str) -> Explained:
    """Term of an amount at a rate."""
    if value == 0 or amount.value == 0:
        return Explained("time", name, value, ())
    rate = Factor("reached", amount.value / value, unit, divides=True)
    return Explained("time", name, value, (amount, rate))
