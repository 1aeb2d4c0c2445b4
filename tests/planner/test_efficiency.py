"""Efficiency curves against micro-benchmark rows that they were not fitted to."""

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import pytest

from planner.hardware import efficiency
from planner.hardware.efficiency import KERNELS, PRECISIONS, attention_curves, gemm_curves, gemm_s
from planner.hardware.gpus import gpu_index, gpus

DATA = Path(__file__).parent / "data"
PLANNER_DATA = Path(efficiency.__file__).parents[1] / "data"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def gemm_errors() -> Iterator[tuple[str, float]]:
    """Relative error of time for each held-out matrix multiply."""
    curves = gemm_curves()
    for row in rows(DATA / "gemm_held_out.csv"):
        at = gpu_index(row["gpu"]), PRECISIONS.index(row["precision"])
        m, n, k = (float(row[x]) for x in "mnk")
        predicted = gemm_s(
            np.asarray(2 * m * n * k),
            np.asarray(2 * (m * k + k * n + m * n)),
            np.asarray(1.0),
            curves.flops_per_s[at],
            curves.operand_bytes_per_s[at],
            curves.latency_s[at],
        )
        yield row["gpu"], float(predicted) / (2 * m * n * k / (float(row["tflops"]) * 1e12)) - 1


def attention_errors() -> Iterator[float]:
    curves, gemm = attention_curves(), gemm_curves()
    for row in rows(DATA / "attention_sample.csv"):
        at = gpu_index(row["gpu"]), KERNELS.index(row["kernel"])
        head, seq = float(row["head_dim"]), float(row["seq_len"])
        half_seq = curves.half_seq[at] * (1.0 if row["causal"] == "true" else 0.4)
        forward, backward = (
            gemm.flops_per_s[at[0], PRECISIONS.index("bf16")]
            * share[at]
            * seq
            / (seq + half_seq)
            * (head / 128) ** curves.head_dim_exponent[at]
            for share in (curves.forward, curves.backward)
        )
        rate = {"fwd": forward, "bwd": backward, "fwd+bwd": 3.5 / (1 / forward + 2.5 / backward)}[row["pass"]]
        yield float(rate) / (float(row["tflops"]) * 1e12) - 1


def test_held_out_matrix_multiplies_are_predicted_within_a_tenth():
    errors = [abs(error) for _, error in gemm_errors()]
    assert len(errors) > 100
    assert median(errors) <= 0.10
    assert quantiles(errors, n=10)[-1] <= 0.40


def test_no_gpu_is_far_off_on_its_held_out_matrix_multiplies():
    by_gpu = defaultdict(list)
    for gpu, error in gemm_errors():
        by_gpu[gpu].append(error)
    assert {gpu: round(median(e), 2) for gpu, e in by_gpu.items() if abs(median(e)) > 0.15} == {}


def test_attention_rates_are_those_of_the_published_figures():
    errors = [abs(error) for error in attention_errors()]
    assert len(errors) > 50
    assert median(errors) <= 0.15
    assert quantiles(errors, n=10)[-1] <= 0.40


def test_a_small_matrix_multiply_is_less_efficient_than_a_large_one():
    curves = gemm_curves()
    at = gpu_index("H100-SXM5-80GB"), PRECISIONS.index("bf16")

    def share(side: float) -> float:
        flops, operands = np.asarray(2 * side**3), np.asarray(6 * side**2)
        seconds = gemm_s(flops, operands, np.asarray(1.0), *(x[at] for x in (
            curves.flops_per_s, curves.operand_bytes_per_s, curves.latency_s)))  # fmt: skip
        return float(flops / seconds / 989e12)

    shares = [share(side) for side in (128, 512, 2048, 8192)]
    assert shares == sorted(shares)
    assert shares[0] < 0.05
    assert shares[-1] > 0.7


@pytest.mark.parametrize("gpu", gpus(), ids=lambda g: g.id)
def test_every_gpu_has_finite_rates_in_every_precision_it_supports(gpu):
    row = gemm_curves().flops_per_s[gpu_index(gpu.id)]
    for precision, rate in zip(PRECISIONS, row, strict=True):
        peak = efficiency.peak_flops_per_s(gpu, precision)
        if peak:
            assert 0.2 * peak < rate < 1.3 * peak, precision
        assert rate > 0, precision


@pytest.mark.parametrize("gpu", gpus(), ids=lambda g: g.id)
def test_streaming_kernels_reach_most_of_the_memory_bandwidth(gpu):
    reached = efficiency.bandwidth_bytes_per_s()[gpu_index(gpu.id)]
    assert 0.5 < reached / gpu.memory_bandwidth_bytes_per_s <= 1.0


def test_what_was_not_measured_says_so():
    assert efficiency.basis(gpu_index("H100-SXM5-80GB"), "bf16") == "measured"
    assert efficiency.basis(gpu_index("RTX 3090"), "bf16") == "best-shape"
    assert efficiency.basis(gpu_index("RTX 5000 Ada"), "bf16") == "assumed"


@pytest.mark.parametrize("name", ["gemm", "bandwidth", "attention", "sustained"])
def test_every_row_of_data_has_a_basis_and_a_date(name):
    for row in rows(PLANNER_DATA / f"efficiency_{name}.csv"):
        assert row["basis"] in ("measured", "best-shape", "assumed", "fitted", "derived")
        assert row["date"].startswith("20")
        if name != "sustained":
            assert row["source"]


def test_rows_name_known_gpus_once():
    known = {g.id for g in gpus()}
    keys = [(r["gpu"], r["precision"]) for r in rows(PLANNER_DATA / "efficiency_gemm.csv")]
    assert len(keys) == len(set(keys))
    assert {gpu for gpu, _ in keys} <= known
    sustained = rows(PLANNER_DATA / "efficiency_sustained.csv")
    assert {r["gpu"] for r in sustained} - {""} <= known


def test_sustained_shares_are_shares():
    shares = efficiency.sustained_share()
    assert np.all((shares > 0.4) & (shares <= 1.0))
