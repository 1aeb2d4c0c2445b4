"""Arithmetic with masks that costs nothing where the mask is one value for all rows.

Most terms of memory are switched by what a framework does: a scalar. ``times`` and ``pick`` skip the
work on columns where that scalar decides; the results are those of ``*`` and ``np.where``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array

ZERO: Array = np.asarray(0.0)


def times(factor: Array, values: Array) -> Array:
    """``factor * values``; scalar zero where the factor is a scalar zero, ``values`` where it is one."""
    if np.ndim(factor) == 0:
        if factor == 0:
            return ZERO
        if factor == 1:
            return values
    product: Array = factor * values
    return product


def pick(mask: NDArray[np.bool_], yes: Array, no: Array) -> Array:
    """``np.where(mask, yes, no)``, without a column where the mask is a scalar."""
    if np.ndim(mask) == 0:
        return yes if mask else no
    picked: Array = np.where(mask, yes, no)
    return picked
