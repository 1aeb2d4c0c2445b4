"""Write ``planner/data/residuals.csv``: every measured figure against what the estimator says today, as it is
shipped and with its constants refitted on the other sources (``leave_one_out.py``; two minutes).

And what follows from it: the ends of the bands (``nearness.csv``), the shares of the predicted speed that
described runs reach (``achieved.csv``), the count of fitted constants (``fitted.csv``).

``PYTHONPATH=.:tests/accuracy python tests/accuracy/make_residuals.py``, after any change of memory or speed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import answering
import count_fitted
import fit_nearness
import make_achieved
import scoring

from planner.results import Estimate
from planner.trust import residuals
from planner.trust.features import features
from planner.trust.residuals import Residual

FILE = Path(residuals.__file__).parents[1] / "data" / "residuals.csv"


def memory_rows() -> list[Residual]:
    """Peak memory, of the kind that the source measured."""
    rows = []
    for case, estimate in answered("memory", "validation"):
        measured = case.measured.get("peak_memory_gib")
        if measured:
            kind = case.measured.get("memory_kind") or answering.UNSAID_MEMORY_KIND
            ratio = math.log(measured / answering.memory_gib(case, estimate))
            rows.append(Residual(kind, label(case), features(estimate.run), ratio))
    return rows


def step_rows() -> list[Residual]:
    """Seconds of a step, from tokens per second."""
    rows = []
    for case, estimate in answered("throughput", "validation"):
        measured = case.measured.get("tokens_per_s_per_gpu")
        if measured:
            ratio = math.log(estimate.speed.tokens_per_s_per_gpu.mid / measured)
            rows.append(Residual("step", label(case), features(estimate.run), ratio))
    return rows


def answered(*names: str) -> list[tuple[scoring.Case, Estimate]]:
    """Cases of files with what the formulas alone say."""
    return [pair for name in names for pair in answering.answers(name, formulas_only=True).answered]


def label(case: scoring.Case) -> str:
    return case.group.replace(",", " ")


def text() -> str:
    """The file as of today, all but what refitting says."""
    return residuals.to_csv(memory_rows() + step_rows())


def with_left_out(rows: list[Residual]) -> list[Residual]:
    """Rows with the ratio that the constants of the other sources give."""
    import leave_one_out  # imports this module

    outside = []
    for quantity in ("memory", "time"):
        problem = leave_one_out.problem(quantity)
        outside += leave_one_out.residuals(problem, quantity, leave_one_out.left_out(problem)[0])
    return [
        replace(row, left_out=same(row, other).log_ratio) for row, other in zip(rows, outside, strict=True)
    ]


def same(row: Residual, other: Residual) -> Residual:
    """The other row, which must be of the same run."""
    if (row.quantity, row.source, row.features) != (other.quantity, other.source, other.features):
        raise ValueError(f"rows in another order: {row}, {other}")
    return other


if __name__ == "__main__":
    FILE.write_text(residuals.to_csv(with_left_out(memory_rows() + step_rows())), encoding="utf-8")
    fit_nearness.refresh()
    make_achieved.refresh()
    count_fitted.refresh()
    print(f"{FILE.name}: {len(FILE.read_text(encoding='utf-8').splitlines()) - 1} rows")
