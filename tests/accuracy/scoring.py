"""Predicted against measured: errors by source, and the few numbers that say how good a predictor is.

A source is a ``group`` of cases (a repository or a paper). Some hold most of the cases, so the headline is
the macro median error: the median of |error| within a source, then the mean over sources with at least
``MIN_RUNS`` runs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

CASES = Path(__file__).parent / "cases"
MIN_RUNS = 4
GIB = 2**30


@dataclass(frozen=True)
class Case:
    """One measured run: what was run (a run description), and what was measured."""

    id: str
    group: str
    trust: str
    description: dict
    measured: dict
    fits_only: bool

    @property
    def line(self) -> str:
        """The run description as ``plan estimate --runs`` reads it: without what was measured."""
        return json.dumps({k: v for k, v in self.description.items() if k != "measured"})


@dataclass(frozen=True)
class Error:
    """Relative error of one prediction: +0.10 = a tenth too high."""

    case: Case
    predicted: float
    measured: float

    @property
    def relative(self) -> float:
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Score:
    """``low_share``: predictions low by more than 10 %; ``bias``: the median signed error."""

    runs: int
    sources: int
    macro_median: float
    median: float
    p90: float
    bias: float
    low_share: float


def cases(name: str) -> list[Case]:
    """The measured runs of ``cases/NAME.jsonl``."""
    rows = [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text().splitlines()]
    return [Case(r["id"], r["group"], r["trust"], r, r["measured"], bool(r.get("fits_only"))) for r in rows]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of ``values`` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def by(errors: Iterable[Error], key: Callable[[Case], str]) -> dict[str, list[Error]]:
    """Errors grouped by a property of their case, the largest group first."""
    groups: dict[str, list[Error]] = defaultdict(list)
    for error in errors:
        groups[key(error.case)].append(error)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def macro_median(errors: Iterable[Error]) -> tuple[float, int]:
    """Mean over sources of the median |error| within each, and how many sources had enough runs."""
    sources = [g for g in by(errors, lambda c: c.group).values() if len(g) >= MIN_RUNS]
    if not sources:
        return float("nan"), 0
    return mean(median(abs(e.relative) for e in g) for g in sources), len(sources)


def score(errors: Sequence[Error]) -> Score:
    """The headline figures of a set of errors."""
    macro, sources = macro_median(errors)
    absolute = [abs(e.relative) for e in errors]
    return Score(
        runs=len(errors),
        sources=sources,
        macro_median=macro,
        median=median(absolute),
        p90=quantile(absolute, 0.9),
        bias=median(e.relative for e in errors),
        low_share=mean(e.relative < -0.10 for e in errors),
    )


def table(errors: Sequence[Error], key: Callable[[Case], str], title: str) -> str:
    """One line a group: runs, median error, 90th percentile, bias."""
    lines = [f"{title:44} RUNS  MEDIAN    P90    BIAS"]
    for name, group in by(errors, key).items():
        s = score(group)
        lines.append(f"{name[:44]:44} {s.runs:4d} {s.median:7.1%} {s.p90:6.1%} {s.bias:+7.1%}")
    return "\n".join(lines)
