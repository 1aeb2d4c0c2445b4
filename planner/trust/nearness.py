"""Bands by nearness: how far measured figures of runs like this one were from predicted ones.

Each measured run weighs exp(-distance): ``data/nearness.csv`` says how far two runs are apart for each thing
in which they differ. Runs of one source are not independent, so a source counts as the power ``crowd`` of its
runs' weight. The mean size of the near residuals, with that of all runs mixed in (``parent``), is the scale
of the band; ``low`` and ``high`` turn a scale into an 80 % interval. The size of a residual is the mean of
what it is as shipped and with the constants refitted without its source: a new run is of a kind that some
constants were fitted to, and others were not. All were set so that intervals hold when the source that is
asked about is left out (``tests/accuracy/test_bands_hold.py``).

The shipped runs never move the middle of an estimate: with a source left out that made errors larger. Runs
that the user measured do: the middle moves by their weighted mean residual, by less the fewer are near, and
hardly where they are off by no more than ``noise``. They have distances of their own, so that a run on one's
own machine says little about another machine.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array
from planner.hardware.gpus import gpus
from planner.trust.features import Features
from planner.trust.residuals import OWN, Quantity, Residual, shipped_rows
from planner.units import signed_percent

SPLITS = ("tp", "pp", "cp", "ep")
DOUBLINGS = ("params", "gpus", "nodes", "seq_len", "micro_tokens")
_FACTS = (
    "gpu", "architecture", "gpu_class", "method", "precision", "framework", "recompute", "adapters",
    "states", "sharded", "alone", "offload", "moe",
)  # fmt: skip
_CORRECTED: tuple[tuple[str, Quantity], ...] = (("time", "step"), ("memory", "device"))
NEAR = 5.0  # distance up to which a measured run is called near: it weighs 1 / 150 or more
OWN_WEIGHT = 3.0  # of a user's own run in the width of a band, where a published one weighs 1
OWN_PRIOR = 0.3  # weight of "the formulas are right" beside the user's own runs


@dataclass(frozen=True, slots=True)
class Traits:
    """Features as numbers, one column a run: what distance is computed from."""

    codes: dict[str, NDArray[np.int64]]
    splits: NDArray[np.bool_]
    logs: dict[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Residuals of one quantity as columns."""

    traits: Traits
    figure: NDArray[np.int64]
    log_ratio: Array
    by_source: Array  # (runs, 2 x sources): 1 where it is of the source; then the size of its residual
    own: NDArray[np.bool_]
    own_traits: Traits | None
    own_moves: Array  # what each own run says the middle is off by, less what may be noise


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """What bands rest on: tables of memory and of step time, and which GPUs were measured how often."""

    memory: Table
    step: Table
    num_runs: dict[tuple[str, str], int]  # (memory | step, GPU) -> measured runs
    num_own: int  # runs that the user measured

    @property
    def has_own(self) -> bool:
        """Whether the user measured any run."""
        return self.num_own > 0

    def of(self, quantity: Quantity) -> Table:
        """The table that a quantity is in."""
        return self.step if quantity == "step" else self.memory


@dataclass(frozen=True, slots=True)
class Spreads:
    """Ratios to the predicted figure, one for each run asked about; ``near``: weight of the runs near it."""

    low: Array
    middle: Array
    high: Array
    near: Array


@dataclass(frozen=True, slots=True)
class Support:
    """Measured runs at a distance of no more than ``NEAR``, of how many sources; and all on the same GPU."""

    num_runs: int
    num_sources: int
    on_gpu: int


@lru_cache(maxsize=1)
def distances() -> dict[str, dict[str, float]]:
    """``data/nearness.csv`` by column, then name."""
    text = files("planner").joinpath("data/nearness.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    return {
        column: {row["name"]: float(row[column]) for row in rows if row[column]}
        for column in ("memory", "step", "own")
    }


@lru_cache(maxsize=1)
def shipped() -> Residuals:
    """What comes with the program."""
    return residuals(shipped_rows())


def residuals(rows: Sequence[Residual]) -> Residuals:
    """Tables of any residuals; those of source ``yours`` are the user's own."""
    in_memory = [row for row in rows if row.quantity != "step"]
    in_time = [row for row in rows if row.quantity == "step"]
    count: dict[tuple[str, str], int] = {}
    for name, group in (("memory", in_memory), ("step", in_time)):
        for row in group:
            key = (name, row.features.gpu)
            count[key] = count.get(key, 0) + 1
    own = len({row.features for row in rows if row.source == OWN})
    return Residuals(_table(in_memory, "memory"), _table(in_time, "step"), count, own)


