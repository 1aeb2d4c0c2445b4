"""Process groups over which collectives are timed: all ranks, those of a node, one of each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from ..place import Place

Scope = Literal["node", "between-nodes", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks that take part together. ``pg`` is ``None`` on a rank that is not among ``ranks``."""

    scope: Scope
    ranks: tuple[int, ...]
    num_nodes: int
    pg: ProcessGroup | None

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)


def make_groups(place: Place) -> tuple[Group, ...]:
    """Build the groups that differ from each other: all ranks, and apart from them node and between nodes.

    Ranks of each node form a group of their own, and these run side by side; ``ranks`` are those of this
    rank's node. All ranks call this together. One rank alone has no groups.
    """
    if place.num_ranks == 1:
        return ()
    everyone = tuple(range(place.num_ranks))
    groups = [Group(scope="all", ranks=everyone, num_nodes=place.num_nodes, pg=dist.group.WORLD)]
    if 1 < place.num_nodes < place.num_ranks:
        groups += [_node_group(place), _between(place)]
    return tuple(groups)


def _node_group(place: Place) -> Group:
    """Ranks of this rank's node; every rank makes the groups of all nodes, as torch asks."""
    mine: ProcessGroup | None = None
    for node in sorted(set(place.node_of_rank)):
        ranks = place.ranks_of(node)
        made = dist.new_group(list(ranks))
        if node == place.node and len(ranks) > 1:
            mine = made
    return Group(scope="node", ranks=place.ranks_of(place.node), num_nodes=1, pg=mine)


def _between(place: Place) -> Group:
    """Join the first rank of each node."""
    ranks = place.first_ranks
    made = dist.new_group(list(ranks))
    pg = made if place.rank in ranks else None
    return Group(scope="between-nodes", ranks=ranks, num_nodes=place.num_nodes, pg=pg)


def close_groups(groups: tuple[Group, ...], device: torch.device) -> None:
    """Give back what the groups took, buffers on the GPU above all: memory is measured after this."""
    for group in groups:
        if group.pg is not None and group.pg is not dist.group.WORLD:
            dist.destroy_process_group(group.pg)
    if device.type == "cuda":
        torch.cuda.empty_cache()


def wait_for_all(pg: ProcessGroup, device: torch.device) -> None:
    """Let all ranks of a group pass at about the same time."""
    dist.barrier(group=pg, device_ids=[device.index or 0] if device.type == "cuda" else None)
