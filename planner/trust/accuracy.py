"""How far predictions were from measured runs, by group: what ``plan accuracy`` prints."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from statistics import fmean, median

from planner.hardware.gpus import gpu
from planner.trust.features import Features
from planner.trust.residuals import Residual
from planner.types import Record

FEWEST_RUNS = 4  # of a group that is shown, and of a source that counts in a macro median
LOW = -0.10


class AccuracyRow(Record):
    """Errors of a group of measured runs, as shares of what was measured.

    ``macro_median``: median |error| within a source, mean over sources with at least 4 runs; ``None`` where
    no source has as many. ``bias``: median signed error. ``low_share``: runs more than 10 % too low.
    ``left_out_…``: each source predicted by constants that were refitted without it; ``None`` where that was
    not done.
    """

    quantity: str
    by: str
    name: str
    num_runs: int
    num_sources: int
    macro_median: float | None
    median: float
    p90: float
    bias: float
    low_share: float
    left_out_macro_median: float | None
    left_out_p90: float | None


class Fitted(Record):
    """Constants that were fitted to measured runs. ``num``: how many, ``where``: the file that holds them."""

    name: str
    num: int
    where: str
    fitted_on: str


def size(run: Features) -> str:
    """Class of a model by its number of parameters."""
    for below, name in ((1e9, "below 1 B"), (10e9, "1 to 10 B"), (70e9, "10 to 70 B")):
        if run.params < below:
            return name
    return "70 B and more"


def layout(run: Features) -> str:
    """Family of a layout in a few words."""
    degrees = [name for name in ("tp", "pp", "cp", "ep") if getattr(run, name) > 1]
    if degrees:
        return " + ".join(degrees)
    if run.gpus == 1:
        return "one GPU"
    return {0: "ddp", 1: "zero-1", 2: "zero-2", 3: "fsdp"}[run.zero_stage]


def scale(run: Features) -> str:
    """Class of a run by how far its GPUs are apart."""
    if run.gpus == 1:
        return "one-gpu"
    return "one-node" if run.nodes == 1 else "multi-node"


def _class(gpu_id: str) -> str:
    """Architecture and class of a GPU."""
    card = gpu(gpu_id)
    return f"{card.architecture} {card.gpu_class}"


KEYS: dict[str, Callable[[Residual], str]] = {
    "all": lambda row: "all",
    "source": lambda row: row.source,
    "gpu": lambda row: row.features.gpu,
    "class": lambda row: _class(row.features.gpu),
    "method": lambda row: row.features.method,
    "layout": lambda row: layout(row.features),
    "precision": lambda row: row.features.precision,
    "size": lambda row: size(row.features),
    "scale": lambda row: scale(row.features),
    "framework": lambda row: row.features.framework,
    "figure": lambda row: row.quantity,
}


def error(row: Residual) -> float:
    """Predicted over measured, less one: of memory, or of tokens a second (a step too long is too slow)."""
    return math.expm1(row.log_ratio if row.quantity == "step" else -row.log_ratio)


def left_out(rows: Iterable[Residual]) -> list[Residual]:
    """Rows as they are with the constants refitted without their source; those without that are dropped."""
    return [replace(row, log_ratio=row.left_out) for row in rows if row.left_out is not None]


def quantile(values: Sequence[float], share: float) -> float:
    """Value that ``share`` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def macro_median(rows: Iterable[Residual]) -> float | None:
    """Mean over sources of the median |error| within each; sources with few runs do not count."""
    of_source: dict[str, list[float]] = {}
    for row in rows:
        of_source.setdefault(row.source, []).append(abs(error(row)))
    medians = [median(errors) for errors in of_source.values() if len(errors) >= FEWEST_RUNS]
    return fmean(medians) if medians else None


def table(rows: Sequence[Residual]) -> tuple[AccuracyRow, ...]:
    """One row for each group with enough runs: memory first, the largest group first."""
    found = []
    for quantity in ("memory", "time"):
        inside = [row for row in rows if (row.quantity == "step") == (quantity == "time")]
        for by, key in KEYS.items():
            for name, count in Counter(map(key, inside)).most_common():
                if count >= FEWEST_RUNS:
                    found.append(_row(quantity, by, name, [row for row in inside if key(row) == name]))
    return tuple(found)


def _row(quantity: str, by: str, name: str, rows: Sequence[Residual]) -> AccuracyRow:
    errors = [error(row) for row in rows]
    absolute, outside = [abs(each) for each in errors], left_out(rows)
    return AccuracyRow(
        quantity=quantity,
        by=by,
        name=name,
        num_runs=len(rows),
        num_sources=len({row.source for row in rows}),
        macro_median=macro_median(rows),
        median=median(absolute),
        p90=quantile(absolute, 0.9),
        bias=median(errors),
        low_share=fmean(e < LOW for e in errors),
        left_out_macro_median=macro_median(outside),
        left_out_p90=quantile([abs(error(row)) for row in outside], 0.9) if outside else None,
    )


@lru_cache(maxsize=1)
def fitted() -> tuple[Fitted, ...]:
    """Rows of ``data/fitted.csv``: every constant that was fitted to measured runs."""
    text = files("planner").joinpath("data/fitted.csv").read_text(encoding="utf-8")
    return tuple(Fitted.model_validate(row) for row in csv.DictReader(text.splitlines()))
