"""The sweep: every collective, size and group, within the seconds that it may take."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from ..place import Place, share
from ..request import PlanCollective
from ..results import Collective, CollectiveTiming, SkippedCollective
from .culprits import find_culprits
from .exchanges import MOST_BUFFERS, OPS
from .groups import Group, close_groups, make_groups
from .timing import time_collective

GIB = 2**30
LEAST_BYTES = 2**10
FACTOR = 4  # from one size of the sweep to the next
SMALL_BYTES = 2**20  # sizes up to here come first: they are quick, and tell how long the others will take
LEAST_REPEATS = 2
OTHER_RUNS = 2  # of each size: the checked one and the one that warms up
SHARE_OF_BUDGET = 0.1  # that the repeats of one collective may take

Report = Callable[[int, int], None]  # measured so far, of how many

_LACKS = {
    ("gloo", "reduce_scatter"): "gloo has no ReduceScatter of its own: torch runs an AllReduce in its place,"
    " which sends twice the bytes (torch 2.13, counted on the wire)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What was timed, and what was left out with its reason; the same on every rank."""

    timings: tuple[CollectiveTiming, ...]
    skipped: tuple[SkippedCollective, ...]


@dataclass(frozen=True, slots=True)
class _Point:
    """One thing to time."""

    op: Collective
    bytes: int
    group: Group
    purpose: str = ""


def sweep_sizes(most_bytes: int) -> tuple[int, ...]:
    """Sizes of the sweep, bytes: from 1 KiB in factors of 4 to ``most_bytes``, which is the last."""
    sizes, size = [], LEAST_BYTES
    while size < most_bytes:
        sizes.append(size)
        size *= FACTOR
    return (*sizes, most_bytes)


def sweep(
    place: Place,
    sizes: Sequence[int],
    own: Sequence[PlanCollective],
    budget_s: float,
    *,
    ops: Sequence[Collective] = OPS,
    repeats: int = 5,
    report: Report = lambda done, of: None,
) -> Sweep:
    """Time each of ``ops`` at every size over every group; all ranks call this together.

    ``own``: the plan's own collectives, timed over all ranks, after the small sizes and before the large
    ones. ``budget_s``: seconds that all of it may take: what would overrun is skipped, and said. ``report``
    is called on every rank. Ranks that hold wrong values are named in each timing; where every rank does,
    pairs of ranks find who spoils them.
    """
    clock = _Clock(place, budget_s)
    timings: list[CollectiveTiming] = []
    skipped: list[SkippedCollective] = []
    seen: dict[tuple[str, str], list[CollectiveTiming]] = defaultdict(list)
    groups = make_groups(place)
    points = list(_points(groups, sizes, own, ops))
    for done, point in enumerate(points):
        report(done, len(points))
        one_s = _one_run_s(point.bytes, seen[point.op, point.group.scope])
        left_s, free_bytes = clock.left()
        why = _lacking(point) or _too_long(one_s, left_s, budget_s) or _too_large(point.bytes, free_bytes)
        if why:
            skipped.append(
                SkippedCollective(op=point.op, scope=point.group.scope, bytes=point.bytes, why=why)
            )
            continue
        timing = _time(point, place, _fitting(one_s, repeats, budget_s))
        seen[point.op, point.group.scope].append(timing)
        timings.append(timing)
    report(len(points), len(points))
    close_groups(groups, place.device)
    return Sweep(timings=_named(tuple(timings), place), skipped=tuple(skipped))


class _Clock:
    """What is left of time and of memory: all ranks go by the same figures, they must decide alike."""

    def __init__(self, place: Place, budget_s: float) -> None:
        self._place, self._until = place, time.monotonic() + budget_s

    def left(self) -> tuple[float, float]:
        """Seconds left on rank 0, bytes free on the GPU that has least; all ranks call this together."""
        device = self._place.device
        if device.type == "cuda":
            torch.cuda.empty_cache()  # buffers of the last size are free too
        free = float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else math.inf
        told = share([self._until - time.monotonic(), free], self._place)
        return told[0][0], min(row[1] for row in told)


def _points(
    groups: Sequence[Group], sizes: Sequence[int], own: Sequence[PlanCollective], ops: Sequence[Collective]
) -> Iterator[_Point]:
    """Everything to time, in order: small sizes, the plan's own, then upwards."""
    for group in groups:
        yield from (_Point(op, size, group) for size in sizes if size <= SMALL_BYTES for op in ops)
    for each in sorted(own, key=lambda c: c.bytes):
        yield from (_Point(each.op, each.bytes, g, each.purpose) for g in groups if g.scope == "all")
    for size in sizes:
        yield from (_Point(op, size, g) for g in groups if size > SMALL_BYTES for op in ops)


def _time(point: _Point, place: Place, repeats: int) -> CollectiveTiming:
    return time_collective(point.op, point.bytes, point.group, place, repeats, point.purpose)


def _lacking(point: _Point) -> str:
    """Why the backend cannot do this as what it is called, empty where it can."""
    return _LACKS.get((dist.get_backend(), point.op), "")


def _one_run_s(bytes_: int, seen: Sequence[CollectiveTiming]) -> float:
    """Seconds that one run will take, along the line through the smallest and the largest size so far.

    0 where nothing was timed; the time of the only size where there is one: what it took is mostly latency.
    """
    if not seen:
        return 0.0
    small, large = min(seen, key=lambda t: t.bytes), max(seen, key=lambda t: t.bytes)
    if bytes_ <= large.bytes or large.bytes == small.bytes:
        return large.time_s
    per_byte = max(0.0, large.time_s - small.time_s) / (large.bytes - small.bytes)
    return large.time_s + per_byte * (bytes_ - large.bytes)


def _too_long(one_s: float, left_s: float, budget_s: float) -> str:
    """Why there is no time for this, empty where there is."""
    needed_s = one_s * (LEAST_REPEATS + OTHER_RUNS)
    if left_s <= 0:
        return f"the {budget_s:.0f} s given to collectives were used up"
    if needed_s > left_s:
        return f"would take about {needed_s:.0f} s, of {budget_s:.0f} s given {left_s:.0f} s were left"
    return ""


def _too_large(bytes_: int, free_bytes: float) -> str:
    """Why there is no memory for this, empty where there is."""
    needed = MOST_BUFFERS * bytes_
    if needed <= free_bytes:
        return ""
    return f"needs about {needed / GIB:.1f} GiB on each GPU, {free_bytes / GIB:.1f} GiB are free"


def _fitting(one_s: float, repeats: int, budget_s: float) -> int:
    """Repeats that take no more than a tenth of the time given, at least two."""
    if one_s <= 0:
        return repeats
    return max(min(LEAST_REPEATS, repeats), min(repeats, int(SHARE_OF_BUDGET * budget_s / one_s)))


def _named(timings: tuple[CollectiveTiming, ...], place: Place) -> tuple[CollectiveTiming, ...]:
    """Name who spoils sums, where every rank of a group holds wrong ones."""
    spoiled = next((t for t in timings if t.op == "all_reduce" and len(t.wrong_ranks) >= t.ranks > 2), None)
    if spoiled is None:
        return timings
    culprits = find_culprits(place)
    if not culprits:
        return timings
    return tuple(
        replace(t, wrong_ranks=culprits) if len(t.wrong_ranks) >= t.ranks > 2 else t for t in timings
    )


def default_most_bytes(device: torch.device) -> int:
    """Largest size of the sweep, bytes: 1 GiB on GPUs, 64 MiB on CPUs."""
    return 2**30 if device.type == "cuda" else 2**26
