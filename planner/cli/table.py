"""``plan table``: the least GPU memory by size of model, against the rule of thumb."""

from __future__ import annotations

from typing import get_args

import typer

from planner import types, units
from planner.cli import text
from planner.cli.request import Options, choice
from planner.cli.screens import guide as screens_guide
from planner.errors import UserError
from planner.guide.table import Assumed, MemoryTable, memory_table

SCHEMA_VERSION = 1
MOST_SIZES = 40


class TableDocument(MemoryTable):
    """``plan table --json``. Memory is in bytes."""

    schema_version: int


def run(options: Options) -> int:
    """Print the table."""
    found = memory_table(_sizes(options["params"]), _assumed(options))
    if options["json"]:
        document = TableDocument(schema_version=SCHEMA_VERSION, assumed=found.assumed, rows=found.rows)
        typer.echo(document.model_dump_json())
    else:
        typer.echo(screens_guide.table(found, text.terminal()))
    return 0


def _sizes(listed: str | None) -> tuple[float, ...]:
    """Sizes of the option, each once, in the order asked."""
    if listed is None:
        return ()
    found = [units.parse_count(part, "--params", low=1e6, high=1e12) for part in listed.split(",")]
    if len(found) > MOST_SIZES:
        raise UserError(f"--params: {len(found)} sizes, at most {MOST_SIZES}", "--params 350M,1B,7B")
    return tuple(dict.fromkeys(found))


def _assumed(options: Options) -> Assumed:
    seq_len, micro_batch, headroom = options["seq_len"], options["micro_batch"], options["headroom"]
    return Assumed(
        seq_len=2048 if seq_len is None else units.parse_int(seq_len, "--seq-len", high=10_000_000),
        micro_batch=1 if micro_batch is None else units.parse_int(micro_batch, "--micro-batch", high=100_000),
        optimizer=choice(options["optimizer"], get_args(types.Optimizer), "--optimizer") or "adamw",  # type: ignore[arg-type]
        headroom=0.2 if headroom is None else units.parse_fraction(headroom, "--headroom"),
    )
