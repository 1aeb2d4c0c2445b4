"""Seconds of collectives over groups of GPUs, as columns.

Time = fixed cost + (sqrt(wire time) + sqrt(latency))^2. Wire time is bytes on the slowest link over the rate
that it reaches; latency is steps times time of a step. The square is what a pipeline takes whose chunks have
the best size: p steps of latency a, W seconds of wire, k chunks take (k + p)(a + W / k), least at
W + pa + 2 sqrt(W pa). Rates and latencies: ``data/links.csv``; errors: ``tests/accuracy/NOTES.md``.

Bytes follow nccl-tests (doc/PERFORMANCE.md): the full buffer of the operation (all-gather: the gathered one,
reduce-scatter: the one to reduce). Groups are laid out alike on each node, and all groups of a node talk at
the same time: a group of k of the node's g GPUs gets k / g of the node's network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LinkColumns, MachineColumns

NVLS_MIN_RANKS = 5  # NCCL picks in-network reduction over the ring from here on (stas00/ml-engineering, H200)
ALL_TO_ALL_SHARE = 0.95  # of ring bus bandwidth between nodes (crazyguitar/aws-gpu-communication-benchmark)
PEER_S = 0.3e-6  # assumed cost of one more peer in all-to-all, scatter and gather


@dataclass(frozen=True, slots=True)
class _Group:
    """Where the ranks of a group sit: ``inside`` in one NVLink domain or node, on ``nodes`` of these."""

    ranks: Array
    inside: Array
    nodes: Array
    net_bytes_per_s: Array  # share of the network that one domain's part of the group gets


def _group(ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> _Group:
    """Place a group: nodes of one NVLink domain (NVL72) count as one node."""
    k = machine.links
    inside = np.minimum(ranks, ranks_per_node * k.domain_nodes)
    share = np.minimum(1.0, inside / (machine.gpus_per_node * k.domain_nodes))
    net = np.minimum(k.net_bytes_per_s_per_node * k.domain_nodes * share, k.group_net_bytes_per_s)
    return _Group(np.asarray(ranks), inside, ranks / inside, net)


def _inside_rate(inside: Array, k: LinkColumns, loss: float = 1.0) -> Array:
    """Bus bandwidth of ``inside`` ranks of one node, bytes/s: bridges end, meshes grow, few ranks lose."""
    wide = np.where(inside > k.span_ranks, k.beyond_bytes_per_s, k.ring_bytes_per_s)
    mesh = np.clip((inside - 1.0) / np.maximum(k.mesh_ranks - 1.0, 1.0), k.pair_share, 1.0)
    few = 1.0 - loss * k.few_ranks_loss * 4.0 / np.maximum(inside, 2.0) ** 2
    rate: Array = wide * np.where(k.mesh_ranks > 0, mesh, 1.0) * few
    return rate


def _total(group: _Group, k: LinkColumns, wire_s: Array, latency_s: Array) -> Array:
    """Seconds of a pipeline, see the module, and the fixed cost; a group of one rank takes no time."""
    base = np.where(group.nodes > 1, k.net_base_s, k.base_s)
    time = base + latency_s + wire_s + 2.0 * np.sqrt(wire_s * latency_s)
    return np.where(group.ranks > 1, time, 0.0)


def _inside_wire(bytes_: Array, group: _Group, rate: Array) -> Array:
    """Wire seconds inside a node, 0 where a node holds one rank only."""
    return np.where(group.inside > 1, bytes_ / rate, 0.0)


def _ring_latency(group: _Group, k: LinkColumns) -> Array:
    """Latency of one pass of a ring: steps inside a node, then from node to node."""
    return (group.inside - 1.0) * k.step_s + (group.nodes - 1.0) * k.net_step_s


def all_reduce_s(bytes_: Array, ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> Array:
    """Seconds of AllReduce: ring or in-switch reduction in a node, tree (2 nodes) or ring between nodes."""
    k, group = machine.links, _group(ranks, ranks_per_node, machine)
    ring_bytes = 2.0 * bytes_ * (group.ranks - 1.0) / group.ranks
    wire = _inside_wire(ring_bytes, group, _inside_rate(group.inside, k, 0.5))
    in_switch = (k.in_network_bytes_per_s > 0) & (group.inside >= NVLS_MIN_RANKS)
    switch_wire = bytes_ / np.where(in_switch, k.in_network_bytes_per_s, np.inf)
    wire = np.where(in_switch, np.minimum(wire, switch_wire), wire)
    crossing = np.where(group.nodes > 2, ring_bytes, bytes_)
    wire = np.where(group.nodes > 1, np.maximum(wire, crossing / group.net_bytes_per_s), wire)
    tree = 2.0 * np.log2(group.nodes) * k.net_tree_s
    between = np.minimum(tree, 2.0 * (group.nodes - 1.0) * np.maximum(k.net_step_s, k.net_tree_s))
    return _total(group, k, wire, 2.0 * (group.inside - 1.0) * k.step_s + between)


def _half_ring_s(bytes_: Array, ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> Array:
    """Seconds of one pass around a ring: AllGather and ReduceScatter."""
    k, group = machine.links, _group(ranks, ranks_per_node, machine)
    ring_bytes = bytes_ * (group.ranks - 1.0) / group.ranks
    wire = _inside_wire(ring_bytes, group, _inside_rate(group.inside, k))
    wire = np.where(group.nodes > 1, np.maximum(wire, ring_bytes / group.net_bytes_per_s), wire)
    return _total(group, k, wire, _ring_latency(group, k))


def all_gather_s(bytes_: Array, ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> Array:
    """Seconds of AllGather; ``bytes_`` is the gathered buffer that every rank ends with."""
    return _half_ring_s(bytes_, ranks, ranks_per_node, machine)


def reduce_scatter_s(bytes_: Array, ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> Array:
    """Seconds of ReduceScatter; ``bytes_`` is the buffer that every rank starts with."""
    return _half_ring_s(bytes_, ranks, ranks_per_node, machine)


def broadcast_s(bytes_: Array, ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> Array:
    """Seconds of Broadcast of ``bytes_`` from one rank to all: a pipelined chain."""
    k, group = machine.links, _group(ranks, ranks_per_node, machine)
    wire = _inside_wire(np.asarray(bytes_), group, _inside_rate(group.inside, k))
    wire = np.where(group.nodes > 1, np.maximum(wire, bytes_ / group.net_bytes_per_s), wire)
    return _total(group, k, wire, _ring_latency(group, k))


def _spread_s(bytes_: Array, group: _Group, machine: MachineColumns) -> Array:
    """Seconds in which one rank exchanges ``bytes_`` / ranks with each other rank, over its own links."""
    k = machine.links
    per_rank = bytes_ / group.ranks
    inside_rate = _inside_rate(group.inside, k) * k.all_to_all_share
    wire = _inside_wire(per_rank * (group.inside - 1.0), group, inside_rate)
    net = group.net_bytes_per_s / group.inside * ALL_TO_ALL_SHARE
    wire = np.maximum(wire, np.maximum(group.ranks - group.inside, 0.0) * per_rank / net)
    peers = (group.ranks - 1.0) * PEER_S
    return _total(group, k, wire, k.step_s + peers + np.where(group.nodes > 1, k.net_tree_s, 0.0))


def all_to_all_s(bytes_: Array, ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> Array:
    """Seconds of All-to-all; ``bytes_`` is one rank's buffer, 1 / ranks of it for each other rank."""
    return _spread_s(bytes_, _group(ranks, ranks_per_node, machine), machine)


