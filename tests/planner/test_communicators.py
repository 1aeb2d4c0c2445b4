"""What communicators hold: figures of those who measured them."""

import pytest

from planner.hardware.links import machine_columns
from planner.layouts import layout_columns
from planner.memory.communicators import communicator_bytes
from planner.training.numerics import training_columns
from planner.types import Layout, Links, Shape, TrainingSpec

MIB = 2**20


def held(
    gpu: str, intra: str, *, gpus: int = 8, nodes: int = 1, framework: str = "plan", **degrees: int
) -> float:
    split = degrees.get("tp", 1) * degrees.get("pp", 1) * degrees.get("cp", 1)
    layout = Layout.model_validate({**degrees, "dp": gpus // split})
    between = "one-node" if nodes == 1 else "ib-hdr"
    shape = Shape(
        gpu=gpu, gpus_per_node=gpus // nodes, num_nodes=nodes, links=Links(intra=intra, inter=between)
    )
    training = TrainingSpec(seq_len=2048, framework=framework)
    return float(
        communicator_bytes(
            training_columns([training]), layout_columns([layout]), machine_columns([shape], ["bf16"])
        )
    )


def test_one_gpu_talks_to_nobody():
    assert held("A100-SXM4-80GB", "none", gpus=1) == 0


def test_two_ranks_hold_less_than_four():
    assert held("A100-SXM4-80GB", "nvlink3-nvswitch", gpus=2) == pytest.approx(544 * MIB)
    assert held("A100-SXM4-80GB", "nvlink3-nvswitch", gpus=4) == pytest.approx(688 * MIB)


def test_slow_links_have_few_channels():
    assert held("RTX 4090", "pcie4-host") < 0.15 * held("A100-SXM4-80GB", "nvlink3-nvswitch")


def test_every_axis_has_a_communicator():
    plain = held("A100-SXM4-80GB", "nvlink3-nvswitch")
    assert held("A100-SXM4-80GB", "nvlink3-nvswitch", tp=4) > 1.7 * plain


def test_all_to_all_of_experts_holds_buffers_for_every_peer():
    more = held("H100-SXM5-80GB", "nvlink4-nvswitch", ep=8) - held("H100-SXM5-80GB", "nvlink4-nvswitch")
    of_group = 688 * MIB + 8 * 32 * MIB
    assert more - of_group == pytest.approx(3.28e9, rel=0.01)


def test_reduction_in_the_switch_took_more_until_its_buffers_shrank():
    gone = held("A100-SXM4-80GB", "nvlink3-nvswitch", framework="Lightning 2024")
    early = held("H100-SXM5-80GB", "nvlink4-nvswitch", framework="Lightning 2024")
    late = held("H100-SXM5-80GB", "nvlink4-nvswitch", framework="Lightning 2026")
    assert early - gone == pytest.approx(1610612736)  # nvlsTotalSize in the log of NCCL over 8 GPUs
    assert late - gone == pytest.approx(268435456)


def test_frameworks_open_groups_of_their_own():
    plain = held("A100-SXM4-80GB", "nvlink3-nvswitch", tp=2)
    assert held("A100-SXM4-80GB", "nvlink3-nvswitch", framework="DeepSpeed 2024", tp=2) > plain
    assert held("A100-SXM4-80GB", "nvlink3-nvswitch", framework="Megatron-LM 2024", tp=2) > held(
        "A100-SXM4-80GB", "nvlink3-nvswitch", framework="DeepSpeed 2024", tp=2
    )
