"""``plan accuracy``: how far predictions were from measured runs, good rows and bad rows alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import typer

from planner import units
from planner.cli import text
from planner.cli.request import Options, choice
from planner.cli.text import Column, Terminal
from planner.trust import accuracy, residuals
from planner.trust.accuracy import AccuracyRow, Fitted
from planner.types import Record

GROUPS = tuple(accuracy.KEYS)
_SHOWN = ("all", "method", "scale", "size")


class AccuracyDocument(Record):
    """``plan accuracy --json``."""

    schema_version: int
    rows: tuple[AccuracyRow, ...]
    fitted: tuple[Fitted, ...]
    num_fitted: int


def run(options: Options) -> int:
    """Print the table, all groups in short or one grouping in full."""
    by = choice(options["by"], GROUPS, "--by")
    measured, fitted = residuals.shipped_rows(), accuracy.fitted()
    rows = [
        r
        for r in accuracy.table(measured)
        if r.by == by or (by is None and (options["json"] or r.by in _SHOWN))
    ]
    if options["json"]:
        typer.echo(_document(rows).model_dump_json())
    else:
        typer.echo(screen(rows, text.terminal()))
        typer.echo("\n".join(["", *constants(fitted, len(measured), text.terminal())]))
    return 0


def _document(rows: Sequence[AccuracyRow]) -> AccuracyDocument:
    fitted = accuracy.fitted()
    return AccuracyDocument(
        schema_version=1, rows=tuple(rows), fitted=fitted, num_fitted=sum(f.num for f in fitted)
    )


def constants(fitted: Sequence[Fitted], num_figures: int, term: Terminal) -> list[str]:
    """Say how many constants were fitted, and to what."""
    columns = [Column("FITTED"), Column("", right=True), Column("IN")]
    cells = [(f.name, str(f.num), f.where) for f in fitted]
    total = sum(f.num for f in fitted)
    head = f"{total} fitted constants; {num_figures} figures of memory and time are measured."
    return [*text.paragraph(head, term), *text.table(columns, cells, term.width)]


def screen(rows: Sequence[AccuracyRow], term: Terminal) -> str:
    """Draw memory and time one after the other."""
    lines: list[str] = []
    for quantity, what in (("memory", "PEAK MEMORY"), ("time", "TOKENS A SECOND AND GPU")):
        lines += [*_part([r for r in rows if r.quantity == quantity], what, term), ""]
    note = (
        "Error: predicted / measured − 1. MACRO: median within a source, mean over sources with at least "
        "4 runs (in parentheses the plain median, where no source has as many). LOW: share of runs predicted "
        "low by more than 10 %. LEFT OUT: macro and 90th percentile where the fitted constants were refitted "
        "without the source that is predicted. By source, gpu, layout, precision and more: --by."
    )
    return "\n".join([*lines, *text.paragraph(note, term, hang="")])


def _part(rows: Sequence[AccuracyRow], what: str, term: Terminal) -> Iterator[str]:
    columns = [Column(what), Column("RUNS", right=True), Column("SOURCES", right=True)]
    columns += [Column(t, right=True) for t in ("MACRO", "90 %", "BIAS", "LOW", "LEFT OUT", "90 %")]
    return iter(text.table(columns, [_cells(r) for r in rows], term.width))


def _cells(r: AccuracyRow) -> tuple[str, ...]:
    return (
        f"{r.by}: {r.name}" if r.by != "all" else "all",
        str(r.num_runs),
        str(r.num_sources),
        _macro(r.macro_median, r.median),
        units.percent(r.p90),
        units.signed_percent(r.bias),
        units.percent(r.low_share),
        "–" if r.left_out_macro_median is None else units.percent(r.left_out_macro_median, 1),
        "–" if r.left_out_p90 is None else units.percent(r.left_out_p90),
    )


def _macro(macro: float | None, plain: float) -> str:
    """Macro median; in parentheses the plain one, where no source has enough runs."""
    return units.percent(macro, 1) if macro is not None else f"({units.percent(plain, 1)})"
