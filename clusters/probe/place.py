"""Where each rank sits: which node, which of its ranks; and what ranks tell each other of themselves."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One rank among all. ``node_of_rank[r]``, ``host_of_rank[r]``: number and name of rank ``r``'s node."""

    rank: int
    device: torch.device
    node_of_rank: tuple[int, ...]
    host_of_rank: tuple[str, ...]

    @property
    def num_ranks(self) -> int:
        """Ranks of the whole job."""
        return len(self.node_of_rank)

    @property
    def num_nodes(self) -> int:
        """Nodes that ranks run on."""
        return len(set(self.node_of_rank))

    @property
    def node(self) -> int:
        """Node of this rank."""
        return self.node_of_rank[self.rank]

    @property
    def host(self) -> str:
        """Name of this rank's node."""
        return self.host_of_rank[self.rank]

    @property
    def local_rank(self) -> int:
        """Place of this rank among the ranks of its node."""
        return self.ranks_of(self.node).index(self.rank)

    @property
    def first_ranks(self) -> tuple[int, ...]:
        """The first rank of each node, in order of the nodes."""
        return tuple(self.ranks_of(node)[0] for node in sorted(set(self.node_of_rank)))

    def ranks_of(self, node: int) -> tuple[int, ...]:
        """Ranks on ``node``, in order."""
        return tuple(r for r, each in enumerate(self.node_of_rank) if each == node)


def find_place(node: int, host: str, device: torch.device) -> Place:
    """Exchange where every rank sits; all ranks of the default group call this together.

    ``node``: number of this rank's node (Ray Train's node rank); ``host``: its name for people.
    """
    told: list[tuple[int, str]] = [(node, host)] * dist.get_world_size()
    dist.all_gather_object(told, (node, host))
    return Place(
        rank=dist.get_rank(),
        device=device,
        node_of_rank=tuple(each for each, _ in told),
        host_of_rank=tuple(name for _, name in told),
    )


def share(values: list[float], place: Place) -> list[list[float]]:
    """Values of every rank, by rank; all ranks call this together with lists of one length."""
    mine = torch.tensor(values, dtype=torch.float64, device=place.device)
    found = [torch.empty_like(mine) for _ in range(place.num_ranks)]
    dist.all_gather(found, mine)
    return [row.tolist() for row in found]


def settle(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
