"""Timed collectives of ``torch.distributed`` in nccl-tests' conventions, and the search for a slow pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..place import Place
from ..request import PlanCollective
from ..results import CollectiveTiming, PairTiming, SkippedCollective

Report = Callable[[int, int], None]  # measured so far, of how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What was timed, and what was left out with its reason; the same on every rank."""

    timings: tuple[CollectiveTiming, ...]
    skipped: tuple[SkippedCollective, ...]


def sweep_sizes(most_bytes: int) -> tuple[int, ...]:
    """Sizes of the sweep, bytes: from 1 KiB to ``most_bytes`` in factors of 4 and at last ``most_bytes``."""
    raise NotImplementedError


def sweep(
    place: Place,
    sizes: Sequence[int],
    own: Sequence[PlanCollective],
    budget_s: float,
    *,
    repeats: int = 5,
    report: Report = lambda done, of: None,
) -> Sweep:
    """Time every collective at every size over every group; all ranks call this together.

    ``own``: the plan's own collectives, timed first, over all ranks. ``budget_s``: seconds that all of it may
    take: what would overrun is skipped, and said. ``report`` is called on every rank.
    """
    raise NotImplementedError


def slowest_pairs(place: Place, bytes_: int, budget_s: float, *, repeats: int = 3) -> tuple[PairTiming, ...]:
    """Send and receive between pairs of ranks, slowest first, until pairs or ``budget_s`` are used up.

    All ranks call this together, when a total disappoints; the answer is the same on every rank.
    """
    raise NotImplementedError
