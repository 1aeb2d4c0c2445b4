"""One collective of one size: checked once, warmed up, then timed.

As nccl-tests does it (NVIDIA/nccl-tests, doc/PERFORMANCE.md and src/common.cu): a repeat runs the operation
several times back to back between two waits; here the repeat counts as long as on its slowest rank, and the
time is the median of the repeats.
"""

from __future__ import annotations

import time
from statistics import median

from ..place import Place, settle, share
from ..results import Collective, CollectiveTiming
from .exchanges import ELEMENT_BYTES, Exchange, bus_factor, is_correct, prepare
from .groups import Group, wait_for_all

REPEAT_S = 0.01  # a repeat of short operations is so long, so that the clock does not matter
MOST_RUNS = 20  # of one repeat; nccl-tests runs 20


def time_collective(
    op: Collective, bytes_: int, group: Group, place: Place, repeats: int, purpose: str
) -> CollectiveTiming:
    """Check and time one collective; all ranks call this together, those outside the group too.

    Groups of single nodes run side by side, and the slowest of them counts.
    """
    exchange = None
    correct, warm_s = True, 0.0
    if group.pg is not None:
        exchange = prepare(op, bytes_, group, place.rank, place.device)
        correct = is_correct(exchange, place.device)
        warm_s = _repeat(exchange, group, place, runs=1)
    told = share([warm_s, float(correct)], place)
    slowest = max(row[0] for row in told)
    runs = max(1, min(MOST_RUNS, int(REPEAT_S / slowest))) if slowest > 0 else MOST_RUNS
    taken = [_repeat(exchange, group, place, runs) if exchange else 0.0 for _ in range(repeats)]
    by_rank = share(taken, place)
    seconds = median(max(row[i] for row in by_rank) for i in range(repeats))
    size = exchange.bytes if exchange else _whole_bytes(bytes_, group)
    wrong = tuple(rank for rank, row in enumerate(told) if not row[1])
    return _record(op, group, size, seconds, wrong, purpose)


def _record(
    op: Collective, group: Group, size: int, seconds: float, wrong: tuple[int, ...], purpose: str
) -> CollectiveTiming:
    """Rates from seconds."""
    algbw = size / seconds
    return CollectiveTiming(
        op=op,
        scope=group.scope,
        ranks=group.size,
        nodes=group.num_nodes,
        bytes=size,
        time_s=seconds,
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=algbw * bus_factor(op, group.size),
        correct=not wrong,
        purpose=purpose,
        wrong_ranks=wrong,
    )


def _whole_bytes(bytes_: int, group: Group) -> int:
    """Bytes of whole elements for each rank, as ``prepare`` rounds them."""
    return max(1, bytes_ // ELEMENT_BYTES // group.size) * group.size * ELEMENT_BYTES


def _repeat(exchange: Exchange, group: Group, place: Place, runs: int) -> float:
    """Seconds of one run on this rank, the mean of ``runs`` back to back.

    Zeros are sent: what works in place adds to its own result, and zeros stay what they are.
    """
    assert group.pg is not None
    exchange.source.zero_()
    settle(place.device)
    wait_for_all(group.pg, place.device)
    settle(place.device)
    began = time.perf_counter()
    for _ in range(runs):
        exchange.run()
    settle(place.device)
    return (time.perf_counter() - began) / runs
