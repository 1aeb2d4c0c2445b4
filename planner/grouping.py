"""Small joins over columns of integers: distinct keys, matching pairs, the first row of each group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array

Index = NDArray[np.int64]


def distinct(keys: Sequence[Hashable]) -> tuple[list[int], Index]:
    """Find the first position of each distinct key, and for each key which of them it is."""
    seen: dict[Hashable, int] = {}
    first: list[int] = []
    of = np.empty(len(keys), dtype=np.int64)
    for i, key in enumerate(keys):
        if key not in seen:
            seen[key] = len(first)
            first.append(i)
        of[i] = seen[key]
    return first, of


def pairs(left: Index, right: Index) -> tuple[Index, Index]:
    """Find all (i, j) with ``left[i] == right[j]``, as two columns of positions, in order of j then i."""
    order = np.argsort(left, kind="stable")
    ranked = left[order]
    low, high = np.searchsorted(ranked, right, "left"), np.searchsorted(ranked, right, "right")
    count = high - low
    j = np.repeat(np.arange(len(right)), count)
    offset = np.arange(len(j)) - np.repeat(np.cumsum(count) - count, count)
    return order[np.repeat(low, count) + offset], j


def first_of(groups: Sequence[Array | Index], order: Sequence[Array | Index]) -> Index:
    """Position of the row that comes first by ``order`` in each group; ties go to the earlier row."""
    ranked = np.lexsort((*order[::-1], *groups[::-1]))
    new = np.ones(len(ranked), dtype=bool)
    if len(ranked):
        new[1:] = np.any([g[ranked][1:] != g[ranked][:-1] for g in groups], axis=0)
    return ranked[new]
