import csv
import re
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import UserError
from planner.hardware.gpus import (
    flops_per_s,
    gpu,
    gpu_index,
    gpus,
    match,
    matching_ids,
    supported_precisions,
    supports,
)
from planner.types import Gpu

# Names that published training runs use for their GPUs, and the GPU that each means.
NAMES_IN_RUNS = {
    "A10-24GB": "A10",
    "A100-PCIE-40GB": "A100-PCIE-40GB",
    "A100-PCIE-80GB": "A100-PCIE-80GB",
    "A100-SXM-40GB": "A100-SXM4-40GB",
    "A100-SXM-80GB": "A100-SXM4-80GB",
    "A10G-24GB": "A10G",
    "A40-48GB": "A40",
    "A4000-16GB": "RTX A4000",
    "A4500-20GB": "RTX A4500",
    "A5000-24GB": "RTX A5000",
    "A6000-48GB": "RTX A6000",
    "A800-SXM-80GB": "A800-SXM4-80GB",
    "B200-SXM-192GB": "B200-SXM-180GB",
    "B300-SXM-288GB": "B300-SXM-288GB",
    "GB200-NVL72-192GB": "GB200-186GB",
    "GB200-SXM-192GB": "GB200-186GB",
    "GB300-NVL72-288GB": "GB300-288GB",
    "H100-PCIE-80GB": "H100-PCIE-80GB",
    "H100-SXM-80GB": "H100-SXM5-80GB",
    "H100-SXM-96GB": "H100-SXM5-96GB",
    "H200-SXM-141GB": "H200-SXM-141GB",
    "K80-12GB": "K80-12GB",
    "L4-24GB": "L4",
    "L40S-48GB": "L40S",
    "MI300X-192GB": "MI300X",
    "RTX-3070-8GB": "RTX 3070",
    "RTX-3080-10GB": "RTX 3080",
    "RTX-3090-24GB": "RTX 3090",
    "RTX-4090-24GB": "RTX 4090",
    "RTX-5000-Turing-16GB": "Quadro RTX 5000",
    "RTX-5090-32GB": "RTX 5090",
    "RTX-6000-Ada-48GB": "RTX 6000 Ada",
    "RTX-6000-Turing-24GB": "Quadro RTX 6000",
    "RTX-8000-48GB": "Quadro RTX 8000",
    "RTX-A5000-24GB": "RTX A5000",
    "RTX-PRO-6000-Blackwell-96GB": "RTX PRO 6000 Blackwell WS",
    "T4-16GB": "T4",
    "TITAN-RTX-24GB": "TITAN RTX",
    "V100-SXM-16GB": "V100-SXM2-16GB",
    "V100-SXM-32GB": "V100-SXM2-32GB",
}
# Names that drivers and clouds print.
NAMES_OF_VENDORS = {
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA H100 80GB HBM3": "H100-SXM5-80GB",
    "NVIDIA A100-SXM4-80GB": "A100-SXM4-80GB",
    "Tesla T4": "T4",
    "nvidia-h100-80gb": "H100-SXM5-80GB",
    "nvidia-tesla-a100": "A100-SXM4-40GB",
    "AMD Instinct MI300X OAM": "MI300X",
    "NVIDIA H200": "H200-SXM-141GB",
    "rtx4090": "RTX 4090",
    "RTX_4090": "RTX 4090",
}


