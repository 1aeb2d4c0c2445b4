"""Write ``planner/data/accuracy.csv``, the table that ``plan accuracy`` prints.

``PYTHONPATH=.:tests/accuracy python tests/accuracy/make_accuracy.py``, after any change of memory or speed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from math import isnan
from pathlib import Path

import answering
import scoring

from planner import bands
from planner.model_count import count_params
from planner.types import Run

TABLE = Path(bands.__file__).parent / "data" / "accuracy.csv"
HEAD = (
    "quantity",
    "by",
    "name",
    "num_runs",
    "num_sources",
    "macro_median",
    "median",
    "p90",
    "bias",
    "low_share",
)
FEWEST_RUNS_OF_A_ROW = 4


def runs(name: str) -> dict[str, Run]:
    """Runs of the cases of a file, by id."""
    return {case.id: estimate.run for case, estimate in answering.answers(name).answered}


def size(run: Run) -> str:
    """Class of a model by its number of parameters."""
    billions = count_params(run.model).total / 1e9
    for below, name in ((1, "below 1 B"), (10, "1 to 10 B"), (70, "10 to 70 B")):
        if billions < below:
            return name
    return "70 B and more"


def layout(run: Run) -> str:
    """Family of a layout in a few words."""
    value = run.layout
    degrees = [name for name in ("tp", "pp", "cp", "ep") if getattr(value, name) > 1]
    if degrees:
        return " + ".join(degrees)
    if value.dp == 1:
        return "one GPU"
    return {0: "ddp", 1: "zero-1", 2: "zero-2", 3: "fsdp"}[value.zero_stage]


def scale(run: Run) -> str:
    """Class of a run by how far its GPUs are apart."""
    return bands.scale_of(run.shape.gpus_per_node * run.shape.num_nodes, run.shape.num_nodes)


KEYS: dict[str, Callable[[scoring.Case, Run], str]] = {
    "all": lambda case, run: "all",
    "source": lambda case, run: case.group,
    "gpu": lambda case, run: run.shape.gpu,
    "method": lambda case, run: run.training.method,
    "layout": lambda case, run: layout(run),
    "precision": lambda case, run: run.training.precision,
    "size": lambda case, run: size(run),
    "scale": lambda case, run: scale(run),
}


def rows() -> list[dict[str, object]]:
    """One row a group of runs: memory first, the largest group first."""
    found = []
    for quantity, name, errors in (
        ("memory", "memory", answering.memory_errors()),
        ("time", "throughput", answering.time_errors()),
    ):
        by_id = runs(name)
        for by, key in KEYS.items():
            groups = scoring.by(errors, lambda case, key=key, by_id=by_id: key(case, by_id[case.id]))
            found += [
                _row(quantity, by, group, inside)
                for group, inside in groups.items()
                if len(inside) >= FEWEST_RUNS_OF_A_ROW
            ]
    return found


def _row(quantity: str, by: str, name: str, errors: list[scoring.Error]) -> dict[str, object]:
    s = scoring.score(errors)
    figures = (s.macro_median, s.median, s.p90, s.bias, s.low_share)
    num_sources = len({e.case.group for e in errors})
    return dict(
        zip(
            HEAD,
            (quantity, by, name, s.runs, num_sources, *("" if isnan(f) else f"{f:.3f}" for f in figures)),
            strict=True,
        )
    )


if __name__ == "__main__":
    table = rows()
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
