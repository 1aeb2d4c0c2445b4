"""What only ranks together can tell: whose clock is off, and who differs from the others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch.distributed as dist

from ..place import Place, share
from ..results import Reading
from .tools import judged, unread

ALIKE = ("GPU", "GPUs in the node", "driver", "CUDA", "NCCL", "torch", "Ray", "Python", "NVLink links up")
MOST_SKEW_S = 1.0  # logs of nodes line up, and signed requests (5 minutes) are far away
EXCHANGES = 10


def clock_reading(place: Place) -> Reading:
    """Offset of this node's clock from that of rank 0's node; all ranks call this together.

    In each exchange there is an instant at which all ranks are inside it, so two ranks' clocks differ by the
    middles of their stays, give or take half of both. The shortest of several exchanges counts.
    """
    told: list[list[list[float]]] = []
    for _ in range(EXCHANGES):
        entered = time.time()
        share([entered], place)
        told.append(share([entered, time.time()], place))
    best = min((_offset(rows[place.rank], rows[0]) for rows in told), key=lambda found: found[1])
    return judge_skew(*best, place.host, place.host_of_rank[0])


def judge_skew(offset_s: float, error_s: float, host: str, other: str) -> Reading:
    """Reading of an offset known to ± ``error_s``."""
    name, limit = "clock skew", f"at most {MOST_SKEW_S:g} s"
    value = f"{offset_s * 1e3:+.1f} ± {error_s * 1e3:.1f} ms"
    if error_s > MOST_SKEW_S:
        return unread(name, f"an exchange took {2 * error_s:.1f} s, too long to tell the clocks apart", limit)
    within = abs(offset_s) - error_s <= MOST_SKEW_S
    return judged(name, value, limit, within, f"clock of {host} is {offset_s:+.1f} s off that of {other}")


def _offset(mine: list[float], other: list[float]) -> tuple[float, float]:
    """Offset and its error, seconds, of two stays (entered, left)."""
    middles = (mine[0] + mine[1]) / 2 - (other[0] + other[1]) / 2
    return middles, (mine[1] - mine[0] + other[1] - other[0]) / 2


def compare(readings: Sequence[Reading], place: Place) -> tuple[Reading, ...]:
    """Readings that must be alike on all ranks, the odd ones named; all ranks call this together."""
    mine = {r.name: r.value for r in readings if r.name in ALIKE and r.value is not None}
    every: list[dict[str, str]] = [{}] * place.num_ranks
    dist.all_gather_object(every, mine)
    return tuple(compared(r, [each.get(r.name) for each in every], place) for r in readings)


def compared(reading: Reading, values: Sequence[str | None], place: Place) -> Reading:
    """One reading against that of the other ranks: failed where it is not what most of them have.

    Where no value has most ranks, all have failed. Ranks without a value have failed already.
    """
    if reading.name not in ALIKE or reading.value is None:
        return reading
    counts = Counter(value for value in values if value is not None)
    if len(counts) == 1:
        return reading
    (most, often), (_, second) = counts.most_common(2)
    if often > second and reading.value == most:
        return reading
    others = ", ".join(
        f"{value} on {_who(value, values, place)}" for value in sorted(counts) if value != reading.value
    )
    why = f"{reading.name} {reading.value} on {_who(reading.value, values, place)}, but {others}"
    return replace(reading, passed=False, why="; ".join(filter(None, (reading.why, why))))


def _who(value: str, values: Sequence[str | None], place: Place) -> str:
    """Name hosts that have a value; of many, the first ones."""
    hosts = sorted({place.host_of_rank[rank] for rank, each in enumerate(values) if each == value})
    more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
    return ", ".join(hosts[:3]) + more
