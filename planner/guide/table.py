"""How much GPU memory a model of a size needs to be trained, and which class of GPU has it.

Every figure is an estimate of the planner for one GPU at the smallest batch that trains: nothing is typed in
but the rule of thumb that it is compared with. So a change of a formula of ``planner.memory`` changes this
table too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from planner import api
from planner.guide.states import state_bytes
from planner.hardware import gpus
from planner.model.count import count_params
from planner.model.shapes import shape_for
from planner.results import Estimate, MemoryEstimate
from planner.runs import RunRequest, pins_of
from planner.types import (
    Band,
    Layout,
    ModelSpec,
    Optimizer,
    PeakAt,
    Precision,
    Recompute,
    Record,
    TrainingSpec,
)
from planner.units import GIB, gib

PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "bf16-pure")
RANGES = (("< 10 M", 10e6), ("10–100 M", 100e6), ("100 M–1 B", 1e9))
OPEN_RANGE, OPEN_EXAMPLE = "> 1 B", 7e9
# The rule of thumb as it goes around: GB of the card by range, in FP32 and in mixed precision.
RULE_GB: dict[Precision, tuple[int, ...]] = {"fp32": (4, 8, 24, 40), "bf16": (2, 4, 12, 20)}
# recompute and micro-batches of the runs behind a cell; the last two are for what one more sequence adds
_WAYS: tuple[tuple[Recompute, int], ...] = (("none", 1), ("full", 1), ("none", 8), ("none", 16))
SHARDED_OVER = tuple(2**k for k in range(1, 11))
SHARDED_ON = "H100-SXM5-80GB"
GPUS_PER_NODE = 8

RuleSays = Literal["too low", "tight", "about right", "too high"]


class Assumed(Record):
    """What every cell of a table is computed with."""

    seq_len: int
    micro_batch: int
    optimizer: Optimizer
    headroom: float


class GpuClass(Record):
    """The least that holds a run: cards of this memory, some by name, and how many with states sharded."""

    memory_gb: int
    examples: tuple[str, ...]
    num_gpus: int


class Rule(Record):
    """The rule of thumb for a cell, and how it fares against the estimate."""

    gb: int
    open_ended: bool
    says: RuleSays
    why: str


class Cell(Record):
    """One size in one precision. Bytes on one GPU, at the peak; ``least``: all blocks recomputed.

    ``states_bytes``: weights, gradients and optimizer states once a backward pass is done. ``working_bytes``:
    activations and logits at the peak, which is at ``peak_at``. ``sequence_bytes``: what one more sequence in
    the micro-batch adds where activations make the peak. ``gpu_class`` is ``None`` where no number of
    GPUs tried holds it.
    """

    precision: Precision
    device_bytes: Band
    least_bytes: Band
    states_bytes: float
    working_bytes: float
    sequence_bytes: float
    peak_at: PeakAt
    gpu_class: GpuClass | None
    rule: Rule | None


class Row(Record):
    """One size of model; ``range``: the range of the rule that it stands for or lies in."""

    range: str
    model: ModelSpec
    num_params: float
    cells: tuple[Cell, ...]


class MemoryTable(Record):
    """What ``plan table`` answers."""

    assumed: Assumed
    rows: tuple[Row, ...]


def memory_table(sizes: Sequence[float], assumed: Assumed) -> MemoryTable:
    """Rows for the sizes, or for the ranges of the rule where none is given.

    Raises ``UserError`` for a size that ``--params`` cannot stand for.
    """
    asked = sizes or (*(top for _, top in RANGES), OPEN_EXAMPLE)
    models = [shape_for(size) for size in asked]
    found = iter(_estimates(models, assumed))
    rows = []
    for model in models:
        ways = [tuple(next(found) for _ in _WAYS) for _ in PRECISIONS]
        cells = tuple(_cell(way, ways[0], assumed) for way in ways)
        total = count_params(model).total
        rows.append(Row(range=_range_name(total), model=model, num_params=total, cells=cells))
    return MemoryTable(assumed=assumed, rows=tuple(rows))


def _range_index(num_params: float) -> int:
    """Range of the rule that a model lies in, its upper end included, give or take the shape rule's 3 %."""
    return sum(num_params > 1.03 * top for _, top in RANGES)


def _range_name(num_params: float) -> str:
    at = _range_index(num_params)
    return RANGES[at][0] if at < len(RANGES) else OPEN_RANGE


def _estimates(models: Sequence[ModelSpec], assumed: Assumed) -> list[Estimate]:
    """Each model in each precision, in each of ``_WAYS``: all in one batch.

    On the card with the most memory, so that no end of memory cuts what the allocator keeps.
    """
    largest = max(gpus.gpus(), key=lambda g: (g.vendor == "nvidia", g.usable_memory_bytes))
    asked = [
        _request(model, precision, assumed, layout, largest.id)
        for model in models
        for precision in PRECISIONS
        for layout in (
            Layout(micro_batch=times * assumed.micro_batch, recompute=recompute) for recompute, times in _WAYS
        )
    ]
    return api.estimate(asked)


def _request(
    model: ModelSpec, precision: Precision, assumed: Assumed, layout: Layout, gpu: str
) -> RunRequest:
    batch = layout.dp * layout.micro_batch * assumed.seq_len
    return RunRequest(
        id=None,
        model=model,
        training=TrainingSpec(
            seq_len=assumed.seq_len,
            precision=precision,
            optimizer=assumed.optimizer,
            global_batch_tokens=batch,
        ),
        layout=layout,
        pins=pins_of(layout),
        gpu=gpu,
        num_gpus=layout.dp,
        gpus_per_node=min(layout.dp, GPUS_PER_NODE),
        interconnect=None,
    )


