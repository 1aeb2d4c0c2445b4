"""Every source left out once: fitted constants refitted on the other sources, the left-out runs predicted.

``PYTHONPATH=.:tests/accuracy python tests/accuracy/leave_one_out.py`` writes ``left_out.csv`` (about two
minutes on one core). What counts as fitted is in ``knobs.py``: each constant starts from a neutral value
that says nothing about any run, so a constant that only the left-out source could fit stays neutral.
Facts read from public code (profiles) and micro-benchmarks are not fitted and stay.
"""

from __future__ import annotations

import csv
import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import answering
import knobs
import numpy as np
import scoring
from make_residuals import label

from planner import memory, speed
from planner.hardware.links import machine_columns
from planner.layouts import layout_columns
from planner.model import model_columns
from planner.results import Estimate
from planner.training.execution import execution_columns
from planner.training.numerics import training_columns
from planner.trust import accuracy
from planner.trust.features import features
from planner.trust.residuals import QUANTITIES, Residual

FILE = Path(__file__).parent / "left_out.csv"
FILES = {"memory": ("memory", "validation"), "time": ("throughput", "validation")}
# Errors beyond this (of the logarithm) pull no harder: runs that were wrongly described stay what they are.
MOST = 0.5
# What it costs to move a constant by its own scale, against the mean error of all runs.
PRIOR = 0.0005
STEPS = (-0.5, -0.15, 0.15, 0.5)
SWEEPS = 3
FEWEST = accuracy.FEWEST_RUNS
HEAD = (
    "group", "key", "memory_runs", "memory_macro", "memory_median", "memory_p90", "memory_low",
    "oom_missed", "oom_runs", "unfit", "fitting_runs",
    "time_runs", "time_macro", "time_median", "time_p90", "date",
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Measured runs of one quantity, and what predicts them under the constants as they stand."""

    pairs: list[tuple[scoring.Case, Estimate]]
    log_measured: np.ndarray  # nan where only whether it fitted is known
    source: np.ndarray
    predict: Callable[[], tuple[np.ndarray, np.ndarray]]  # logarithms, and whether each run fits
    knobs: list[knobs.Knob]


def problem(quantity: str) -> Problem:
    """Runs of all files that state the quantity, as columns, and the constants that predict it."""
    pairs = [
        pair for name in FILES[quantity] for pair in answering.answers(name, formulas_only=True).answered
    ]
    stated = [_measured(quantity, case) for case, _ in pairs]
    keep = [i for i, value in enumerate(stated) if value or quantity == "memory"]
    pairs, stated = [pairs[i] for i in keep], [stated[i] for i in keep]
    runs = [estimate.run for _, estimate in pairs]
    trainings = [run.training for run in runs]
    model, layout = model_columns([run.model for run in runs]), layout_columns([run.layout for run in runs])
    machine = machine_columns([run.shape for run in runs], [t.precision for t in trainings])
    training, execution = training_columns(trainings), execution_columns(trainings)
    kinds = [case.measured.get("memory_kind") or answering.UNSAID_MEMORY_KIND for case, _ in pairs]

    def bytes_() -> tuple[np.ndarray, np.ndarray]:
        found = memory.estimate(model, training, layout, machine)
        by_kind = {kind: getattr(found, kind) for kind in ("allocated", "reserved", "device")}
        value = np.select([np.array(kinds) == kind for kind in by_kind], list(by_kind.values()))
        return np.log(value), found.allocated + found.context <= machine.usable_memory_bytes

    def tokens() -> tuple[np.ndarray, np.ndarray]:
        found = speed.estimate(model, training, execution, layout, machine)
        gpus = machine.gpus_per_node * machine.num_nodes
        return np.log(found.tokens_per_step / found.step_s / gpus), np.ones(len(pairs), dtype=bool)

    profiles = np.array([features(run).framework for run in runs])
    turned = (
        knobs.of_memory(training, profiles) if quantity == "memory" else knobs.of_time(execution, profiles)
    )
    return Problem(
        pairs=pairs,
        log_measured=np.log(np.array([value or np.nan for value in stated])),
        source=np.array([case.group for case, _ in pairs]),
        predict=bytes_ if quantity == "memory" else tokens,
        knobs=turned,
    )


def _measured(quantity: str, case: scoring.Case) -> float | None:
    if quantity == "time":
        return case.measured.get("tokens_per_s_per_gpu")
    found = case.measured.get("peak_memory_gib")
    return found * scoring.GIB if found else None


def fitted(of: Problem, seen: np.ndarray) -> np.ndarray:
    """Positions of all knobs that suit the runs in ``seen`` best: coordinate descent from neutral."""
    _, at, counts = np.unique(of.source[seen], return_inverse=True, return_counts=True)
    weight = counts[at] ** -0.5
    weight = weight / weight.sum()
    positions = np.zeros(len(of.knobs))

    def loss() -> float:
        error = np.minimum(np.abs(of.predict()[0][seen] - of.log_measured[seen]), MOST)
        return float(weight @ error + PRIOR * np.square(positions).sum())

    for knob in of.knobs:
        knob.turn(0.0)
    least = loss()
    for sweep in range(SWEEPS):
        for i, knob in enumerate(of.knobs):
            for step in STEPS:
                while (found := _tried(knob, positions, i, step / (1 + sweep), loss)) < least:
                    least = found
                positions[i] -= step / (1 + sweep)
                knob.turn(positions[i])
    return positions


def _tried(knob: knobs.Knob, positions: np.ndarray, i: int, step: float, loss: Callable[[], float]) -> float:
    """Turn one knob by a step, and leave it there."""
    positions[i] += step
    knob.turn(positions[i])
    return loss()


def left_out(of: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Predicted logarithms, and whether a run fits, each source's under constants fitted to the others."""
    log_predicted, fits = of.predict()
    log_predicted, fits = log_predicted.copy(), fits.copy()
    stated = ~np.isnan(of.log_measured)
    for source in np.unique(of.source):
        own = of.source == source
        fitted(of, stated & ~own)
        now, now_fits = of.predict()
        log_predicted[own], fits[own] = now[own], now_fits[own]
    for knob in of.knobs:
        knob.restore()
    return log_predicted, fits


def residuals(of: Problem, quantity: str, log_predicted: np.ndarray) -> list[Residual]:
    """As ``planner.trust`` has them: log of measured over predicted, of memory or of seconds."""
    rows = []
    for (case, estimate), measured, predicted in zip(of.pairs, of.log_measured, log_predicted, strict=True):
        if np.isnan(measured):
            continue
        kind = case.measured.get("memory_kind") or answering.UNSAID_MEMORY_KIND
        ratio = float(measured - predicted) if quantity == "memory" else float(predicted - measured)
        figure = QUANTITIES[QUANTITIES.index(kind if quantity == "memory" else "step")]
        rows.append(Residual(figure, label(case), features(estimate.run), ratio))
    return rows


BY = ("source", "gpu", "method", "layout", "precision", "size", "scale")
KEYS = {name: accuracy.KEYS[name] for name in BY}


def rows_of(memory_rows: Sequence[Residual], time_rows: Sequence[Residual]) -> list[dict[str, object]]:
    """One row a group with at least ``FEWEST`` runs of memory or time."""
    found = []
    fresh = {label(case) for case in scoring.cases("validation")}
    sets: dict[str, Callable[[Residual], str]] = {
        "all": lambda row: "all",
        "set": lambda row: "read later" if row.source in fresh else "handed",
        **KEYS,
    }
    for group, key in sets.items():
        names = dict.fromkeys(key(row) for row in (*memory_rows, *time_rows))
        for name in names:
            row: dict[str, object] = {"group": group, "key": name}
            for quantity, rows in (("memory", memory_rows), ("time", time_rows)):
                row |= _figures(quantity, [each for each in rows if key(each) == name])
            if max(int(row["memory_runs"]), int(row["time_runs"])) >= FEWEST:  # type: ignore[call-overload]
                found.append(row)
    return found


def _figures(quantity: str, rows: Sequence[Residual]) -> dict[str, object]:
    if len(rows) < FEWEST:
        return {f"{quantity}_runs": len(rows)}
    errors = [accuracy.error(row) for row in rows]
    absolute = sorted(map(abs, errors))
    macro = accuracy.macro_median(rows)
    figures: dict[str, object] = {
        f"{quantity}_runs": len(rows),
        f"{quantity}_macro": "" if macro is None else f"{macro:.4f}",
        f"{quantity}_median": f"{np.median(absolute):.4f}",
        f"{quantity}_p90": f"{scoring.quantile(absolute, 0.9):.4f}",
    }
    if quantity == "memory":
        figures["memory_low"] = f"{np.mean([each < accuracy.LOW for each in errors]):.4f}"
    return figures


def verdicts(of: Problem, fits: np.ndarray) -> dict[str, dict[str, int]]:
    """OOMs that are called fitting, and runs that ran and are called unfit; all runs, and handed ones."""
    oom = np.array([bool(case.measured.get("oom")) for case, _ in of.pairs])
    handed = np.array([case.group for case in scoring.cases("memory")])
    found = {}
    for name, inside in (("all", np.full(len(oom), True)), ("handed", np.isin(of.source, handed))):
        found[name] = {
            "oom_missed": int((oom & fits & inside).sum()),
            "oom_runs": int((oom & inside).sum()),
            "unfit": int((~oom & ~fits & inside).sum()),
            "fitting_runs": int((~oom & inside).sum()),
        }
    return found


def main() -> None:
    """Refit, print and store."""
    in_memory, in_time = problem("memory"), problem("time")
    log_bytes, fits = left_out(in_memory)
    log_tokens, _ = left_out(in_time)
    rows = rows_of(residuals(in_memory, "memory", log_bytes), residuals(in_time, "time", log_tokens))
    judged = verdicts(in_memory, fits)
    for row in rows:
        row |= judged.get(str(row["key"]), {})
        row["date"] = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        print(" ".join(f"{row.get(name, '')!s:>12}" for name in HEAD[1:-1]))
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
