"""Search for the distances of ``planner/data/nearness.csv``: narrow bands that hold with a source left out.

``PYTHONPATH=.:tests/accuracy python tests/accuracy/fit_nearness.py memory|step [SECONDS]`` prints what it
found, to be rounded and written into the file by hand: a random walk from the values that stand there. It
makes the interval score for 80 % small (width + 10 x what is missed; Gneiting and Raftery 2007), a run
weighing 1 / sqrt(runs of its source), and more where classes with at least 30 runs are outside 77 to 86 %.
Every run is judged twice, as shipped and with the constants refitted without its source.
``refresh`` sets the two ends alone, after any change of the residuals; ``make_residuals.py`` calls it.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from test_bands_hold import CLASSES, SIZEABLE

from planner.trust import nearness
from planner.trust.residuals import Residual, shipped_rows

FIXED = ("lonely", "unseen", "narrowest", "noise")
BOUNDS = {"crowd": (0.2, 1.0), "low": (1.0, 3.5), "high": (1.0, 3.5), "most": (0.2, 1.5)}
LARGEST = 5.0
ENDS = np.arange(1.2, 2.11, 0.06)
LEAST, MOST = 0.752, 0.878
LARGEST_TAIL = 0.12
FILE = Path(nearness.__file__).parents[1] / "data" / "nearness.csv"


@dataclass(frozen=True)
class Problem:
    """Runs of one quantity, how they differ in each thing, and which classes they are in."""

    judged: tuple[np.ndarray, np.ndarray]  # logarithms of measured over predicted: as shipped, left out
    differ: dict[str, np.ndarray]
    one_source: np.ndarray
    by_source: np.ndarray
    weight: np.ndarray
    classes: list[np.ndarray]


def problem(quantity: str) -> Problem:
    rows = [row for row in shipped_rows() if (row.quantity == "step") == (quantity == "step")]
    traits = nearness.traits([row.features for row in rows])
    differ = {name: unlike(codes) for name, codes in traits.codes.items()}
    differ["split"] = sum(unlike(each) for each in traits.splits)
    differ |= {name: np.abs(logs[:, None] - logs) for name, logs in traits.logs.items()}
    differ["figure"] = unlike(np.array([row.quantity for row in rows]))
    source = np.unique([row.source for row in rows], return_inverse=True)[1]
    by_source = np.eye(source.max() + 1)[source]
    return Problem(
        judged=(
            np.array([row.log_ratio for row in rows]),
            np.array([row.log_ratio if row.left_out is None else row.left_out for row in rows]),
        ),
        differ=differ,
        one_source=source[:, None] == source,
        by_source=by_source,
        weight=by_source.sum(axis=0)[source] ** -0.5,
        classes=[c for key in CLASSES.values() for c in members(rows, key)],
    )


def unlike(values: np.ndarray) -> np.ndarray:
    return (values[:, None] != values).astype(float)


def members(rows: list[Residual], key: Callable[[Residual], str]) -> list[np.ndarray]:
    names = np.array([key(row) for row in rows])
    return [names == name for name in np.unique(names) if (names == name).sum() >= SIZEABLE]


def ends(of: Problem, per: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Low and high end of each run's band, as ``nearness`` has it, from the other sources."""
    far = sum(per[name] * part for name, part in of.differ.items() if per[name])
    weight = np.where(of.one_source, 0.0, np.exp(-far))
    size = sum(np.minimum(np.abs(ratio), per["most"]) for ratio in of.judged) / 2
    near, sizes = weight @ of.by_source, (weight * size) @ of.by_source
    power = np.maximum(near, 1e-300) ** (per["crowd"] - 1.0)
    count = of.by_source.sum(axis=0)
    crowd = count ** per["crowd"]
    mean = size @ of.by_source / count
    others = 1.0 - of.by_source
    everywhere = others @ (mean * crowd) / (others @ crowd)
    total = (near * power).sum(axis=1)
    alone = per["parent"] / (total + per["parent"])
    scale = (1 - alone) * (sizes * power).sum(axis=1) / np.maximum(total, 1e-300) + alone * everywhere
    seen = ((of.differ["gpu"] == 0) & ~of.one_source).any(axis=1)
    scale = scale * (1 + per["lonely"] * alone) * np.where(seen, 1.0, per["unseen"])
    low, high = (np.maximum(per[side] * scale, per["narrowest"]) for side in ("low", "high"))
    return -low, high


def score(of: Problem, per: dict[str, float]) -> tuple[float, float]:
    """What is to be small, and the share of runs that are held."""
    low, high = ends(of, per)
    interval, held = 0.0, np.zeros(len(low))
    for ratio in of.judged:
        missed = np.maximum(low - ratio, 0) + np.maximum(ratio - high, 0)
        interval += np.average(np.minimum(high - low + 10 * missed, 3.0), weights=of.weight) / 2
        held += (missed == 0) / 2
    shares = [held.mean(), held.mean(), *(held[c].mean() for c in of.classes)]
    outside = sum(max(0.0, 0.77 - share, share - 0.86) for share in shares)
    return float(interval * (1 + 0.8 * outside)), float(held.mean())


def outside(of: Problem, per: dict[str, float]) -> float:
    """By how much the shares held in classes are beyond what the test asks, and a tail is too large."""
    low, high = ends(of, per)
    below, above = (
        sum(part.astype(float) for part in side) / 2
        for side in zip(*((ratio < low, ratio > high) for ratio in of.judged), strict=True)
    )
    held = 1.0 - below - above
    one_sided = max(0.0, below.mean() - LARGEST_TAIL, above.mean() - LARGEST_TAIL)
    return round(
        one_sided + sum(max(0.0, LEAST - held[c].mean(), held[c].mean() - MOST) for c in of.classes), 3
    )


def walk(quantity: str, seconds: float) -> dict[str, float]:
    """Best distances found in the time."""
    of, rng = problem(quantity), np.random.default_rng(0)
    best = dict(nearness.distances()[quantity])
    least, held = score(of, best)
    print(f"{quantity}: score {least:.3f}, {held:.1%} held")
    names = [name for name in best if name not in FIXED]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tried = dict(best)
        for name in rng.choice(names, rng.integers(1, 4), replace=False):
            moved = max(tried[name], 0.05) * np.exp(rng.normal(0, 0.15 if name in BOUNDS else 0.6))
            tried[name] = float(np.clip(moved, *BOUNDS.get(name, (0.0, LARGEST))))
        found, share = score(of, tried)
        if found < least:
            best, least, held = tried, found, share
    print(f"{quantity}: score {least:.3f}, {held:.1%} held")
    return best


def refresh() -> None:
    """Set ``low`` and ``high`` of both quantities so that bands hold in every class, the rest as it is."""
    shipped_rows.cache_clear()
    found = {}
    for quantity in ("memory", "step"):
        of, per = problem(quantity), dict(nearness.distances()[quantity])
        tried = [{**per, "low": low, "high": high} for low in ENDS for high in ENDS]
        best = min(tried, key=lambda each: (outside(of, each), score(of, each)[0]))
        found[quantity] = {end: f"{best[end]:.2f}" for end in ("low", "high")}
    with FILE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for quantity, values in found.items():
            row[quantity] = values.get(row["name"], row[quantity])
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    for key, value in walk(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 60.0).items():
        print(f"{key:14} {value:.2f}")
