"""Bus bandwidth that a timed collective should reach, and what its wire can carry at most.

The expectation is the one that the planner's step times rest on (``collectives.SECONDS`` over the links of
``data/links.csv``), so that a probe that falls short of it says that the plan's communication is wrong. The
limit is physics: the fewest bytes that must leave or enter a node, over the wire's rate.
What nobody stated is ``None``, never assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from planner.columns import Array, MachineColumns
from planner.hardware.collectives import SECONDS, bus_bytes_per_s, bus_factor
from planner.hardware.links import GBIT, link, link_columns
from planner.probed import Collective, PairTiming
from planner.types import Links

SHARED_ADAPTER = ("ethernet", "internet", "efa")  # one adapter a node, which whoever talks has for itself
SLOW_SHARE = 0.7  # of what the other pairs reach: a rank below it with every partner is named slow


def expected_busbw_bytes_per_s(
    op: Collective, bytes_: float, ranks: int, ranks_per_node: int, found: Links, gpus_per_node: int
) -> float | None:
    """Bus bandwidth that ``op`` should reach, bytes/s, as nccl-tests counts it.

    ``ranks_per_node``: ranks of the group on each of its nodes (1 between nodes); ``gpus_per_node``: what the
    node has. ``None`` where a link that the group uses is not known, or for one rank.
    """
    if ranks < 2 or not _is_known(found, ranks, ranks_per_node):
        return None
    if found.inter in SHARED_ADAPTER and ranks > ranks_per_node:
        gpus_per_node = ranks_per_node
        if op == "send_recv":  # round the ring: one rank of a node talks to the next node
            ranks, ranks_per_node, gpus_per_node = ranks // ranks_per_node, 1, 1
    size, group, inside = (np.asarray(float(x)) for x in (bytes_, ranks, ranks_per_node))
    seconds = SECONDS[op](size, group, inside, _machine(found, gpus_per_node))
    return float(bus_bytes_per_s(op, size, seconds, group))


def wire_busbw_bytes_per_s(op: Collective, ranks: int, ranks_per_node: int, found: Links) -> float | None:
    """Most bus bandwidth that the wire allows, bytes/s: of one GPU inside a node, of one node between nodes.

    Rates are of one direction; both run at once. Between N nodes of an n-rank group at least 2(N-1)/N of the
    buffer leaves each node in AllReduce, (N-1)/N in AllGather, ReduceScatter, Scatter and Gather, all of it
    in Broadcast. ``None`` where the link is not known, or for one rank.
    """
    if ranks < 2 or not _is_known(found, ranks, ranks_per_node):
        return None
    nodes = ranks / ranks_per_node
    factor = float(bus_factor(op, np.asarray(float(ranks))))
    if nodes <= 1:
        inside = link(found.intra)
        in_switch = op == "all_reduce" and inside.in_network_bytes_per_s > 0
        return inside.wire_bytes_per_s * (factor if in_switch else 1.0)
    gbit = found.inter_gbit_per_s
    wire = link(found.inter).wire_bytes_per_s if gbit is None else gbit * GBIT
    least = {
        "all_reduce": 2.0 * (nodes - 1.0) / nodes,
        "broadcast": 1.0,
        "send_recv": 1.0,
        "all_to_all": ranks_per_node * (ranks - ranks_per_node) / ranks,
    }
    return wire * factor / least.get(op, (nodes - 1.0) / nodes)


def slow_ranks(pairs: Sequence[PairTiming], node_of_rank: Mapping[int, int]) -> tuple[int, ...]:
    """Ranks that are slow with every partner, slowest first: their host, adapter or slot is at fault.

    Pairs between nodes and pairs inside nodes are looked at apart. Empty where no rank stands out, as with
    two ranks only: there the pair is all that can be named.
    """
    crossing = [p for p in pairs if node_of_rank[p.rank_a] != node_of_rank[p.rank_b]]
    inside = [p for p in pairs if node_of_rank[p.rank_a] == node_of_rank[p.rank_b]]
    found = {**_shares(inside), **_shares(crossing)}
    return tuple(
        sorted((rank for rank, share in found.items() if share < SLOW_SHARE), key=lambda r: found[r])
    )


def _shares(pairs: Sequence[PairTiming]) -> dict[int, float]:
    """Best rate of each rank over the median of the pairs that it is not in."""
    shares = {}
    for rank in {r for p in pairs for r in (p.rank_a, p.rank_b)}:
        own = [p.busbw_bytes_per_s for p in pairs if rank in (p.rank_a, p.rank_b)]
        others = [p.busbw_bytes_per_s for p in pairs if rank not in (p.rank_a, p.rank_b)]
        if others:
            shares[rank] = max(own) / median(others)
    return shares


def _is_known(found: Links, ranks: int, ranks_per_node: int) -> bool:
    """Tell whether every link that the group uses was stated, or comes with the board."""
    used = [found.intra] if ranks_per_node > 1 else []
    used += [found.inter] if ranks > ranks_per_node else []
    return not any(name in ("none", "one-node") or name.startswith("unknown") for name in used)


def _machine(found: Links, gpus_per_node: int) -> MachineColumns:
    """Machine of which only links and GPUs per node are known: all that collectives read."""
    nothing: Array = np.asarray(float("nan"))
    return MachineColumns(
        usable_memory_bytes=nothing,
        memory_bandwidth_bytes_per_s=nothing,
        peak_flops_per_s=nothing,
        fp32_flops_per_s=nothing,
        gpus_per_node=np.asarray(float(gpus_per_node)),
        num_nodes=nothing,
        gpu_index=nothing,
        host_memory_bytes=nothing,
        pcie_bytes_per_s=nothing,
        links=link_columns([found], [gpus_per_node]),
    )
