"""Vendors' GPU strings."""

import csv
from importlib.resources import files

import pytest

from planner.hardware.gpus import gpus
from providers.names import gpu_id


@pytest.mark.parametrize(
    ("provider", "name", "gpu"),
    [
        ("runpod", "NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("runpod", "NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("runpod", "NVIDIA B300 SXM6 AC", "B300-SXM-288GB"),
        ("vast", "RTX 4070S Ti", "RTX 4070 Ti SUPER"),
        ("lambda", "gpu_8x_a100", "A100-SXM4-40GB"),
        ("lambda", "gpu_1x_a100", "A100-PCIE-40GB"),
        ("gcp", "H100 80GB Plus", "H100-SXM5-80GB"),
        ("anyone", "NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("anyone", "Tesla T4", "T4"),
    ],
)
def test_a_vendor_string_finds_its_gpu(provider: str, name: str, gpu: str):
    assert gpu_id(provider, name) == gpu


@pytest.mark.parametrize("name", ["A100", "H100", "NVIDIA", "", "TPU v5p", "Trainium2", "RTX 9090"])
def test_a_string_that_is_unknown_or_fits_several_gpus_is_not_guessed(name: str):
    assert gpu_id("aws", name) is None


def test_one_provider_may_say_what_another_may_not():
    assert gpu_id("lambda", "gpu_1x_a100") == "A100-PCIE-40GB"
    assert gpu_id("vast", "gpu_1x_a100") is None


def test_every_own_name_leads_to_a_gpu_of_the_table_and_has_a_source():
    text = files("providers").joinpath("data/names.csv").read_text(encoding="utf-8")
    ids = {g.id for g in gpus()}
    for row in csv.DictReader(text.splitlines()):
        assert row["gpu"] in ids
        assert row["source"]
