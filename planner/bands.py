"""80 % bands around a predicted figure, from the residuals of measured runs of the nearest class.

A class is GPU x method x scale. ``data/bands.csv`` holds, for each class, the ratio measured / predicted that
one run in ten stays below (``low``) and one in ten exceeds (``high``). A run takes the narrowest class that
it falls in and that rests on at least 10 runs of 3 sources; no band is narrower than 5 % to either side. A
GPU that nobody measured takes the band of its kind, widened. ``tests/accuracy/make_bands.py`` writes it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from planner.gpus import gpus
from planner.types import Band, Gpu, Method, Record

Quantity = Literal["memory", "step"]
Scale = Literal["one-gpu", "one-node", "multi-node"]

ANY = "*"
FEWEST_RUNS = 10
FEWEST_SOURCES = 3
NARROWEST = 0.05
WIDER_WITHOUT_RUNS = (
    1.3  # the factor on both sides of a band (in logarithms) where the GPU itself was never measured
)


class Spread(Record):
    """How measured figures of a class scatter around predicted ones, as ratios; from ``num_runs`` runs."""

    low: float
    high: float
    num_runs: int
    basis: str
    measured_on_gpu: int


class _Row(Record):
    """One row of ``data/bands.csv``."""

    low: float
    high: float
    num_runs: int
    num_sources: int


def scale_of(num_gpus: int, num_nodes: int) -> Scale:
    """Class of a run by how far its GPUs are apart."""
    if num_gpus == 1:
        return "one-gpu"
    return "one-node" if num_nodes == 1 else "multi-node"


def method_class(method: Method) -> str:
    """Adapters (LoRA, QLoRA) are one class, whole models the other."""
    return "adapters" if method in ("lora", "qlora") else "whole"


@lru_cache(maxsize=1)
def _table() -> dict[tuple[str, ...], _Row]:
    """Rows by (quantity, gpu, method, scale)."""
    text = files("planner").joinpath("data/bands.csv").read_text(encoding="utf-8")
    return {
        (row["quantity"], row["gpu"], row["method"], row["scale"]): _Row.model_construct(
            low=float(row["low"]),
            high=float(row["high"]),
            num_runs=int(row["num_runs"]),
            num_sources=int(row["num_sources"]),
        )
        for row in csv.DictReader(text.splitlines())
    }


@lru_cache(maxsize=4096)
def spread(quantity: Quantity, gpu_id: str, method: Method, scale: Scale) -> Spread:
    """Scatter of the narrowest class with enough runs that this run falls in.

    Narrowest first: this GPU (method and scale, then method, scale, neither), its kind of GPU, all GPUs.
    """
    kind = method_class(method)
    gpu = _gpu(gpu_id)
    own = _table().get((quantity, gpu_id, ANY, ANY))
    measured = own.num_runs if own else 0
    for name in (gpu_id, gpu.gpu_class, ANY):
        for of_method, of_scale in ((kind, scale), (kind, ANY), (ANY, scale), (ANY, ANY)):
            row = _table().get((quantity, name, of_method, of_scale))
            if row is None or not _counts(row, (name, of_method, of_scale)):
                continue
            wider = 1.0 if measured else WIDER_WITHOUT_RUNS
            return Spread.model_construct(
                low=min(row.low, 1.0 - NARROWEST) ** wider,
                high=max(row.high, 1.0 + NARROWEST) ** wider,
                num_runs=row.num_runs,
                basis=_basis(name, of_method, of_scale),
                measured_on_gpu=measured,
            )
    raise AssertionError(f"data/bands.csv has no row for {quantity} of any run")


def _counts(row: _Row, name: tuple[str, str, str]) -> bool:
    """Whether a class rests on enough runs to be used; the one of all runs always is."""
    return name == (ANY, ANY, ANY) or (row.num_runs >= FEWEST_RUNS and row.num_sources >= FEWEST_SOURCES)


@lru_cache(maxsize=1)
def _by_id() -> dict[str, Gpu]:
    return {g.id: g for g in gpus()}


def _gpu(gpu_id: str) -> Gpu:
    return _by_id()[gpu_id]


def _basis(gpu: str, method: str, scale: str) -> str:
    """Name a class in words: ``"A100-SXM4-80GB, adapters, one-node"``."""
    named = [part for part in (gpu, method, scale) if part != ANY]
    return ", ".join(named) if named else "all measured runs"


def band(mid: float, of: Spread) -> Band:
    """Put the 80 % interval of a class around a predicted figure."""
    return Band.model_construct(low=mid * of.low, mid=mid, high=mid * of.high)


def warnings(gpu_id: str, method: Method, scale: Scale) -> tuple[str, ...]:
    """Say where a band does not rest on measured runs of this GPU."""
    missing = [
        name
        for name, quantity in (("memory", "memory"), ("time", "step"))
        if spread(quantity, gpu_id, method, scale).measured_on_gpu == 0
    ]
    if not missing:
        return ()
    return (f"no measured run on {gpu_id} for {' and '.join(missing)}: wider band of its class",)


def known_classes() -> Sequence[tuple[str, ...]]:
    """All classes of the table, for ``plan accuracy`` and tests."""
    return tuple(_table())
