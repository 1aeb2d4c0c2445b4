"""Who spoils a sum that is wrong everywhere: pairs of ranks sum between themselves."""

from __future__ import annotations

from collections.abc import Iterator

import torch.distributed as dist

from ..place import Place, share
from .exchanges import is_correct, prepare
from .groups import Group, close_groups

SUM_BYTES = 2**16
MOST_IN_TOURNAMENT = 16
Pair = tuple[int, int]


def meeting_rounds(ranks: tuple[int, ...]) -> Iterator[tuple[Pair, ...]]:
    """Rounds of disjoint pairs: each meets each other, of more than 16 log2 others."""
    return tournament_rounds(ranks) if len(ranks) <= MOST_IN_TOURNAMENT else halving_rounds(ranks)


def halving_rounds(ranks: tuple[int, ...]) -> Iterator[tuple[Pair, ...]]:
    """Rounds of disjoint pairs, log2 of the number of ranks: in each, a rank has another partner."""
    step = 1
    while step < len(ranks):
        yield tuple(
            (ranks[i], ranks[i + step])
            for i in range(len(ranks))
            if i // step % 2 == 0 and i + step < len(ranks)
        )
        step *= 2


def tournament_rounds(ranks: tuple[int, ...]) -> Iterator[tuple[Pair, ...]]:
    """Rounds of disjoint pairs in which each rank meets each other once (the circle method)."""
    ring: list[int | None] = [*ranks] if len(ranks) % 2 == 0 else [*ranks, None]
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        met = zip(ring[:half], reversed(ring[half:]), strict=True)
        yield tuple((min(a, b), max(a, b)) for a, b in met if a is not None and b is not None)
        ring = [ring[0], ring[-1], *ring[1:-1]]


def find_culprits(place: Place) -> tuple[int, ...]:
    """Ranks whose sum was wrong with every partner, while others summed right; all ranks call this together.

    Empty where that does not single anyone out.
    """
    met: dict[int, list[bool]] = {rank: [] for rank in range(place.num_ranks)}
    for pairs in meeting_rounds(tuple(range(place.num_ranks))):
        mine = _groups_of(pairs, place)
        right = True
        if mine is not None:
            right = is_correct(prepare("all_reduce", SUM_BYTES, mine, place.rank, place.device), place.device)
            close_groups((mine,), place.device)
        told = [bool(row[0]) for row in share([float(right)], place)]
        for a, b in pairs:
            met[a].append(told[a] and told[b])
            met[b].append(told[a] and told[b])
    never = tuple(rank for rank, rights in met.items() if rights and not any(rights))
    return never if any(any(rights) for rights in met.values()) else ()


def _groups_of(pairs: tuple[Pair, ...], place: Place) -> Group | None:
    """A process group for each pair, which every rank makes; this rank's own, where it has one."""
    mine = None
    for pair in pairs:
        made = dist.new_group(list(pair))
        if place.rank in pair:
            mine = Group(scope="all", ranks=pair, num_nodes=place.num_nodes, pg=made)
    return mine
