"""What a search finds, collected over its passes: the best layouts of each shape, or what came nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from planner.columns import Array
from planner.grouping import Index, first_of
from planner.layouts import ROW
from planner.search.families import FAMILIES, complexity, family_codes
from planner.types import TrainingSpec

# Repeated measurements of one setting differ by so much: a layout must gain more to be worth its complexity.
NOISE = 1.03
Lacking = Literal["all", "nothing ok", "nothing fits"]
_EIGHT_BIT = FAMILIES.index("8-bit optimizer")
OK, TIGHT, SLOW_LINK = 0, 1, 2
NO_LAYOUT, TOO_BIG, TOO_BIG_TO_LOAD, TOO_BIG_FOR_HOST = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Picks:
    """The best layouts found: for each shape at most one of each grade."""

    shape: Index
    table: Array
    grade: Index  # OK, TIGHT or SLOW_LINK
    variant: Index  # 0 as asked, 1 with 8-bit optimizer states
    preference: Index  # 0 = plain, 1 = changes numerics or waits for host memory
    step_s: Array
    tokens_per_step: Array
    host_bytes: Array  # of host memory that a node needs


@dataclass(frozen=True, slots=True)
class Misses:
    """Per shape: why nothing was found (0 = something was), and the layout that came nearest to fitting."""

    why: Index
    device_bytes: Array
    table: Array
    variant: Index


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, and how many layouts of each family it decided."""

    picks: Picks
    misses: Misses
    variants: tuple[TrainingSpec, ...]
    num_layouts: int
    by_family: dict[str, int]


class State:
    """Collects picks and misses over the passes."""

    def __init__(self, num_shapes: int) -> None:
        self.num_shapes = num_shapes
        self.picks: list[Picks] = []
        self.has_ok = np.zeros(num_shapes, dtype=bool)
        self.has_fitting = np.zeros(num_shapes, dtype=bool)
        self.has_any = np.zeros(num_shapes, dtype=bool)
        self.why = np.full(num_shapes, NO_LAYOUT)
        self.least = np.full(num_shapes, np.inf)
        self.nearest = np.zeros((len(ROW), num_shapes))
        self.variant = np.zeros(num_shapes, dtype=np.int64)
        self.families = np.zeros(len(FAMILIES), dtype=np.int64)

    def lacking(self, what: Lacking) -> Index:
        """Shapes for which no layout, or no ok one, was found yet; or all shapes."""
        if what == "all":
            return np.arange(self.num_shapes)
        return np.nonzero(~(self.has_ok if what == "nothing ok" else self.has_fitting))[0]

    def count(self, table: Array, times: int, variant: int) -> None:
        """Count the layouts of a table by family; with 8-bit optimizer states they are one of their own."""
        codes = family_codes(table) if variant == 0 else np.full(table.shape[1], _EIGHT_BIT)
        self.families += times * np.bincount(codes, minlength=len(FAMILIES))

    def miss(
        self, shape: Index, device: Array, table: Array, why: Index, variant: int, *, last: bool
    ) -> None:
        """Keep the layout nearest to fitting, for shapes where it is nearer than the one known.

        A ``last`` resort (offload) is kept only where there is none: what a GPU lacks is memory, not a host.
        """
        nearer = device < (np.where(np.isinf(self.least[shape]), np.inf, 0.0) if last else self.least[shape])
        at = shape[nearer]
        self.least[at], self.why[at] = device[nearer], why[nearer]
        self.nearest[:, at], self.variant[at] = table[:, nearer], variant

    def hit(self, picks: Picks) -> None:
        """Keep picks of a pass."""
        self.picks.append(picks)
        self.has_ok[picks.shape[picks.grade == OK]] = True
        self.has_fitting[picks.shape[picks.grade <= TIGHT]] = True
        self.has_any[picks.shape] = True

    def found(self, variants: tuple[TrainingSpec, ...]) -> Found:
        """Sum up."""
        why = np.where(self.has_any, 0, self.why)
        counts = zip(FAMILIES, self.families.tolist(), strict=True)
        names = {name: number for name, number in counts if number}
        misses = Misses(why, self.least, self.nearest, self.variant)
        return Found(_best(self.picks), misses, variants, sum(names.values()), names)


def simplest_of_the_fastest(group: Index, table: Array, s_per_token: Array, preference: Index) -> Index:
    """In each group the row that is fastest, or a simpler one that is as fast within the noise.

    Rows of a lower ``preference`` go before all others.
    """
    kind = group * 4 + preference
    _, of = np.unique(kind, return_inverse=True)
    fastest = np.full(int(of.max(initial=-1)) + 1, np.inf)
    np.minimum.at(fastest, of, s_per_token)
    slower = (s_per_token > NOISE * fastest[of]).astype(np.int64)
    return first_of((group,), (preference, slower, complexity(table), s_per_token))


def _best(parts: Sequence[Picks]) -> Picks:
    """Join the picks of all passes, one for each shape and grade: plain ones first, then the fastest."""
    empty = np.empty(0, dtype=np.int64)
    none = Picks(empty, np.empty((len(ROW), 0)), empty, empty, empty, np.empty(0), np.empty(0), np.empty(0))
    joined = [np.concatenate([getattr(p, f.name) for p in (none, *parts)], axis=-1) for f in fields(Picks)]
    every = Picks(*joined)
    per_token = every.step_s / every.tokens_per_step
    best = simplest_of_the_fastest(every.shape * 3 + every.grade, every.table, per_token, every.preference)
    return Picks(*(getattr(every, f.name)[..., best] for f in fields(Picks)))
