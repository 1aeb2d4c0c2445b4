"""Write the section of README.md between two comments: how far predictions were from what was measured.

``PYTHONPATH=.:tests/accuracy python tests/accuracy/readme_tables.py``, after ``make_residuals.py`` (and
``leave_one_out.py``). Every figure comes from the shipped residuals, the cases, and ``left_out.csv``.
``test_readme_tables.py`` fails where the section is stale.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import mean, median

import collectives_scoring
import make_achieved
import make_residuals
import numpy as np
import scoring
import test_bands_hold
import whole_runs

from planner.trust import accuracy
from planner.trust.residuals import Residual, shipped_rows

README = Path(__file__).parents[2] / "README.md"
LEFT_OUT = Path(__file__).parent / "left_out.csv"
START = "<!-- accuracy: written by tests/accuracy/readme_tables.py -->"
END = "<!-- /accuracy -->"
WORST = 5
CONSTANT_MFU = 0.4
FILES = {"memory": ("memory", "validation"), "time": ("throughput", "validation")}
STATED = {"memory": "peak_memory_gib", "time": "tokens_per_s_per_gpu"}
# Why a run is predicted badly, as far as it is known: one line for each of the worst.
WHY = {
    "lambda-8x3070-bert-large-squad-fp16": "start-up inside a short mean, PCIe of a server that nobody names",
    "lambda-8x3090-bert-large-squad-fp16": "the same source, on RTX 3090",
    "lambda-8xa100-40gb-sxm4-v1-bert-large-squad-fp16":
        "the same source; low trust, its other A100 rows are within 20 %",
    "qwen-1.8b-full-s256": "a floor of about 11 ms a block that counted launches do not explain",
    "qwen-1.8b-full-s512": "as at 256 tokens",
    "qwen-7b-lora-multinode-s256": "low trust: two nodes are faster than one per GPU, unlike its other rows",
    "mbridge-26.02-pretrain-qwen3-30b-a3b-b200-x8-mxfp8-tp1pp1cp1ep8-gbs512":
        "a later release of the same framework runs it 2.8 times faster",
    "bigscience-v100-1b3-16gb-full-tp1pp1dp8-mb1":
        "sharding is not said: ZeRO-3 is the only layout that is safe on 16 GB, they ran a lesser stage",
    "bigscience-v100-1b3-32gb-none-tp1pp1dp8-mb1":
        "sharding is not said: a safer stage is assumed than they ran",
}  # fmt: skip
TITLES = {
    "source": "By source", "class": "By class of GPU", "method": "By kind of training", "layout": "By layout",
    "precision": "By precision", "size": "By size of the model", "scale": "By scale",
}  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """A measured figure: its case, and its residual as shipped and left out."""

    case: scoring.Case
    row: Residual

    @property
    def error(self) -> float:
        return accuracy.error(self.row)


@lru_cache(maxsize=2)
def judged(quantity: str) -> tuple[Judged, ...]:
    """All figures of a quantity, in the order of the residuals."""
    rows = [row for row in shipped_rows() if (row.quantity == "step") == (quantity == "time")]
    pairs = make_residuals.answered(*FILES[quantity])
    cases = [case for case, _ in pairs if case.measured.get(STATED[quantity])]
    return tuple(Judged(case, row) for case, row in zip(cases, rows, strict=True))


def share(value: float | None, decimals: int = 0) -> str:
    return "" if value is None else f"{100 * value:.{decimals}f} %"


# ---------------------------------------------------------------------------------- tables


def figures(rows: Sequence[Residual]) -> tuple[str, str]:
    """Macro median and 90th percentile of a group; the plain median where no source has enough runs."""
    if len(rows) < accuracy.FEWEST_RUNS:
        return "", ""
    absolute = [abs(accuracy.error(row)) for row in rows]
    macro = accuracy.macro_median(rows)
    found = share(macro, 1) if macro is not None else f"({share(median(absolute), 1)})"
    return found, share(accuracy.quantile(absolute, 0.9))


def line(name: str, in_memory: Sequence[Residual], in_time: Sequence[Residual]) -> str:
    """One row of a table: memory, then speed, each as shipped and left out."""
    cells = [name]
    for rows in (in_memory, in_time):
        shipped, outside = figures(rows), figures(accuracy.left_out(rows))
        enough = len(rows) >= accuracy.FEWEST_RUNS
        cells += [
            str(len(rows)) if enough else "",
            *(f"{a} ({b})" if a else "" for a, b in (shipped, outside)),
        ]
    return f"| {' | '.join(cells)} |"


def table(groups: Sequence[tuple[str, Callable[[Judged], bool]]], head: str) -> Iterator[str]:
    columns = (head, *(c for name in ("memory", "tokens/s") for c in ("runs", name, "source left out")))
    yield f"| {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|---|"
    for name, inside in groups:
        memory, time = ([each.row for each in judged(q) if inside(each)] for q in ("memory", "time"))
        if max(len(memory), len(time)) >= accuracy.FEWEST_RUNS:
            yield line(name, memory, time)


def headline() -> Iterator[str]:
    later = {case.group for case in scoring.cases("validation")}
    groups: list[tuple[str, Callable[[Judged], bool]]] = [
        ("all", lambda each: True),
        ("sources that the formulas were made on", lambda each: each.case.group not in later),
        ("further sources, read when the formulas stood", lambda each: each.case.group in later),
    ]
    yield from table(groups, "measured public runs")


def folded(by: str) -> Iterator[str]:
    key = accuracy.KEYS[by]
    names = sorted({key(each.row) for q in ("memory", "time") for each in judged(q)}, key=str.lower)
    yield f"<details><summary>{TITLES[by]}</summary>"
    yield ""
    yield from table([(name, lambda each, name=name: key(each.row) == name) for name in names], by)
    yield ""
    yield "</details>"


# ---------------------------------------------------------------------------------- sentences


def verdicts() -> str:
    """OOMs and fits, as shipped, and with constants of the other sources where that was written down."""
    pairs = make_residuals.answered("memory", "validation")
    oom = [e.memory.fits for c, e in pairs if c.measured.get("oom")]
    ran = [not e.memory.fits for c, e in pairs if not c.measured.get("oom")]
    low = [accuracy.error(each.row) < accuracy.LOW for each in judged("memory")]
    outside = [
        accuracy.error(row) < accuracy.LOW for row in accuracy.left_out([e.row for e in judged("memory")])
    ]
    said = (
        f"Of {len(oom)} runs that ran out of memory {sum(oom)} are called fitting; of {len(ran)} that fitted "
        f"{sum(ran)} are called unfit. Memory is predicted low by more than 10 % in {share(mean(low))} of "
        f"runs, {share(mean(outside))} with the source left out."
    )
    row = next((r for r in left_out_rows() if r["key"] == "all"), None)
    if row is not None and row.get("oom_runs"):
        said += (
            f" With the source left out {row['oom_missed']} of {row['oom_runs']} are called fitting and "
            f"{row['unfit']} of {row['fitting_runs']} unfit."
        )
    return said


def left_out_rows() -> list[dict[str, str]]:
    """Rows of ``left_out.csv``; none where nobody has written it."""
    if not LEFT_OUT.exists():
        return []
    with LEFT_OUT.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def bands() -> str:
    parts = []
    for quantity, name in (("memory", "memory figures"), ("step", "speeds")):
        found = test_bands_hold.held(quantity)
        sides = test_bands_hold.sides(quantity)
        classes = [share(s) for s in test_bands_hold.extremes(quantity)]
        parts.append(
            f"{share(test_bands_hold.share(found))} of {name} ({share(sides[0])} as shipped, "
            f"{share(sides[1])} with constants of the other sources; {classes[0]} to {classes[1]} in each "
            f"class with at least {test_bands_hold.SIZEABLE} runs)"
        )
    return f"80 % bands that have not seen a run's source hold {' and '.join(parts)}."


def collectives() -> str:
    rows = [row for row in collectives_scoring.measured() if row.scored == "yes"]
    middle = float(np.median(np.abs(collectives_scoring.errors(rows))))
    return f"Collectives: median error of bus bandwidth {share(middle, 1)} over {len(rows)} measured rows."


def wholes() -> Iterator[str]:
    own, told = (whole_runs.wholes(describe)[0] for describe in (whole_runs.asked, whole_runs.description))
    good, better = (sum(each.side == "good" for each in found) for found in (own, told))
    yield (
        f"Whole trainings: {good} of {len(own)} that can be compared are within a factor of "
        f"{whole_runs.GOOD} of the published GPU hours with what the publication says of them, {better} of "
        f"{len(told)} when told framework or layout where a source has it; median ratio "
        f"{median(each.ratio for each in own):.2f}, "
        f"80 % bands hold {share(mean(each.held for each in own))}."
    )
    rows = make_achieved.rows()
    old, new = (
        next(row for row in rows if row["architectures"] == "Ampere" and row["norm"] == norm)
        for norm in ("layer", "rms")
    )
    yield (
        f"A publication that names neither framework nor layout is answered at the share of the fastest "
        f"layout's speed that such runs reach: {new['mid']} on Ampere for blocks with RMSNorm "
        f"({new['num_runs']} runs of {new['num_sources']} sources), {old['mid']} for those before "
        f"({old['num_runs']} runs of {old['num_sources']} sources; `planner/data/achieved.csv`). "
        f"Steps and plans are never slowed so."
    )


def constant() -> str:
    """What one share of the peak for all runs would say."""
    rows = []
    estimates = [e for c, e in make_residuals.answered(*FILES["time"]) if c.measured.get(STATED["time"])]
    for each, estimate in zip(judged("time"), estimates, strict=True):
        factor = math.log(CONSTANT_MFU / estimate.speed.mfu)
        rows.append(replace(each.row, log_ratio=each.row.log_ratio + factor))
    return (
        f"For comparison: a constant {share(CONSTANT_MFU)} MFU is {share(accuracy.macro_median(rows))} off."
    )


def fitted() -> str:
    found = accuracy.fitted()
    largest = sorted(found, key=lambda row: -row.num)[:3]
    parts = ", ".join(f"{row.num} {row.name}" for row in largest)
    return (
        f"{sum(row.num for row in found)} constants are fitted ({parts}, …); `plan accuracy` lists them. "
        "None knows a source, a case or a model's name (a test)."
    )


def worst() -> Iterator[str]:
    """The runs that are farthest off, with the reason."""
    every = [*judged("memory"), *judged("time")]
    yield "| the worst | predicted / measured | why |"
    yield "|---|---|---|"
    for each in sorted(every, key=lambda e: -abs(e.row.log_ratio))[:WORST]:
        what = "tokens/s" if each.row.quantity == "step" else "memory"
        yield f"| `{each.case.id}`, {what} | {1 + each.error:.2f} | {WHY[each.case.id]} |"


# ---------------------------------------------------------------------------------- the section


def section() -> str:
    """The whole text between the comments."""
    lines = [
        "`plan accuracy` prints these figures for any grouping; `tests/accuracy/` holds the measured runs,",
        "the scorer, and notes on what helped and what did not. Error = predicted / measured − 1. A cell is",
        "the macro median (median within a source, then the mean over sources with at least 4 runs; in",
        "parentheses the plain median where no source has as many), then, in parentheses, the 90th",
        "percentile. Source left out: fitted constants refitted on the other sources, then the left-out",
        "source predicted (`tests/accuracy/leave_one_out.py`). Nothing was measured on a GPU of our own.",
        "",
        *headline(),
        "",
        *(f"- {said}" for said in (verdicts(), collectives(), bands(), *wholes(), constant(), fitted())),
        "",
        *worst(),
        "",
    ]
    for by in TITLES:
        lines += [*folded(by), ""]
    return "\n".join(lines)


def parts(text: str) -> tuple[str, str, str]:
    """Before, between and after the comments. Raises ``ValueError`` where they are not there."""
    before, rest = text.split(START)
    inside, after = rest.split(END)
    return before, inside, after


def main() -> None:
    """Write the section."""
    before, _, after = parts(README.read_text(encoding="utf-8"))
    README.write_text(f"{before}{START}\n{section()}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
