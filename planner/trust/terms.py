"""Formula, source and basis of each term of memory and time, from ``data/terms.csv``."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Term:
    """How a term of memory or time is made; ``basis``: exact, measured, modelled, fitted or assumed."""

    formula: str
    basis: str
    source: str


@lru_cache(maxsize=1)
def terms() -> dict[tuple[str, str], Term]:
    """Terms by (kind, name)."""
    content = files("planner").joinpath("data/terms.csv").read_text(encoding="utf-8")
    return {
        (row["kind"], row["term"]): Term(row["formula"], row["basis"], row["source"])
        for row in csv.DictReader(content.splitlines())
    }
