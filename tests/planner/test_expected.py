"""What a timed collective should reach, what its wire allows, and which rank is slow."""

import math

import numpy as np
import pytest

from planner.hardware.collectives import SECONDS, bus_bytes_per_s
from planner.hardware.expected import expected_busbw_bytes_per_s, slow_ranks, wire_busbw_bytes_per_s
from planner.hardware.links import links, machine_columns
from planner.probed import PairTiming
from planner.types import Links, Shape

OPS = sorted(SECONDS)
GIB = 2**30
GBIT_1 = Links(intra="none", inter="ethernet", inter_gbit_per_s=1.0)
P5 = Links(intra="nvlink4-nvswitch", inter="efa-v2")
INTRA = sorted(x.id for x in links() if x.scope == "intra" and x.id != "none" and "unknown" not in x.id)
INTER = sorted(x.id for x in links() if x.scope == "inter" and x.id != "one-node" and "unknown" not in x.id)


@pytest.mark.parametrize("op", OPS)
def test_the_expectation_is_the_one_that_step_times_rest_on(op):
    machine = machine_columns([Shape(gpu="H100-SXM5-80GB", gpus_per_node=8, num_nodes=2, links=P5)], ["bf16"])
    size, ranks, inside = np.asarray(1e9), np.asarray(16.0), np.asarray(8.0)
    seconds = SECONDS[op](size, ranks, inside, machine)
    assert expected_busbw_bytes_per_s(op, 1e9, 16, 8, P5, 8) == pytest.approx(
        float(bus_bytes_per_s(op, size, seconds, ranks))
    )


@pytest.mark.parametrize("nodes", [2, 4, 16])
@pytest.mark.parametrize("inter", INTER)
@pytest.mark.parametrize("op", OPS)
def test_between_nodes_nothing_is_expected_beyond_the_wire(op, inter, nodes):
    for per_node in (1, 8):
        found = Links(intra="nvlink4-nvswitch", inter=inter)
        expected = expected_busbw_bytes_per_s(op, GIB, nodes * per_node, per_node, found, 8)
        limit = wire_busbw_bytes_per_s(op, nodes * per_node, per_node, found)
        assert expected is not None
        assert limit is not None
        assert 0 < expected <= limit


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("intra", INTRA)
@pytest.mark.parametrize("op", OPS)
def test_inside_a_node_nothing_is_expected_beyond_the_wire(op, intra, ranks):
    found = Links(intra=intra, inter="one-node")
    expected = expected_busbw_bytes_per_s(op, GIB, ranks, ranks, found, 8)
    limit = wire_busbw_bytes_per_s(op, ranks, ranks, found)
    assert expected is not None
    assert limit is not None
    assert 0 < expected <= limit


def test_two_nodes_of_eight_gpus_may_reduce_beyond_the_rate_of_their_adapters():
    # 50 GB/s a node on p4d; published 77.9 GB/s over 2 nodes (skypilot-org/skypilot examples/aws_efa)
    p4d = Links(intra="nvlink3-nvswitch", inter="efa-v1")
    assert wire_busbw_bytes_per_s("all_reduce", 16, 8, p4d) == pytest.approx(93.75e9)
    assert wire_busbw_bytes_per_s("broadcast", 16, 8, p4d) == pytest.approx(50e9)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("hosts", [2, 3])
def test_hosts_on_ethernet_of_a_stated_speed_have_an_expectation(op, hosts):
    expected = expected_busbw_bytes_per_s(op, 64 * 2**20, hosts, 1, GBIT_1, 1)
    assert expected is not None
    assert 0.5 * 0.125e9 < expected < 0.125e9
    at_ten = GBIT_1.model_copy(update={"inter_gbit_per_s": 10.0})
    faster = expected_busbw_bytes_per_s(op, 64 * 2**20, hosts, 1, at_ten, 1)
    assert faster is not None
    assert faster > 5 * expected


