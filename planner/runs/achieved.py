"""How much of the speed that is predicted people reach whose software or layout nobody names.

The layout that the search finds is the fastest one that is safe, computed by today's software where no
framework is named. Measured runs that are asked about in this way, with what they do not say left out, reach
a share of it: ``data/achieved.csv`` (``tests/accuracy/make_achieved.py`` writes it). GPUs of older
generations were mostly measured with the software of their time; on Ampere the norm of a block tells the
times apart (RMSNorm came with LLaMA in 2023, after flash attention). The share counts for the hours of a
whole training that a run description asks for, never for a step, a search, or a run of the user's own GPUs
that ``plan calibrate`` knows.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from planner.hardware.gpus import gpu
from planner.trust import nearness
from planner.trust.nearness import Residuals
from planner.types import Band, LayoutPins, ModelSpec, Shape
from planner.units import percent

Named = Literal["framework", "nothing"]
ANY = "*"  # every architecture that no other row has
_LAID_OUT = ("dp", "tp", "pp", "cp", "ep", "zero_stage", "micro_batch", "recompute")


@dataclass(frozen=True, slots=True)
class Share:
    """A row of ``data/achieved.csv``: measured speed over that of the layout which the search finds.

    ``named``: what is named of the software. An 80 % interval of measured runs; sources weigh the same.
    """

    named: str
    architectures: tuple[str, ...]
    norm: str  # of the blocks: layer, rms, or any
    low: float
    mid: float
    high: float
    num_sources: int
    num_runs: int


@lru_cache(maxsize=1)
def shares() -> tuple[Share, ...]:
    """All rows."""
    text = files("planner").joinpath("data/achieved.csv").read_text(encoding="utf-8")
    return tuple(
        Share(
            named=row["named"],
            architectures=tuple(row["architectures"].split("; ")),
            norm=row["norm"],
            low=float(row["low"]),
            mid=float(row["mid"]),
            high=float(row["high"]),
            num_sources=int(row["num_sources"]),
            num_runs=int(row["num_runs"]),
        )
        for row in csv.DictReader(text.splitlines())
    )


def share(named: Named, pins: LayoutPins, model: ModelSpec, shape: Shape, known: Residuals) -> Share | None:
    """Share that counts for a run; ``None`` where the layout is given, or the user measured on this GPU."""
    if any(getattr(pins, name) is not None for name in _LAID_OUT):
        return None
    if nearness.own_runs("step", shape.gpu, known):
        return None
    architecture = gpu(shape.gpu).architecture
    rows = [row for row in shares() if row.named == named and row.norm in (ANY, model.norm)]
    exact = [row for row in rows if architecture in row.architectures]
    return next(iter([*exact, *(row for row in rows if row.architectures == (ANY,))]))


def slowed(step_s: Band, of: Share) -> Band:
    """Seconds of a step at that share of the speed. Of both bands the wider one stays, to either side.

    The share was measured against predicted steps, so what they are off by is in it.
    """
    middle = step_s.mid / of.mid
    return Band(
        low=middle * min(step_s.low / step_s.mid, of.mid / of.high),
        mid=middle,
        high=middle * max(step_s.high / step_s.mid, of.mid / of.low),
    )


def said(of: Share) -> str:
    """What was taken into account, in words."""
    missing = "neither framework nor layout" if of.named == "nothing" else "no layout"
    return (
        f"whole: {missing} is named, so at {percent(of.mid)} of the speed that is shown "
        f"({percent(of.low)} to {percent(of.high)}), what {of.num_runs} measured runs of "
        f"{of.num_sources} sources reached"
    )
