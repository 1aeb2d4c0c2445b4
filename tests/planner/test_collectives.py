import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.hardware.collectives import (
    SECONDS,
    all_gather_s,
    all_reduce_s,
    bus_bytes_per_s,
    bus_factor,
    reduce_scatter_s,
    send_recv_s,
)
from planner.hardware.gpus import gpu
from planner.hardware.links import links, links_for, machine_columns, take_machines
from planner.types import Links, Shape

OPS = sorted(SECONDS)
INTRA = sorted(x.id for x in links() if x.scope == "intra" and x.id != "none")
INTER = sorted(x.id for x in links() if x.scope == "inter" and x.id != "one-node")
sizes = st.floats(1.0, 1e12)


def machine(intra="nvlink4-nvswitch", inter="ib-ndr", gbit=None, per_node=8, nodes=2, name="H100-SXM5-80GB"):
    between = Links(intra=intra, inter=inter, inter_gbit_per_s=gbit)
    return machine_columns(
        [Shape(gpu=name, gpus_per_node=per_node, num_nodes=nodes, links=between)], ["fp32"]
    )


def seconds(op, bytes_, ranks, per_node, on):
    return float(SECONDS[op](np.float64(bytes_), np.float64(ranks), np.float64(per_node), on))


@pytest.mark.parametrize("op", OPS)
def test_a_group_of_one_rank_takes_no_time(op):
    assert seconds(op, 1e9, 1, 1, machine()) == 0.0


@settings(deadline=None)
@given(
    st.sampled_from(OPS), sizes, sizes, st.sampled_from(INTRA), st.sampled_from(INTER), st.integers(1, 512)
)
def test_more_bytes_are_never_faster(op, one, other, intra, inter, nodes):
    on = machine(intra, inter)
    few, many = sorted((one, other))
    assert 0 < seconds(op, few, 8 * nodes, 8, on) <= seconds(op, many, 8 * nodes, 8, on)


@settings(deadline=None)
@given(st.sampled_from(OPS), sizes, st.floats(1, 3200), st.floats(1, 3200), st.integers(2, 256))
def test_a_faster_network_is_never_slower(op, bytes_, one, other, nodes):
    slow, fast = sorted((one, other))
    at_slow = seconds(op, bytes_, 8 * nodes, 8, machine(gbit=slow))
    assert seconds(op, bytes_, 8 * nodes, 8, machine(gbit=fast)) <= at_slow * (1 + 1e-12)


@settings(deadline=None)
@given(st.sampled_from(OPS), sizes, st.sampled_from([2, 4, 8]))
def test_newer_nvlink_is_never_slower_on_large_buffers(op, bytes_, ranks):
    large = max(bytes_, 1e8)
    order = ["pcie4-host", "nvlink3-nvswitch", "nvlink4-nvswitch", "nvlink5-nvswitch"]
    times = [seconds(op, large, ranks, ranks, machine(each, "one-node", nodes=1)) for each in order]
    assert times == sorted(times, reverse=True)


@settings(deadline=None)
@given(sizes, st.sampled_from(INTRA), st.sampled_from(INTER), st.integers(2, 64))
def test_the_slowest_link_rules(bytes_, intra, inter, nodes):
    """Whatever the algorithm, (nodes - 1) / nodes of the buffer leaves a node, and it takes its time."""
    on = machine(intra, inter)
    out = bytes_ * (nodes - 1) / nodes / float(on.links.net_bytes_per_s_per_node)
    if float(on.links.domain_nodes) == 1:
        assert seconds("all_reduce", bytes_, 8 * nodes, 8, on) >= out
        assert seconds("all_gather", bytes_, 8 * nodes, 8, on) >= out
        assert seconds("reduce_scatter", bytes_, 8 * nodes, 8, on) >= out


@settings(deadline=None)
@given(st.floats(1e8, 1e12), st.sampled_from(INTRA), st.integers(2, 8))
def test_all_reduce_is_about_a_reduce_scatter_and_an_all_gather(bytes_, intra, ranks):
    on = machine(intra, "one-node", nodes=1)
    args = (np.float64(bytes_), np.float64(ranks), np.float64(ranks), on)
    halves = float(reduce_scatter_s(*args) + all_gather_s(*args))
    assert 0.45 * halves < float(all_reduce_s(*args)) < 1.2 * halves


@settings(deadline=None)
@given(st.sampled_from(OPS), sizes, st.integers(1, 9), st.sampled_from(INTRA), st.sampled_from(INTER))
def test_times_are_finite_for_thousands_of_ranks(op, bytes_, power, intra, inter):
    time = seconds(op, bytes_, 8 * 2**power, 8, machine(intra, inter))
    assert np.isfinite(time)
    assert time > 0


