"""Write ``planner/data/bands.csv`` from the residuals of the measured runs.

``PYTHONPATH=.:tests/accuracy python tests/accuracy/make_bands.py``, after any change of memory or speed.

For each class (GPU x method x scale, each of them or ``*``) the 10th and 90th percentile of measured /
predicted. A run weighs 1 / sqrt(runs of its source): one with hundreds of runs does not speak for all.
Memory of every kind (allocated, reserved, device) is one pool: a kind alone has too few sources.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path

import answering
import numpy as np
import scoring

from planner import bands
from planner.gpus import gpu
from planner.types import Run

TABLE = Path(bands.__file__).parent / "data" / "bands.csv"
HEAD = ("quantity", "gpu", "method", "scale", "num_runs", "num_sources", "low", "high", "source")
SOURCE = "residuals of tests/accuracy/cases"
FEWEST_RUNS_OF_A_ROW = 3


def residuals(quantity: str) -> list[tuple[scoring.Case, float]]:
    """Measured over predicted: of bytes, or of seconds."""
    if quantity == "memory":
        return [(e.case, e.measured / e.predicted) for e in answering.memory_errors()]
    return [(e.case, e.predicted / e.measured) for e in answering.time_errors()]


def runs() -> dict[str, Run]:
    return {
        case.id: estimate.run
        for name in ("memory", "throughput")
        for case, estimate in answering.answers(name).answered
    }


def classes(run: Run) -> list[tuple[str, str, str]]:
    """Every class that a run falls in."""
    shape = run.shape
    num_gpus = shape.gpus_per_node * shape.num_nodes
    names = (shape.gpu, gpu(shape.gpu).gpu_class, bands.ANY)
    methods = (bands.method_class(run.training.method), bands.ANY)
    scales = (bands.scale_of(num_gpus, shape.num_nodes), bands.ANY)
    return list(product(names, methods, scales))


def weighted_quantile(values: list[float], weights: list[float], share: float) -> float:
    order = np.argsort(values)
    cumulated = np.cumsum(np.array(weights)[order])
    at = np.searchsorted(cumulated, share * cumulated[-1])
    return float(np.array(values)[order][min(at, len(values) - 1)])


def rows() -> list[dict[str, object]]:
    by_id = runs()
    found = []
    for quantity in ("memory", "step"):
        members: dict[tuple[str, str, str], list[tuple[scoring.Case, float]]] = defaultdict(list)
        for case, ratio in residuals(quantity):
            for name in classes(by_id[case.id]):
                members[name].append((case, ratio))
        for name, inside in sorted(members.items()):
            of_source = Counter(case.group for case, _ in inside)
            if len(inside) < FEWEST_RUNS_OF_A_ROW and name[1:] != (bands.ANY, bands.ANY):
                continue
            values = [ratio for _, ratio in inside]
            weights = [of_source[case.group] ** -0.5 for case, _ in inside]
            low, high = (weighted_quantile(values, weights, share) for share in (0.1, 0.9))
            found.append(
                dict(
                    zip(
                        HEAD,
                        (
                            quantity,
                            *name,
                            len(inside),
                            len(of_source),
                            f"{min(low, 1):.3f}",
                            f"{max(high, 1):.3f}",
                            SOURCE,
                        ),
                        strict=True,
                    )
                )
            )
    return found


if __name__ == "__main__":
    table = rows()
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