def _table(rows: Sequence[Residual], quantity: Literal["memory", "step"]) -> Table:
    sources = {name: i for i, name in enumerate(sorted({row.source for row in rows}))}
    by_source = np.zeros((len(rows), len(sources)))
    by_source[np.arange(len(rows)), [sources[row.source] for row in rows]] = 1.0
    own = np.array([row.source == OWN for row in rows], dtype=bool)
    log_ratio = np.array([row.log_ratio for row in rows])
    per = distances()[quantity]
    known = traits([row.features for row in rows])
    left = log_ratio.copy()
    mine = traits([row.features for row in rows if row.source == OWN]) if own.any() else None
    square = log_ratio[own] ** 2
    moves = log_ratio[own] * square / (square + per["noise"] ** 2)
    if mine is not None:
        weight = np.exp(-_distance(mine, mine, distances()["own"]))
        np.fill_diagonal(weight, 0.0)
        left[own] -= _middle(weight, moves)
    outside = np.array([row.left_out for row in rows], dtype=np.float64)  # None is NaN
    outside = np.where(np.isnan(outside), left, outside)
    size = (np.minimum(np.abs(left), per["most"]) + np.minimum(np.abs(outside), per["most"])) / 2
    return Table(
        traits=known,
        figure=np.array([_code(row.quantity) for row in rows], dtype=np.int64),
        log_ratio=log_ratio,
        by_source=np.concatenate([by_source, by_source * size[:, None]], axis=1),
        own=own,
        own_traits=mine,
        own_moves=moves,
    )


@lru_cache(maxsize=1)
def none() -> Residuals:
    """No measured runs: estimates as the formulas give them, with the widest bands."""
    return residuals(())


# ---------------------------------------------------------------------------------- distance


def traits(runs: Sequence[Features]) -> Traits:
    """Columns of runs."""
    cards = [_card(run.gpu) for run in runs]
    codes = {
        "gpu": [_code(run.gpu) for run in runs],
        "architecture": [card[0] for card in cards],
        "gpu_class": [card[1] for card in cards],
        "method": [_code(run.method) for run in runs],
        "precision": [_code(run.precision) for run in runs],
        "framework": [_code(run.framework) for run in runs],
        "recompute": [run.recompute for run in runs],
        "adapters": [run.method in ("lora", "qlora") for run in runs],
        "states": [run.zero_stage >= 1 for run in runs],
        "sharded": [run.zero_stage == 3 for run in runs],
        "alone": [run.gpus == 1 for run in runs],
        "offload": [run.offload for run in runs],
        "moe": [run.moe for run in runs],
    }
    logs = {name: np.array([getattr(run, name) for run in runs], dtype=np.float64) for name in DOUBLINGS}
    splits = [[getattr(run, name) > 1 for run in runs] for name in SPLITS]
    return Traits(
        {name: np.array(values, dtype=np.int64) for name, values in codes.items()},
        np.array(splits, dtype=bool).reshape(len(SPLITS), len(runs)),
        {name: np.log2(np.maximum(values, 1.0)) for name, values in logs.items()},
    )


_CODES: dict[str, int] = {}


def _code(word: str) -> int:
    """Number that stands for a word, the same for the same word."""
    return _CODES.setdefault(word, len(_CODES))


@lru_cache(maxsize=1)
def _cards() -> dict[str, tuple[int, int]]:
    return {card.id: (_code(card.architecture), _code(card.gpu_class)) for card in gpus()}


def _card(gpu_id: str) -> tuple[int, int]:
    """Codes of architecture and class; a GPU that is not in the table is like none."""
    return _cards().get(gpu_id, (-1, -1))


def _distance(asked: Traits, known: Traits, per: dict[str, float]) -> Array:
    """How far each run asked about (row) is from each measured one (column)."""
    alike = np.zeros((1, len(known.codes["gpu"])))  # what all that is asked about have in common
    far = np.zeros((len(asked.codes["gpu"]), len(known.codes["gpu"])))
    for name in _FACTS:
        if per[name]:
            mine = _once(asked.codes[name])
            part = per[name] * (mine[:, None] != known.codes[name])
            alike, far = (alike + part, far) if len(mine) == 1 else (alike, _add(far, part))
    for each, theirs in zip(asked.splits, known.splits, strict=True):
        split = _once(each)
        part = per["split"] * (split[:, None] != theirs)
        alike, far = (alike + part, far) if len(split) == 1 else (alike, _add(far, part))
    for name in DOUBLINGS:
        if per[name]:
            size = _once(asked.logs[name])
            part = np.abs(per[name] * size[:, None] - per[name] * known.logs[name])
            alike, far = (alike + part, far) if len(size) == 1 else (alike, _add(far, part))
    return _add(far, alike)


def _add(total: Array, part: Array) -> Array:
    """Add in place."""
    total += part
    return total


