"""Vendors' GPU strings -> our GPU ids. What is not known is counted and shown, never dropped or guessed.

Order: a row of ``data/names.csv`` for that provider, then the names and aliases of the GPU table.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

from planner.errors import UserError
from planner.hardware.gpus import gpu


@lru_cache(maxsize=1)
def _own_names() -> dict[tuple[str, str], str]:
    """Map (provider, vendor's string in lower case) to a GPU id, from ``data/names.csv``."""
    text = files("providers").joinpath("data/names.csv").read_text(encoding="utf-8")
    return {(r["provider"], r["name"].lower()): r["gpu"] for r in csv.DictReader(text.splitlines())}


@lru_cache(maxsize=4096)
def gpu_id(provider: str, name: str) -> str | None:
    """GPU id of ``name`` as ``provider`` writes it; ``None`` where it is unknown or fits several GPUs."""
    own = _own_names().get((provider, name.strip().lower()))
    if own is not None:
        return own
    try:
        return gpu(name).id
    except UserError:
        return None
