"""How much of its peak a GPU reaches: curves distilled from published micro-benchmarks.

A matrix multiply takes ``latency + FLOPs / rate + operand bytes / operand bandwidth``: launch and ramp-
up, the rate that large shapes reach, and the traffic of its operands through caches and HBM, which is
what makes small and thin shapes slow (a smooth roofline). The constants stand in
``data/efficiency_gemm.csv`` for each measured GPU and precision. A GPU without rows takes its own other
16-bit rate, else the median share of peak of its architecture and class, else of its architecture:
``basis`` says so ("assumed").
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from statistics import median
from typing import Literal

import numpy as np

from planner.columns import Array
from planner.hardware.gpus import gpus
from planner.types import Gpu

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
KERNELS = ("first", "sdpa", "newest")
Basis = Literal["measured", "best-shape", "assumed"]

# Shares of peak where neither the GPU nor its architecture has been measured.
_UNKNOWN_SHARE = 0.65
_UNKNOWN_BANDWIDTH_SHARE = 0.80
# of operand traffic to HBM bandwidth: median of the GPUs with 40 rows or more
_OPERAND_BANDWIDTH_RATIO = 4.0
_LATENCY_S = 4e-6
_SUSTAINED = "efficiency_sustained.csv"


@dataclass(frozen=True, slots=True)
class GemmCurves:
    """Constants by (row of gpus.csv, precision of ``PRECISIONS``); a precision that a GPU lacks runs as
    fp32.
    """

    flops_per_s: Array
    operand_bytes_per_s: Array
    latency_s: Array
    basis: tuple[tuple[Basis, ...], ...]


@dataclass(frozen=True, slots=True)
class AttentionCurves:
    """Shares of the 16-bit matrix multiply rate by (row of gpus.csv, kernel of ``KERNELS``), at head
    size 128.

    ``half_seq``: causal sequence length at which half the share is reached. The shares fall as
    (head size / 128) ** head_dim_exponent below 128 and (128 / head size) ** wide_exponent above.
    """

    forward: Array
    backward: Array
    half_seq: Array
    head_dim_exponent: Array
    wide_exponent: Array


@lru_cache(maxsize=64)
def family(architecture: str) -> str:
    """Architecture without variants: ``"Blackwell Ultra+Grace"`` -> ``"Blackwell"``, ``"CDNA3"`` ->
    ``"CDNA"``.
    """
    name = architecture.split("+")[0].split(" ")[0]
    if name.startswith("CDNA"):
        return "CDNA"
    return {"Turing": "Volta", "Pascal": "Volta", "Kepler": "Volta"}.get(name, name)


def peak_flops_per_s(gpu: Gpu, precision: str) -> float:
    """Dense peak of ``gpu`` in a precision of ``PRECISIONS``; 0 where it has none."""
    value = {
        "fp32": gpu.fp32_flops_per_s,
        "tf32": gpu.tf32_flops_per_s,
        "fp16": gpu.fp16_flops_per_s,
        "bf16": gpu.bf16_flops_per_s,
        "fp8": gpu.fp8_flops_per_s,
    }[precision]
    return value or 0.0


def gemm_s(
    flops: Array,
    operand_bytes: Array,
    launches: Array,
    flops_per_s: Array,
    operand_bytes_per_s: Array,
    latency_s: Array,
) -> Array:
    """Seconds of matrix multiplies: ``launches`` of them with these FLOPs and operand bytes in all."""
    return flops / flops_per_s + operand_bytes / operand_bytes_per_s + launches * latency_s


@lru_cache(maxsize=1)
def gemm_curves() -> GemmCurves:
    """Curves of all GPUs; see the module."""
    measured = {(r["gpu"], r["precision"]): r for r in _rows("efficiency_gemm.csv")}
    share = {p: _medians(shares) for p, shares in _shares(measured).items()}
    table = [[_gemm_point(gpu, p, measured, share[p]) for p in PRECISIONS] for gpu in gpus()]
    rate, operand, latency = (np.array([[point[i] for point in row] for row in table]) for i in range(3))
    return GemmCurves(rate, operand, latency, tuple(tuple(point[3] for point in row) for row in table))


@lru_cache(maxsize=1)
def attention_curves() -> AttentionCurves:
    """Attention of all GPUs, from ``data/efficiency_attention.csv`` by architecture."""
    rows = {(r["architecture"], r["kernel"]): r for r in _rows("efficiency_attention.csv")}

    def column(name: str) -> Array:
        return np.array([[float(_attention_row(rows, g, k)[name]) for k in KERNELS] for g in gpus()])

    return AttentionCurves(
        forward=column("forward_share"),
        backward=column("backward_share"),
        half_seq=column("half_seq"),
        head_dim_exponent=column("head_dim_exponent"),
        wide_exponent=column("wide_exponent"),
    )


@lru_cache(maxsize=1)
def bandwidth_bytes_per_s() -> Array:
    """Memory bandwidth that streaming kernels reach, by row of gpus.csv. Shape (GPUs,)."""
    measured = {r["gpu"]: float(r["achieved_gb_per_s"]) * 1e9 for r in _rows("efficiency_bandwidth.csv")}
    known = {g.id: measured[g.id] / g.memory_bandwidth_bytes_per_s for g in gpus() if g.id in measured}
    shares = _medians(known)
    return np.array(
        [
            measured.get(g.id) or g.memory_bandwidth_bytes_per_s * shares.of(g, _UNKNOWN_BANDWIDTH_SHARE)
            for g in gpus()
        ]
    )


def basis(gpu_index: int, precision: str) -> Basis:
    """Whether the matrix multiply curve of a GPU is measured, one best shape, or assumed from like GPUs."""
    return gemm_curves().basis[gpu_index][PRECISIONS.index(precision)]


def _rows(name: str) -> list[dict[str, str]]:
    text = files("planner").joinpath(f"data/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _attention_row(rows: dict[tuple[str, str], dict[str, str]], gpu: Gpu, kernel: str) -> dict[str, str]:
    return rows.get((family(gpu.architecture), kernel)) or rows["Ampere", kernel]


def _shares(measured: dict[tuple[str, str], dict[str, str]]) -> dict[str, dict[str, float]]:
    """Share of peak reached, by precision and GPU id, of all measured GPUs."""
    found: dict[str, dict[str, float]] = {p: {} for p in PRECISIONS}
    for gpu in gpus():
        for p in PRECISIONS:
            row, peak = measured.get((gpu.id, p)), peak_flops_per_s(gpu, p)
            if row and peak:
                found[p][gpu.id] = float(row["sustained_tflops"]) * 1e12 / peak
    return found


@dataclass(frozen=True, slots=True)
class _Medians:
    """Median share of peak of measured GPUs, by (architecture, class) and by architecture alone."""

    by_class: dict[tuple[str, str], float]
    by_architecture: dict[str, float]

    def of(self, gpu: Gpu, otherwise: float) -> float:
        """Share to expect of ``gpu``: of its architecture and class, else of its architecture."""
        name = family(gpu.architecture)
        return self.by_class.get((name, gpu.gpu_class), self.by_architecture.get(name, otherwise))


def _medians(shares: dict[str, float]) -> _Medians:
    """Medians over GPUs of which the share is known, by id."""
    by_class, by_architecture = defaultdict(list), defaultdict(list)
    for gpu in gpus():
        if gpu.id in shares:
            by_class[family(gpu.architecture), gpu.gpu_class].append(shares[gpu.id])
            by_architecture[family(gpu.architecture)].append(shares[gpu.id])
    return _Medians(
        {key: median(values) for key, values in by_class.items()},
        {key: median(values) for key, values in by_architecture.items()},
    )


def _gemm_point(
    gpu: Gpu,
    precision: str,
    measured: dict[tuple[str, str], dict[str, str]],
    shares: _Medians,
) -> tuple[float, float, float, Basis]:
    """(rate, operand bandwidth, latency, basis) of one GPU in one precision."""
    twin = {"fp16": "bf16", "bf16": "fp16"}.get(precision, precision)
    row = measured.get((gpu.id, precision)) or measured.get((gpu.id, twin))
    if row:
        rate, operand = float(row["sustained_tflops"]) * 1e12, float(row["operand_gb_per_s"]) * 1e9
        return (
            rate,
            operand,
            float(row["latency_us"]) * 1e-6,
            "measured" if row["basis"] == "measured" else "best-shape",
        )
    # a precision without matrix units runs on the fp32 ones
    peak = peak_flops_per_s(gpu, precision) or gpu.fp32_flops_per_s
    rate = peak * shares.of(gpu, _UNKNOWN_SHARE)
    return rate, gpu.memory_bandwidth_bytes_per_s * _OPERAND_BANDWIDTH_RATIO, _LATENCY_S, "assumed"


@lru_cache(maxsize=1)
def sustained_share() -> Array:
    """Share of the micro-benchmark rates that a training run holds for hours, shape (GPUs, PRECISIONS).

    Bursts run at clocks that power and temperature limits do not allow for long. Per architecture and class
    in ``data/efficiency_sustained.csv``; a row may be of one card (a lower power limit than its siblings) or
    of one precision; the most particular row wins.
    """
    rows = {
        (r["gpu"], r["architecture"], r["gpu_class"], r["precision"]): float(r["share"])
        for r in _rows(_SUSTAINED)
    }
    found = np.empty((len(gpus()), len(PRECISIONS)))
    for i, gpu in enumerate(gpus()):
        kind = ("", family(gpu.architecture), gpu.gpu_class)
        for j, precision in enumerate(PRECISIONS):
            keys = ((gpu.id, "", "", ""), (*kind, precision), (*kind, ""), ("", "", "", ""))
            found[i, j] = next(rows[key] for key in keys if key in rows)
    return found
