"""Send and receive pair by pair, to find the link or host that slows a total down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import torch
import torch.distributed as dist

from ..place import Place, settle, share
from ..results import PairTiming
from .culprits import Pair, meeting_rounds, tournament_rounds
from .exchanges import ELEMENT_BYTES, swapper
from .groups import wait_for_all


def slowest_pairs(place: Place, bytes_: int, budget_s: float, *, repeats: int = 3) -> tuple[PairTiming, ...]:
    """Send and receive between pairs of ranks, slowest first, until pairs or ``budget_s`` are used up.

    Both ranks of a pair send ``bytes_`` at the same time. Nodes meet first, each by its first rank, in
    rounds of disjoint pairs: each node meets each other, of more than 16 nodes log2 others, so that a slow
    node is slow with all its partners. Then ranks of a node meet, on all nodes at once. All ranks call this
    together, when a total disappoints; the answer is the same on every rank.
    """
    until = time.monotonic() + budget_s
    found: list[PairTiming] = []
    for pairs in rounds(place):
        if share([until - time.monotonic()], place)[0][0] <= 0:
            break
        found += _round(pairs, place, bytes_, repeats)
    return tuple(sorted(found, key=lambda pair: pair.busbw_bytes_per_s))


def rounds(place: Place) -> Iterator[tuple[Pair, ...]]:
    """Rounds of disjoint pairs: between nodes, then inside all nodes at once."""
    yield from meeting_rounds(place.first_ranks)
    inside = [list(tournament_rounds(place.ranks_of(node))) for node in sorted(set(place.node_of_rank))]
    for i in range(max(len(each) for each in inside)):
        yield tuple(pair for each in inside if i < len(each) for pair in each[i])


def _round(pairs: tuple[Pair, ...], place: Place, bytes_: int, repeats: int) -> list[PairTiming]:
    """Time all pairs of a round at once."""
    mine = next((pair for pair in pairs if place.rank in pair), None)
    taken = share([_swap_s(mine, place, bytes_, repeats) if mine else 0.0], place)
    _meet(place)
    return [
        PairTiming(rank_a=a, rank_b=b, bytes=bytes_, busbw_bytes_per_s=bytes_ / max(taken[a][0], taken[b][0]))
        for a, b in pairs
    ]


def _swap_s(pair: Pair, place: Place, bytes_: int, repeats: int) -> float:
    """Median seconds of one exchange on this rank, after one that warms up."""
    partner = pair[0] if place.rank == pair[1] else pair[1]
    source = torch.zeros(max(1, bytes_ // ELEMENT_BYTES), device=place.device)
    target = torch.empty_like(source)
    assert dist.group.WORLD is not None
    swap = swapper(source, target, partner, partner, dist.group.WORLD)
    taken = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        swap()
        settle(place.device)
        taken.append(time.perf_counter() - began)
    return median(taken[1:])


def _meet(place: Place) -> None:
    """Start the next round together: a pair that is done early must not disturb the others."""
    assert dist.group.WORLD is not None
    wait_for_all(dist.group.WORLD, place.device)