def _memory(answer: Estimate) -> MemoryEstimate:
    assert answer.memory is not None  # the formulas of memory answer every run
    return answer.memory


def _cell(ways: Sequence[Estimate], fp32: Sequence[Estimate], assumed: Assumed) -> Cell:
    """One precision of a model; the rule in mixed precision is explained by what FP32 needs."""
    whole, least, *_ = ways
    memory, precision = _memory(whole), whole.run.training.precision
    return Cell(
        precision=precision,
        device_bytes=memory.device_bytes,
        least_bytes=_memory(least).device_bytes,
        states_bytes=state_bytes(whole.run),
        working_bytes=_working(memory),
        sequence_bytes=_sequence_bytes(ways),
        peak_at=memory.peak_at,
        gpu_class=_gpu_class(whole, assumed),
        rule=_rule(ways, fp32, assumed) if precision in RULE_GB else None,
    )


def _sequence_bytes(ways: Sequence[Estimate]) -> float:
    """What one more sequence adds, between the two larger micro-batches."""
    fewer, more = ways[-2:]
    sequences = more.run.layout.micro_batch - fewer.run.layout.micro_batch
    return (_memory(more).allocated_bytes.mid - _memory(fewer).allocated_bytes.mid) / sequences


def _working(memory: MemoryEstimate) -> float:
    return memory.parts_bytes.activations + memory.parts_bytes.logits


# ------------------------------------------------------------------------------------- which GPU


def holds(memory: MemoryEstimate, usable_bytes: float, headroom: float) -> bool:
    """Whether a GPU holds a run as an ``ok`` choice of ``plan suggest`` is held."""
    return (
        memory.reserved_bytes.mid <= usable_bytes * (1 - headroom)
        and memory.device_bytes.high <= usable_bytes
    )


def _gpu_class(whole: Estimate, assumed: Assumed) -> GpuClass | None:
    """Smallest memory of one card that holds it, else the fewest reference cards with sharded states."""
    precision, memory = whole.run.training.precision, _memory(whole)
    able = [
        g
        for g in gpus.gpus()
        if gpus.supports(g, precision) is None and holds(memory, g.usable_memory_bytes, assumed.headroom)
    ]
    if able:
        least = min(g.marketing_memory_gb for g in able)
        return GpuClass(memory_gb=least, examples=_examples(least, precision), num_gpus=1)
    return _sharded(whole.run.model, precision, assumed)


def _examples(memory_gb: int, precision: Precision) -> tuple[str, ...]:
    """The fastest card of each class (consumer, workstation, datacenter) with this memory."""
    found = []
    for each in ("consumer", "workstation", "datacenter"):
        cards = [
            g
            for g in gpus.gpus()
            if g.gpu_class == each
            and g.marketing_memory_gb == memory_gb
            and gpus.supports(g, precision) is None
        ]
        if cards:
            found.append(max(cards, key=lambda g: g.memory_bandwidth_bytes_per_s).id)
    return tuple(found)


def _sharded(model: ModelSpec, precision: Precision, assumed: Assumed) -> GpuClass | None:
    """Fewest cards, a power of two, that hold the run with FSDP and full recompute."""
    card = gpus.gpu(SHARDED_ON)
    asked = [
        _request(
            model,
            precision,
            assumed,
            Layout(dp=n, zero_stage=3, micro_batch=assumed.micro_batch, recompute="full"),
            card.id,
        )
        for n in SHARDED_OVER
    ]
    for n, answer in zip(SHARDED_OVER, api.estimate(asked), strict=True):
        if holds(_memory(answer), card.usable_memory_bytes, assumed.headroom):
            return GpuClass(memory_gb=card.marketing_memory_gb, examples=(card.id,), num_gpus=n)
    return None


# ------------------------------------------------------------------------------------- the rule of thumb


def _rule(ways: Sequence[Estimate], fp32: Sequence[Estimate], assumed: Assumed) -> Rule:
    whole = ways[0]
    at = _range_index(count_params(whole.run.model).total)
    gb = RULE_GB[whole.run.training.precision][at]
    says = _says(_memory(whole), gb, assumed.headroom)
    return Rule(gb=gb, open_ended=at == len(RANGES), says=says, why=_why(says, ways, fp32, assumed))


def _says(memory: MemoryEstimate, gb: int, headroom: float) -> RuleSays:
    """Compare with a card of ``gb``: its memory in GiB is about its marketing figure."""
    card = float(gb * GIB)
    if memory.device_bytes.mid > card:
        return "too low"
    if not holds(memory, card, headroom):
        return "tight"
    return "too high" if holds(memory, card / 2, headroom) else "about right"


def _why(says: RuleSays, ways: Sequence[Estimate], fp32: Sequence[Estimate], assumed: Assumed) -> str:
    """Name what decides: states that autocast does not halve, states alone, or what grows with tokens."""
    whole = ways[0]
    memory, states = _memory(whole), state_bytes(whole.run)
    each = f"{states / count_params(whole.run.model).total:.0f} B a parameter"
    low = says in ("too low", "tight")
    if low and whole.run.training.precision != "fp32":
        saved = f"{gib(_sequence_bytes(ways))} a sequence, {gib(_sequence_bytes(fp32))} in FP32"
        kept = f"autocast keeps FP32 weights: states stay {gib(states)} ({each})"
        return f"{kept}; only activations shrink: {saved}"
    if low and states > memory.device_bytes.mid / 2:
        return f"states alone are {gib(states)} ({each}), before any activation"
    tokens = f"{assumed.micro_batch} × {assumed.seq_len} tokens"
    work = f"activations and logits of {tokens} {gib(_working(memory))}"
    room = ": the rest is room for a larger batch" if says == "too high" else ""
    return f"states {gib(states)} ({each}), {work}, context {gib(memory.parts_bytes.context)}{room}"