def _once(values: Array | NDArray[np.int64] | NDArray[np.bool_]) -> Array:
    """Values as numbers; one alone where all are the same."""
    numbers = values.astype(np.float64)
    return numbers[:1] if len(numbers) and (numbers == numbers[0]).all() else numbers


# ---------------------------------------------------------------------------------- bands


def spreads(quantity: Quantity, runs: Sequence[Features], known: Residuals) -> Spreads:
    """Spread of each run: low and high end and middle, as ratios to what the formulas predict.

    ``quantity``: ``step``, or the kind of memory that is asked for.
    """
    table, per = known.of(quantity), distances()["step" if quantity == "step" else "memory"]
    if not len(table.log_ratio):
        width, one = np.full(len(runs), per["most"]), np.ones(len(runs))
        return Spreads(np.exp(-width), one, np.exp(width), np.zeros(len(runs)))
    asked = traits(runs)
    weight = np.exp(-_distance(asked, table.traits, per))
    middle = np.zeros(len(runs))
    if table.own_traits is not None:
        middle = _middle(np.exp(-_distance(asked, table.own_traits, distances()["own"])), table.own_moves)
    alike = np.where(table.figure == _code(quantity), 1.0, np.exp(-per["figure"]))
    alike = alike * np.where(table.own, OWN_WEIGHT, 1.0)
    scale, near = _scale(weight @ (table.by_source * alike[:, None]), table, per)
    seen = np.isin(asked.codes["gpu"], table.traits.codes["gpu"])
    scale = scale * np.where(seen, 1.0, per["unseen"])
    down = np.maximum(per["low"] * scale, per["narrowest"])
    up = np.maximum(per["high"] * scale, per["narrowest"])
    return Spreads(np.exp(middle - down), np.exp(middle), np.exp(middle + up), near)


def _middle(weight: Array, moves: Array) -> Array:
    """Logarithm by which the user's own runs move each prediction, from their weights (asked, own)."""
    moved: Array = (weight @ moves) / (weight.sum(axis=-1) + OWN_PRIOR)
    return moved


def _scale(sums: Array, table: Table, per: dict[str, float]) -> tuple[Array, Array]:
    """Mean size of the near residuals, and the weight of the near runs, from the sums of each source."""
    num = table.by_source.shape[1] // 2
    of_source, sizes = sums[:, :num], sums[:, num:]
    power = np.maximum(of_source, 1e-300) ** (per["crowd"] - 1.0)
    near = (of_source * power).sum(axis=1)
    count = table.by_source.sum(axis=0)
    crowd = count[:num] ** per["crowd"]
    everywhere = (count[num:] / count[:num]) @ crowd / crowd.sum()
    alone = per["parent"] / (near + per["parent"])
    scale = (1.0 - alone) * (sizes * power).sum(axis=1) / np.maximum(near, 1e-300) + alone * everywhere
    return scale * (1.0 + per["lonely"] * alone), near


def support(quantity: Quantity, run: Features, known: Residuals) -> Support:
    """Count the measured runs that the band of a run mostly rests on."""
    table, name = known.of(quantity), "step" if quantity == "step" else "memory"
    on_gpu = known.num_runs.get((name, run.gpu), 0)
    if not len(table.log_ratio):
        return Support(0, 0, on_gpu)
    near = _distance(traits([run]), table.traits, distances()[name])[0] <= NEAR
    return Support(
        int(near.sum()), int((near @ table.by_source[:, : table.by_source.shape[1] // 2] > 0).sum()), on_gpu
    )


def correction(run: Features, known: Residuals) -> str | None:
    """Say how far the user's own runs move the figures of a run; ``None`` where the user measured nothing."""
    if not known.has_own:
        return None
    runs = f"{known.num_own} run{'s' * (known.num_own != 1)} of your own"
    moved = [
        f"{name} {signed_percent(float(spreads(quantity, [run], known).middle[0]) - 1)}"
        for name, quantity in _CORRECTED
    ]
    return f"corrected by {runs}: {', '.join(moved)}"


def own_runs(quantity: Quantity, gpu_id: str, known: Residuals) -> int:
    """Count the figures that the user measured on a GPU: of step time, or of memory of any kind."""
    table = known.of(quantity)
    return int((table.own & (table.traits.codes["gpu"] == _code(gpu_id))).sum())


def warnings(gpu_id: str, known: Residuals) -> tuple[str, ...]:
    """Say where a band does not rest on measured runs of this GPU."""
    missing = [
        name
        for name, quantity in (("memory", "memory"), ("time", "step"))
        if (quantity, gpu_id) not in known.num_runs
    ]
    return (f"no measured run on {gpu_id} for {' and '.join(missing)}: wider band",) if missing else ()
