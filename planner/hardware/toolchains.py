"""The oldest toolkit and driver that know a GPU, from ``data/toolchains.csv``."""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

from planner.types import Record


class Toolchain(Record):
    """First toolkit that builds for a compute capability, and the driver (Linux) that it came with."""

    compute_capability: str
    toolkit: str
    version: str
    driver: str
    source: str
    source_date: str


@lru_cache(maxsize=1)
def toolchains() -> dict[str, Toolchain]:
    """All rows by compute capability."""
    text = files("planner").joinpath("data/toolchains.csv").read_text(encoding="utf-8")
    return {r["compute_capability"]: Toolchain.model_validate(r) for r in csv.DictReader(text.splitlines())}