def rows() -> list[dict[str, str]]:
    text = files("planner").joinpath("data/gpus.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("row", rows(), ids=lambda r: r["id"])
def test_every_row_is_a_valid_record_with_source_date_and_crosscheck(row):
    card = gpu(row["id"])
    Gpu.model_validate(card.model_dump())
    assert row["source"]
    assert row["crosscheck"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["source_date"])
    assert row["usable_memory_basis"] in ("reported", "estimated")


@pytest.mark.parametrize("card", gpus(), ids=lambda g: g.id)
def test_figures_are_positive_and_in_the_order_of_the_hardware(card):
    assert 0 < card.usable_memory_bytes <= card.marketing_memory_gb * 2**30
    assert card.usable_memory_bytes > 0.85 * card.marketing_memory_gb * 1e9
    assert 100e9 < card.memory_bandwidth_bytes_per_s < 10e12
    ladder = [card.fp32_flops_per_s, card.tf32_flops_per_s, card.bf16_flops_per_s, card.fp8_flops_per_s]
    known = [f for f in ladder if f is not None]
    assert known == sorted(known)
    assert known[0] > 1e12
    assert card.tdp_w > 0


@pytest.mark.parametrize("card", gpus(), ids=lambda g: g.id)
def test_flops_are_dense_and_not_with_sparsity(card):
    """Tensor cores give FP16 at 2 to 16 times the FP32 rate of the same die; sparsity would double that."""
    if card.bf16_flops_per_s is not None:
        assert 1.9 < card.bf16_flops_per_s / card.fp32_flops_per_s < 42
    if card.fp8_flops_per_s is not None:
        assert card.fp8_flops_per_s / card.bf16_flops_per_s == pytest.approx(2, rel=0.02)
    if card.tf32_flops_per_s is not None:
        assert card.bf16_flops_per_s / card.tf32_flops_per_s == pytest.approx(2, rel=0.03)


def test_dense_flops_of_well_known_gpus():
    assert gpu("H100-SXM5-80GB").bf16_flops_per_s == 989e12
    assert gpu("A100-SXM4-80GB").bf16_flops_per_s == 312e12
    assert gpu("RTX 4090").bf16_flops_per_s == pytest.approx(165.2e12)
    assert gpu("B200-SXM-180GB").bf16_flops_per_s == 2250e12
    assert gpu("V100-SXM2-32GB").fp16_flops_per_s == 125e12


@pytest.mark.parametrize(("name", "expected"), [*NAMES_IN_RUNS.items(), *NAMES_OF_VENDORS.items()])
def test_names_in_use_resolve(name, expected):
    assert gpu(name).id == expected


def test_every_id_resolves_to_itself_and_to_its_row():
    for index, card in enumerate(gpus()):
        assert gpu(card.id) is card
        assert match(card.id) == (card,)
        assert gpu_index(card.id) == index


@pytest.mark.parametrize("name", ["A100", "H100", "V100", "RTX 6000", "A100-80GB", "RTX PRO 6000"])
def test_an_ambiguous_name_is_refused_with_its_candidates(name):
    with pytest.raises(UserError, match="can mean several") as error:
        gpu(name)
    assert all(card.id in str(error.value) for card in match(name))
    assert len(match(name)) > 1


def test_match_finds_all_variants_of_a_family():
    a100 = {"A100-PCIE-40GB", "A100-PCIE-80GB", "A100-SXM4-40GB", "A100-SXM4-80GB"}
    assert matching_ids(["A100"]) == a100
    assert {c.id for c in match("A100 80GB")} == {"A100-PCIE-80GB", "A100-SXM4-80GB"}
    assert {c.id for c in match("H200")} == {"H200-SXM-141GB", "H200-NVL-141GB"}
    assert {c.id for c in match("RTX 4080")} == {"RTX 4080"}
    assert {c.id for c in match("L40")} == {"L40"}


def test_an_unknown_name_is_an_error_with_near_names():
    with pytest.raises(UserError, match=r"unknown GPU 'RTX 4091'.*did you mean.*4090"):
        gpu("RTX 4091")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tpu-v4", "XLA"),
        ("v5e-8", "XLA"),
        ("TPU v5p", "XLA"),
        ("trn1.32xlarge", "Neuron"),
        ("Trainium2", "Neuron"),
        ("inf2.48xlarge", "Neuron"),
        ("Gaudi2", "Gaudi"),
        ("HL-225", "Gaudi"),
        ("A100 MIG 1g.10gb", "MIG"),
        ("1g.5gb", "MIG"),
        ("M3 Max", "Apple"),
        ("cpu", "CPU"),
    ],
)
def test_what_is_not_a_gpu_we_plan_for_is_refused_by_name(name, reason):
    with pytest.raises(UserError, match=reason) as error:
        gpu(name)
    assert name in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize("name", ["", "unknown-a100", "unknown", "  "])
def test_a_name_that_says_nothing_is_refused(name):
    with pytest.raises(UserError, match="names no GPU"):
        gpu(name)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("V100-SXM2-32GB", {"tf32", "bf16", "bf16-pure", "fp8"}),
        ("T4", {"tf32", "bf16", "bf16-pure", "fp8"}),
        ("A100-SXM4-80GB", {"fp8"}),
        ("RTX 3090", {"fp8"}),
        ("RTX 4090", set()),
        ("L40S", set()),
        ("H100-SXM5-80GB", set()),
        ("MI300X", set()),
        ("MI250X", {"tf32", "fp8"}),
        ("K80-12GB", {"tf32", "bf16", "bf16-pure", "fp16", "fp8"}),
    ],
)
def test_precisions_that_a_gpu_lacks_are_refused_with_the_reason(name, lacks):
    card = gpu(name)
    everything = {"fp32", "tf32", "bf16", "bf16-pure", "fp16", "fp8"}
    assert everything - set(supported_precisions(card)) == lacks
    for precision in lacks:
        assert card.id in supports(card, precision)
        with pytest.raises(UserError, match=precision):
            flops_per_s(card, precision)


def test_precisions_follow_the_compute_capability():
    for card in gpus():
        if card.vendor != "nvidia":
            continue
        capability = float(card.compute_capability)
        assert (supports(card, "bf16") is None) == (capability >= 8.0), card.id
        assert (supports(card, "tf32") is None) == (capability >= 8.0), card.id
        assert (supports(card, "fp8") is None) == (capability >= 8.9), card.id


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_gpu_or_a_user_error(name):
    try:
        found = gpu(name)
    except UserError:
        return
    assert found in gpus()
