"""``plan accuracy``: how far predictions were from measured runs, good rows and bad rows alike."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files

import typer

from planner import units
from planner.cli import text
from planner.cli.request import Options, choice
from planner.cli.text import Column, Terminal
from planner.types import Record

GROUPS = ("all", "source", "gpu", "method", "layout", "precision", "size", "scale")
_SHOWN = ("all", "method", "scale", "size")


class AccuracyRow(Record):
    """Errors of a group of measured runs, as shares of what was measured.

    ``macro_median``: median |error| within a source, mean over sources with at least 4 runs; ``None`` where
    no source has as many. ``bias``: median signed error. ``low_share``: runs more than 10 % too low.
    """

    quantity: str
    by: str
    name: str
    num_runs: int
    num_sources: int
    macro_median: float | None
    median: float
    p90: float
    bias: float
    low_share: float


class AccuracyDocument(Record):
    """``plan accuracy --json``."""

    schema_version: int
    rows: tuple[AccuracyRow, ...]


@lru_cache(maxsize=1)
def table() -> tuple[AccuracyRow, ...]:
    """Rows of ``data/accuracy.csv``, which ``tests/accuracy/make_accuracy.py`` writes."""
    content = files("planner").joinpath("data/accuracy.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(content.splitlines())
    return tuple(AccuracyRow.model_validate({k: v or None for k, v in row.items()}) for row in rows)


def run(options: Options) -> int:
    """Print the table, all groups in short or one grouping in full."""
    by = choice(options["by"], GROUPS, "--by")
    rows = [r for r in table() if r.by == by or (by is None and (options["json"] or r.by in _SHOWN))]
    if options["json"]:
        typer.echo(AccuracyDocument(schema_version=1, rows=tuple(rows)).model_dump_json())
    else:
        typer.echo(screen(rows, text.terminal()))
    return 0


def screen(rows: Sequence[AccuracyRow], term: Terminal) -> str:
    """Draw memory and time one after the other."""
    lines: list[str] = []
    for quantity, what in (("memory", "PEAK MEMORY"), ("time", "TOKENS A SECOND AND GPU")):
        lines += [*_part([r for r in rows if r.quantity == quantity], what, term), ""]
    note = (
        "Error: predicted / measured − 1. MACRO: median within a source, mean over sources with at least "
        "4 runs. LOW: share of runs predicted low by more than 10 %. Fitted constants have seen these runs; "
        "errors on sources that they have not seen are larger (tests/accuracy/NOTES.md in the repository)."
    )
    return "\n".join([*lines, *text.paragraph(note, term, hang="")])


def _part(rows: Sequence[AccuracyRow], what: str, term: Terminal) -> Iterator[str]:
    columns = [Column(what), Column("RUNS", right=True), Column("SOURCES", right=True)]
    columns += [Column(t, right=True) for t in ("MACRO", "MEDIAN", "90 %", "BIAS", "LOW")]
    return iter(text.table(columns, [_cells(r) for r in rows], term.width))


def _cells(r: AccuracyRow) -> tuple[str, ...]:
    return (
        f"{r.by}: {r.name}" if r.by != "all" else "all",
        str(r.num_runs),
        str(r.num_sources),
        "–" if r.macro_median is None else units.percent(r.macro_median, 1),
        units.percent(r.median, 1),
        units.percent(r.p90, 1),
        units.signed_percent(r.bias),
        units.percent(r.low_share),
    )
