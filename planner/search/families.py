"""Families of layouts: what names one, and how complex it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array
from planner.layouts import FIELDS, ROW


def complexity(table: Array) -> Array:
    """Rate what each layout asks of whoever runs it: ways to split the model, how far state is sharded."""
    row = {name: table[ROW[name]] for name in FIELDS}
    splits = sum((row[name] > 1) * 1.0 for name in ("tp", "pp", "cp", "ep", "interleave"))
    hybrid = row["shard_group"] < row["dp"] * row["cp"]
    return np.asarray(10.0 * splits + row["zero_stage"] + hybrid)


FAMILIES = (
    "one GPU",
    "ddp",
    "zero-1",
    "zero-2",
    "fsdp",
    "hybrid shard",
    "tensor",
    "pipeline",
    "interleaved pipeline",
    "fsdp + pipeline",
    "context",
    "expert",
    "offload",
    "8-bit optimizer",
)


def family_codes(table: Array) -> NDArray[np.int64]:
    """Position in ``FAMILIES`` of each layout: the rarest thing that it does names it."""
    row = {name: table[ROW[name]] for name in FIELDS}
    ranks = row["dp"] * row["cp"]
    stage, pipeline = row["zero_stage"], row["pp"] > 1
    offload = row["offload_optimizer"] + row["offload_activations"] > 0
    sharded = (stage == 3) & (ranks > 1)
    rules = (
        ("offload", offload),
        ("expert", row["ep"] > 1),
        ("context", row["cp"] > 1),
        ("fsdp + pipeline", pipeline & sharded),
        ("interleaved pipeline", row["interleave"] > 1),
        ("pipeline", pipeline),
        ("tensor", row["tp"] > 1),
        ("one GPU", ranks == 1),
        ("hybrid shard", sharded & (row["shard_group"] < ranks)),
        ("fsdp", stage == 3),
        ("zero-2", stage == 2),
        ("zero-1", stage == 1),
        ("ddp", stage == 0),
    )
    codes = [FAMILIES.index(name) for name, _ in rules]
    return np.select([mask for _, mask in rules], codes).astype(np.int64)
