"""The few fixed limits of a probe: ``data/probe_limits.csv``. Others follow from prediction and budget."""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from planner.types import Band, Precision

LimitName = Literal[
    "slowest_rank",
    "alloc_retries",
    "ooms",
    "wrong_values",
    "busbw_share",
    "wire_share",
    "pair_share",
    "band_stretch",
    "cpu_memory",
    "precision_roundoffs",
]
# Unit roundoff of what is computed in (IEEE 754; NVIDIA's TF32 and OCP's E4M3 by their mantissa bits)
ROUNDOFF: dict[Precision, float] = {
    "bf16": 2.0**-8,
    "bf16-pure": 2.0**-8,
    "fp16": 2.0**-11,
    "tf32": 2.0**-11,
    "fp8": 2.0**-4,
}


@lru_cache(maxsize=1)
def _table() -> dict[str, float]:
    text = files("planner").joinpath("data/probe_limits.csv").read_text(encoding="utf-8")
    return {row["name"]: float(row["value"]) for row in csv.DictReader(text.splitlines())}


def limit(name: LimitName) -> float:
    """Value of a fixed limit."""
    return _table()[name]


def upper(band: Band) -> float:
    """Most that a measured value may be: the upper end of the 80 % interval, stretched in the log.

    mid x (high / mid)^band_stretch.
    """
    if band.mid <= 0:
        return band.high
    return float(band.mid * (band.high / band.mid) ** limit("band_stretch"))


def loss_bound(precision: Precision) -> float | None:
    """Most that a loss may differ from that of fp32, relatively; ``None`` where it is fp32 itself."""
    roundoff = ROUNDOFF.get(precision)
    return None if roundoff is None else limit("precision_roundoffs") * roundoff