def test_in_switch_reduction_beats_the_ring_over_eight_gpus():
    time = seconds("all_reduce", 8 * 2**30, 8, 8, machine("nvlink4-nvswitch", "one-node", nodes=1))
    bus = bus_bytes_per_s("all_reduce", np.float64(8 * 2**30), np.float64(time), np.float64(8.0))
    assert bus > 450e9


def test_bridge_pairs_are_cut_by_pcie_where_a_group_is_wider():
    on = machine("nvlink3-pair-pcie4", "one-node", per_node=4, nodes=1, name="A100-PCIE-80GB")
    pair, four = (seconds("all_reduce", 1e9, n, n, on) for n in (2, 4))
    assert four > 6 * pair


def test_two_gpus_of_a_full_mesh_have_one_link_only():
    on = machine("xgmi-mi300", "one-node", nodes=1, name="MI300X")
    two, eight = (
        float(bus_bytes_per_s("all_reduce", 4.3e9, seconds("all_reduce", 4.3e9, n, n, on), np.float64(n)))
        for n in (2, 8)
    )
    assert eight / two == pytest.approx(7, rel=0.1)


def test_trays_of_a_rack_reach_each_other_over_nvlink():
    rack = machine("nvlink5-nvl72", "ib-ndr", 1600.0, per_node=4, nodes=18, name="GB200-186GB")
    apart = machine("nvlink5-nvswitch", "ib-ndr", 1600.0, per_node=4, nodes=18, name="B200-SXM-180GB")
    assert seconds("all_reduce", 1e9, 72, 4, rack) < 0.5 * seconds("all_reduce", 1e9, 72, 4, apart)


def test_groups_of_a_node_share_its_network():
    """Tensor parallel over 8 makes 8 data-parallel groups per node: each gets an eighth of the network."""
    on = machine(gbit=800.0, nodes=16)
    whole, eighth = seconds("all_gather", 1e11, 128, 8, on), seconds("all_gather", 1e11, 16, 1, on)
    assert eighth == pytest.approx(8 * whole, rel=0.1)


def test_one_group_on_omni_path_gets_less_than_groups_that_talk_at_the_same_time():
    on = machine("nvlink3-nvswitch", "omni-path", 400, nodes=4)
    whole = seconds("all_reduce", 2**32, 32, 8, on)
    each_of_eight = seconds("all_reduce", 2**32 / 8, 4, 1, on)
    assert whole > 3 * each_of_eight


def test_a_hop_between_nodes_rules_a_pipeline():
    on = machine()
    inside = float(send_recv_s(np.float64(1e8), np.float64(2.0), np.float64(2.0), on))
    assert float(send_recv_s(np.float64(1e8), np.float64(2.0), np.float64(1.0), on)) > 3 * inside


def test_columns_and_single_runs_agree():
    cards = [("H100-SXM5-80GB", 8), ("RTX 4090", 4), ("A100-SXM4-80GB", 8)]
    shapes = [
        Shape(
            gpu=name,
            gpus_per_node=n,
            num_nodes=2,
            links=links_for(gpu(name), n, "RoCE 4x100 Gb/s", num_nodes=2),
        )
        for name, n in cards
    ]
    together = machine_columns(shapes, ["fp32"] * 3)
    n = together.gpus_per_node
    for op in OPS:
        columns = SECONDS[op](np.float64(1e8), 2 * n, n, together)
        for i, each in enumerate(shapes):
            assert columns[i] == seconds(
                op, 1e8, 2 * each.gpus_per_node, each.gpus_per_node, machine_columns([each], ["fp32"])
            )


def test_bus_factors_are_those_of_nccl_tests():
    ranks = np.float64(8.0)
    assert bus_factor("all_reduce", ranks) == 1.75
    for op in ("all_gather", "reduce_scatter", "all_to_all", "scatter", "gather"):
        assert bus_factor(op, ranks) == 0.875
    assert bus_factor("broadcast", ranks) == bus_factor("send_recv", ranks) == 1.0


def test_a_call_takes_few_array_operations():
    """The search calls these for every layout: 4,096 rows must stay far below a microsecond each."""
    import time

    rows = take_machines(machine(), np.zeros(4096, dtype=np.int64))
    bytes_, ranks, per_node = np.full(4096, 1e8), np.full(4096, 16.0), np.full(4096, 8.0)
    all_reduce_s(bytes_, ranks, per_node, rows)
    start = time.perf_counter()
    all_reduce_s(bytes_, ranks, per_node, rows)
    assert time.perf_counter() - start < 0.05