@pytest.mark.parametrize("hosts", [2, 3])
def test_the_wire_of_a_gigabit_carries_an_eighth_of_a_gigabyte(hosts):
    for op in ("all_reduce", "all_gather", "broadcast", "gather", "send_recv", "all_to_all"):
        assert wire_busbw_bytes_per_s(op, hosts, 1, GBIT_1) == pytest.approx(0.125e9)


def test_one_rank_of_each_node_has_a_shared_adapter_for_itself_but_only_its_part_of_many():
    shared = Links(intra="pcie4-p2p", inter="ethernet", inter_gbit_per_s=100.0)
    alone = expected_busbw_bytes_per_s("all_reduce", GIB, 4, 1, shared, 8)
    assert alone == pytest.approx(expected_busbw_bytes_per_s("all_reduce", GIB, 4, 1, shared, 1))
    one_of_eight = expected_busbw_bytes_per_s("all_reduce", GIB, 4, 1, P5, 8)
    assert one_of_eight is not None
    assert one_of_eight < 400e9 / 8


@pytest.mark.parametrize(
    ("found", "ranks", "per_node"),
    [
        (Links(intra="unknown-intra", inter="one-node"), 4, 4),
        (Links(intra="unknown-intra", inter="ethernet"), 8, 4),
        (Links(intra="pcie4-p2p", inter="one-node"), 8, 4),
        (Links(intra="none", inter="one-node"), 2, 2),
        (Links(intra="pcie4-p2p", inter="unknown-rdma"), 8, 4),
        (Links(intra="pcie4-p2p", inter="ethernet"), 1, 1),
    ],
)
def test_nothing_is_expected_of_a_link_that_nobody_stated(found, ranks, per_node):
    assert expected_busbw_bytes_per_s("all_reduce", GIB, ranks, per_node, found, 4) is None
    assert wire_busbw_bytes_per_s("all_reduce", ranks, per_node, found) is None


def test_an_unknown_link_inside_does_not_hide_what_is_known_between_nodes():
    found = Links(intra="unknown-intra", inter="ethernet", inter_gbit_per_s=25.0)
    assert expected_busbw_bytes_per_s("all_reduce", GIB, 2, 1, found, 4) is not None


def pair(a: int, b: int, rate: float) -> PairTiming:
    return PairTiming(rank_a=a, rank_b=b, bytes=2**24, busbw_bytes_per_s=rate)


def test_a_rank_that_is_slow_with_every_partner_is_named():
    found = [pair(0, 1, 100.0), pair(0, 2, 20.0), pair(1, 2, 20.0)]
    assert slow_ranks(found, {0: 0, 1: 1, 2: 2}) == (2,)


def test_nobody_is_named_where_all_are_alike_or_only_two_meet():
    assert slow_ranks([pair(0, 1, 100.0), pair(0, 2, 95.0), pair(1, 2, 90.0)], {0: 0, 1: 1, 2: 2}) == ()
    assert slow_ranks([pair(0, 1, 20.0)], {0: 0, 1: 1}) == ()
    assert slow_ranks([], {}) == ()


def test_one_slow_link_between_two_good_nodes_names_neither():
    rates = {(a, b): 100.0 for a in range(4) for b in range(a + 1, 4)} | {(0, 1): 10.0}
    assert slow_ranks([pair(a, b, r) for (a, b), r in rates.items()], {r: r for r in range(4)}) == ()


def test_slow_links_between_nodes_do_not_hide_a_slow_rank_inside():
    nodes = {r: r // 3 for r in range(6)}
    between = [pair(0, 3, 1.0)]
    fast = [pair(0, 1, 100.0), pair(3, 4, 100.0), pair(3, 5, 100.0), pair(4, 5, 100.0)]
    assert slow_ranks([*between, *fast, pair(0, 2, 30.0), pair(1, 2, 30.0)], nodes) == (2,)


def test_every_expectation_is_a_number():
    assert all(math.isfinite(expected_busbw_bytes_per_s(op, 1024, 2, 1, GBIT_1, 1) or math.nan) for op in OPS)