def scatter_s(bytes_: Array, ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> Array:
    """Seconds of Scatter; ``bytes_`` is the root's buffer. The root's own links rule."""
    return _spread_s(bytes_, _group(ranks, ranks_per_node, machine), machine)


def gather_s(bytes_: Array, ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> Array:
    """Seconds of Gather; ``bytes_`` is the root's buffer. The root's own links rule."""
    return _spread_s(bytes_, _group(ranks, ranks_per_node, machine), machine)


def send_recv_s(bytes_: Array, ranks: Array, ranks_per_node: Array, machine: MachineColumns) -> Array:
    """Seconds to send ``bytes_`` to the next rank of the group; the slowest hop (between nodes) rules.

    All GPUs of a node send at once, so that each gets its part of the node's network.
    """
    k, group = machine.links, _group(ranks, ranks_per_node, machine)
    inside = bytes_ / _inside_rate(np.minimum(group.inside, 2.0), k, 0.0)
    crosses = group.nodes > 1
    wire = np.where(crosses, bytes_ / (group.net_bytes_per_s / group.inside), inside)
    return _total(group, k, wire, k.step_s + np.where(crosses, k.net_tree_s, 0.0))


# ------------------------------------------------------------------------------- bus bandwidth

_BUS_FACTOR_OF_TWO_PASSES = ("all_reduce",)
_BUS_FACTOR_OF_ONE_PASS = ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather")


def bus_factor(op: str, ranks: Array) -> Array:
    """Factor from algorithm to bus bandwidth (nccl-tests doc/PERFORMANCE.md); 1 for broadcast and send."""
    one_pass = (ranks - 1.0) / ranks
    if op in _BUS_FACTOR_OF_TWO_PASSES:
        return 2.0 * one_pass
    return one_pass if op in _BUS_FACTOR_OF_ONE_PASS else np.ones_like(one_pass)


def bus_bytes_per_s(op: str, bytes_: Array, seconds: Array, ranks: Array) -> Array:
    """Bus bandwidth of a timed collective, bytes/s, as nccl-tests prints it."""
    return bytes_ / seconds * bus_factor(op, ranks)


SECONDS = {
    "all_reduce": all_reduce_s,
    "all_gather": all_gather_s,
    "reduce_scatter": reduce_scatter_s,
    "broadcast": broadcast_s,
    "all_to_all": all_to_all_s,
    "scatter": scatter_s,
    "gather": gather_s,
    "send_recv": send_recv_s,
}
