"""How many constants the data files say are fitted, or may be: the counts of ``planner/data/fitted.csv``."""

from __future__ import annotations

import csv
import math
import tomllib
from importlib.resources import files
from pathlib import Path

from planner.trust import accuracy

FILE = Path(accuracy.__file__).parents[1] / "data" / "fitted.csv"
SPEED_KEYS = (
    "launch_us", "graph_share", "overlap_data", "overlap_gather", "overlap_tensor", "overlap_pipeline",
    "overlap_expert", "overlap_context", "step_overhead_s", "micro_batch_overhead_s", "idle_share",
    "expert_imbalance",
)  # fmt: skip
MEMORY_KEYS = ("extra_bytes_per_param", "fragmentation")


def read(name: str) -> str:
    return files("planner").joinpath(f"data/{name}").read_text(encoding="utf-8")


def counted(name: str) -> int:
    """Constants of a data file."""
    if name.startswith("data/efficiency_sustained"):
        return sum(
            r["basis"] == "fitted" for r in csv.DictReader(read("efficiency_sustained.csv").splitlines())
        )
    if name.startswith("data/efficiency_attention"):
        rows = [
            r for r in csv.DictReader(read("efficiency_attention.csv").splitlines()) if r["basis"] == "fitted"
        ]
        return sum(not math.isnan(number(cell)) for row in rows for cell in row.values())
    if name.startswith("data/frameworks.toml, keys of speed"):
        return profile_values("speed", SPEED_KEYS)
    if name.startswith("data/frameworks.toml, keys of memory"):
        return profile_values("memory", MEMORY_KEYS)
    if name.startswith("data/achieved"):
        return 3 * len(list(csv.DictReader(read("achieved.csv").splitlines())))
    rows = list(csv.DictReader(read("nearness.csv").splitlines()))
    return sum(bool(row[c]) and float(row[c]) != 0 for row in rows for c in ("memory", "step", "own"))


def number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def profile_values(section: str, keys: tuple[str, ...]) -> int:
    profiles = tomllib.loads(read("frameworks.toml"))["profile"].values()
    return sum(key in profile.get(section, {}) for profile in profiles for key in keys)


def is_counted(where: str) -> bool:
    """Whether the number is read off a data file; else somebody counted by hand."""
    return where.startswith("data/") and "links" not in where


def refresh() -> None:
    """Write today's counts."""
    rows = [row.model_dump() for row in accuracy.fitted()]
    for row in rows:
        row["num"] = counted(row["where"]) if is_counted(row["where"]) else row["num"]
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
