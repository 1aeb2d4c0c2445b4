import csv
import re
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.columns import LinkColumns, MachineColumns
from planner.errors import UserError
from planner.hardware.gpus import gpu, gpus
from planner.hardware.link_names import stated_gbit_per_s
from planner.hardware.links import (
    is_slow,
    link,
    link_columns,
    links,
    links_for,
    machine_columns,
    pcie_bytes_per_s,
    take_machines,
    warnings_of,
)
from planner.types import Links, Shape


def rows() -> list[dict[str, str]]:
    text = files("planner").joinpath("data/links.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("row", rows(), ids=lambda r: r["id"])
def test_every_row_says_its_source_date_and_basis(row):
    assert row["source"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["source_date"])
    assert row["basis"] in ("measured", "derived", "assumed", "stated")
    assert row["scope"] in ("intra", "inter")


@pytest.mark.parametrize("each", links(), ids=lambda x: x.id)
def test_every_figure_is_positive_and_no_rate_exceeds_its_wire(each):
    assert each.wire_bytes_per_s > 0
    assert 0 < each.share <= 1
    assert each.step_s > 0
    assert each.base_s >= 0
    assert each.rate() <= each.wire_bytes_per_s
    assert -0.5 < each.few_ranks_loss < 0.8
    if each.scope == "inter":
        assert each.tree_s > 0 or each.id == "one-node"


def test_ids_are_unique():
    assert len({x.id for x in links()}) == len(links())


def test_assumed_links_are_named_as_such():
    for each in links():
        if each.id.startswith("unknown"):
            assert each.basis == "assumed"
            assert "assumed" in each.label


@pytest.mark.parametrize(
    ("name", "per_node", "nodes", "text", "intra", "inter", "gbit"),
    [
        ("H100-SXM5-80GB", 8, 2, "NVLink + EFA 3200 Gbps (p5.48xlarge)", "nvlink4-nvswitch", "efa-v2", 3200),
        ("H200-SXM-141GB", 8, 2, "NVLink4 + EFA 3200 Gbps (p5en)", "nvlink4-nvswitch", "efa-v3", 3200),
        ("B200-SXM-180GB", 8, 4, "NVLink5 + EFA v4 3200 Gbps (p6-b200)", "nvlink5-nvswitch", "efa-v4", 3200),
        ("A100-SXM4-80GB", 8, 2, "NVLink + EFA 400 Gbps (p4de.24xlarge)", "nvlink3-nvswitch", "efa-v1", 400),
        ("A100-SXM4-80GB", 8, 2, "NVLink + 4x200 Gb IB", "nvlink3-nvswitch", "ib-hdr", 800),
        ("A100-SXM4-80GB", 8, 8, "NVLink + 1600 Gbps node-node RoCE", "nvlink3-nvswitch", "roce", 1600),
        ("A100-SXM4-80GB", 8, 8, "NVLink + 4x OPA 100Gb", "nvlink3-nvswitch", "omni-path", 400),
        ("A100-SXM4-80GB", 8, 8, "NVLink + 4x Omni-Path 100 Gb/s", "nvlink3-nvswitch", "omni-path", 400),
        ("H100-SXM5-96GB", 8, 2, "NVLink + RDMA 400Gb/s per GPU", "nvlink4-nvswitch", "roce", 3200),
        ("H100-SXM5-80GB", 8, 2, "NVLink4 + IB 8x50 GB/s", "nvlink4-nvswitch", "ib-ndr", 3200),
        ("H100-SXM5-80GB", 8, 2, "DGX", "nvlink4-nvswitch", "ib-ndr", 3200),
        ("A100-SXM4-40GB", 8, 2, "DGX-A100 SuperPOD", "nvlink3-nvswitch", "ib-hdr", 1600),
        ("GB200-186GB", 4, 18, "DGX-GB200 (NVLink domain)", "nvlink5-nvl72", "ib-ndr", 1600),
        ("V100-SXM2-32GB", 4, 4, "NVLink (4 GPU) + Omni-Path 100 Gb/s", "nvlink2-mesh4", "omni-path", 100),
        ("V100-SXM2-32GB", 8, 4, "100 Gbps Ethernet TCP sockets", "nvlink2-mesh", "ethernet", 100),
        ("V100-SXM2-32GB", 16, 1, "DGX-2 NVSwitch", "nvlink2-nvswitch", "one-node", None),
        ("RTX 3090", 2, 1, "NVLink bridge (NV4)", "nvlink3-bridge-pcie4-host", "one-node", None),
        ("RTX 3090", 2, 1, "PCIe; NVLink bridge not stated", "pcie4-host", "one-node", None),
        ("RTX A6000", 2, 1, "PCIe; NVLink bridge not stated", "pcie4-p2p", "one-node", None),
        (
            "RTX 4090",
            8,
            1,
            "PCIe 4.0 x16, stock driver (no P2P, through host)",
            "pcie4-host",
            "one-node",
            None,
        ),
        ("RTX 4090", 8, 1, "PCIe 4.0 x16, patched driver (P2P on)", "pcie4-p2p", "one-node", None),
        ("A100-PCIE-80GB", 4, 1, "NVLink3 bridge pairs", "nvlink3-pair-pcie4", "one-node", None),
        ("H200-NVL-141GB", 4, 1, "NVLink bridge", "nvlink4-quad-pcie5", "one-node", None),
        ("RTX 3090", 8, 1, "PCIe 3.0 x16", "pcie3-host", "one-node", None),
        ("RTX A6000", 4, 1, "PCIe 4.0 x8", "pcie3-p2p", "one-node", None),
        ("MI250X", 8, 4, "Slingshot-11 4x200 Gb/s", "xgmi-mi250", "slingshot", 800),
        ("A100-SXM4-40GB", 4, 4, "4x HDR200 IB", "nvlink3-nvswitch", "ib-hdr", 800),
        ("H100-SXM5-80GB", 8, 2, "GCP a3-mega", "nvlink4-nvswitch", "tcpxo", None),
        ("RTX 4090", 8, 2, "25GbE", "pcie4-host", "ethernet", 25),
        ("MI300X", 8, 1, None, "xgmi-mi300", "one-node", None),
        ("H100-SXM5-80GB", 1, 1, None, "none", "one-node", None),
    ],
)
def test_links_are_read_from_what_people_write(name, per_node, nodes, text, intra, inter, gbit):
    found = links_for(gpu(name), per_node, text, num_nodes=nodes)
    assert (found.intra, found.inter, found.inter_gbit_per_s) == (intra, inter, gbit)
    assert warnings_of(found) == ()


@pytest.mark.parametrize(
    ("intra", "inter", "gbit", "expected"),
    [
        ("nvswitch", "EFAv2 x32", 3200.0, ("nvlink4-nvswitch", "efa-v2", 3200.0)),
        ("NVLink4 NVSwitch", "GPUDirect-TCPXO", 1800.0, ("nvlink4-nvswitch", "tcpxo", 1800.0)),
        ("none", "ethernet", 25.0, ("nvlink4-nvswitch", "ethernet", 25.0)),
        ("nvswitch", "IB NDR 8x400", None, ("nvlink4-nvswitch", "ib-ndr", 3200.0)),
        (
            "nvswitch",
            "private network of 100 Mbit/s between pods",
            None,
            ("nvlink4-nvswitch", "internet", None),
        ),
    ],
)
def test_links_are_read_from_catalog_columns(intra, inter, gbit, expected):
    found = links_for(
        gpu("H100-SXM5-80GB"), 8, intra_node=intra, inter_node_fabric=inter, network_gbit_per_s=gbit
    )
    assert (found.intra, found.inter, found.inter_gbit_per_s) == expected


@pytest.mark.parametrize("name", ["H100-SXM5-80GB", "A100-SXM4-80GB", "RTX A5000", "B200-SXM-180GB"])
def test_a_fabric_that_nobody_states_is_assumed_slow_and_said_so(name):
    card = gpu(name)
    unsaid = links_for(card, 8, None, num_nodes=4)
    stated = links_for(card, 8, "InfiniBand 8x400 Gb/s", num_nodes=4)
    assert unsaid.inter.startswith("unknown")
    assert warnings_of(unsaid)
    rate = link_columns([unsaid, stated], [8, 8]).net_bytes_per_s_per_node
    assert rate[0] < rate[1]


def test_a_card_in_a_slot_without_a_statement_goes_through_the_host():
    for name in ("RTX 4090", "RTX A6000", "L40S", "A10G"):
        assert links_for(gpu(name), 4).intra.endswith("-host")


def test_geforce_cards_have_no_peer_access_over_pcie():
    for card in gpus():
        if card.gpu_class == "consumer" and card.architecture in ("Ampere", "Ada", "Blackwell"):
            assert links_for(card, 2, "PCIe").intra.endswith("-host"), card.id


@pytest.mark.parametrize(
    ("text", "gbit"),
    [
        ("8x400 Gb/s", 3200),
        ("1600 Gbps", 1600),
        ("400Gb/s per GPU", 3200),
        ("8x50 GB/s", 3200),
        ("IB HDR 8x200", 1600),
        ("IB NDR 4x400", 1600),
        ("PCIe 4.0 x16 each, no NVLink", None),
        ("NVLink", None),
        ("4x100 Gb RoCE per node", 400),
        ("8x HDR 200Gb/s InfiniBand", 1600),
        ("4x NDR200", 800),
        ("dual-rail EDR", 200),
        ("4x Omni-Path", 400),
        ("3.2 Tbps RDMA", 3200),
        ("Slingshot-11 4x200 Gb/s", 800),
        ("PCIe Gen3 x16, 10GbE", 10),
        ("2x10GbE", 20),
    ],
)
def test_network_rates_are_read_in_bits(text, gbit):
    assert stated_gbit_per_s(text, 8) == gbit


def shape(name="H100-SXM5-80GB", per_node=8, nodes=2, host=None) -> Shape:
    found = links_for(gpu(name), per_node, "NVLink + 8x400 Gb/s RDMA", num_nodes=nodes)
    return Shape(gpu=name, gpus_per_node=per_node, num_nodes=nodes, links=found, host_memory_bytes=host)


def test_one_machine_gives_scalars_and_several_give_columns():
    one = machine_columns([shape()], ["bf16"])
    two = machine_columns([shape(), shape("A100-SXM4-80GB")], ["bf16", "fp32"])
    assert one.peak_flops_per_s.shape == one.links.step_s.shape == ()
    assert two.peak_flops_per_s.shape == two.links.step_s.shape == (2,)
    assert two.peak_flops_per_s.tolist() == [989e12, 19.5e12]
    assert np.isnan(one.host_memory_bytes)


def test_gathered_machines_repeat_rows():
    machines = machine_columns([shape(), shape("A100-SXM4-80GB", host=2**40)], ["bf16", "bf16"])
    taken = take_machines(machines, np.array([1, 0, 1]))
    assert isinstance(taken, MachineColumns)
    assert isinstance(taken.links, LinkColumns)
    assert taken.peak_flops_per_s.tolist() == [312e12, 989e12, 312e12]
    assert taken.links.ring_bytes_per_s.shape == (3,)
    assert taken.host_memory_bytes[0] == 2**40
    scalar = take_machines(machine_columns([shape()], ["bf16"]), np.array([0, 0]))
    assert scalar.peak_flops_per_s.tolist() == [989e12, 989e12]


def test_a_precision_that_the_gpu_lacks_is_refused():
    with pytest.raises(UserError, match="fp8"):
        machine_columns([shape("A100-SXM4-80GB")], ["fp8"])


def test_an_unknown_link_is_an_error_with_near_names():
    with pytest.raises(UserError, match=r"did you mean.*nvlink4"):
        link("nvlink4-nvswich")


def test_nvlink_is_fit_for_tensor_parallel_and_pcie_4_is_not():
    assert not is_slow(Links(intra="nvlink3-nvswitch", inter="one-node"), across_nodes=False)
    assert is_slow(Links(intra="pcie4-host", inter="one-node"), across_nodes=False)
    assert is_slow(Links(intra="nvlink4-nvswitch", inter="ib-ndr"), across_nodes=True)


def test_host_copies_follow_generation_and_lanes():
    assert pcie_bytes_per_s(gpu("RTX 4060 Ti 16GB")) < pcie_bytes_per_s(gpu("RTX 4090"))
    assert pcie_bytes_per_s(gpu("V100-PCIE-16GB")) < pcie_bytes_per_s(gpu("A100-PCIE-80GB"))
    assert pcie_bytes_per_s(gpu("H100-SXM5-80GB")) == pytest.approx(53e9, rel=0.05)


@settings(deadline=None)
@given(st.text(max_size=60), st.sampled_from([g.id for g in gpus()]), st.integers(1, 16), st.integers(1, 64))
def test_any_text_gives_links_of_the_table(text, name, per_node, nodes):
    found = links_for(gpu(name), per_node, text, num_nodes=nodes)
    assert link(found.intra).scope == "intra"
    assert link(found.inter).scope == "inter"
    rate = link_columns([found], [per_node]).net_bytes_per_s_per_node
    assert np.isfinite(rate)
    assert rate > 0
