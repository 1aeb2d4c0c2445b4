"""``plan calibrate``: the user's measured runs correct what is predicted for runs like them."""

from __future__ import annotations

import sys

import typer

from planner import calibration, units
from planner.calibration import Calibrated, Calibration
from planner.cli import calibration_store, text
from planner.cli.models import read_text
from planner.cli.request import Options
from planner.cli.text import Column, Terminal
from planner.errors import UserError
from planner.types import Record


class CalibrationDocument(Record):
    """``plan calibrate --json``. Errors are predicted / measured − 1; medians are of |error|."""

    schema_version: int
    figures: tuple[Calibrated, ...]
    median_error_before: float
    median_error_after: float
    median_error_left_out: float


def run(options: Options) -> int:
    """Read measured runs, keep them, and show the errors before and after."""
    path = options["file"]
    if options["reset"]:
        if path is not None:
            raise UserError("--reset takes no file", "plan calibrate --reset")
        gone = calibration_store.remove()
        typer.echo("Calibration removed." if gone else "There was no calibration.")
        return 0
    if path is None:
        raise UserError("name a file of measured runs", "plan calibrate runs.jsonl")
    content = sys.stdin.read() if path == "-" else read_text(path, "plan calibrate")
    lines = tuple(content.splitlines())
    figures = calibration.own_figures(lines)
    found = calibration.calibration(figures)
    calibration_store.save(lines)
    if options["json"]:
        typer.echo(_document(found).model_dump_json())
    else:
        typer.echo(screen(found, text.terminal()))
    return 0


def _document(found: Calibration) -> CalibrationDocument:
    return CalibrationDocument(
        schema_version=1,
        figures=found.figures,
        median_error_before=found.median_error("before"),
        median_error_after=found.median_error("after"),
        median_error_left_out=found.median_error("left_out"),
    )


def screen(found: Calibration, term: Terminal) -> str:
    """Draw the errors of each figure, and what follows."""
    columns = [Column("RUN"), Column("MEASURED"), Column("BEFORE", right=True), Column("AFTER", right=True)]
    columns.append(Column("FROM THE OTHERS", right=True))
    cells = [
        (f.id, "step time" if f.quantity == "step" else f.quantity, *map(_percent, _errors(f)))
        for f in found.figures
    ]
    before, after, others = (units.percent(found.median_error(w), 1) for w in ("before", "after", "left_out"))
    said = (
        f"Median error {before} before, {after} after; {others} where each run is predicted from the others "
        "alone. suggest and estimate use these runs from now on, for runs like them; --no-calibration leaves "
        "them out, plan calibrate --reset forgets them."
    )
    return "\n".join([*text.table(columns, cells, term.width), "", *text.paragraph(said, term, hang="")])


def _errors(figure: Calibrated) -> tuple[float, float, float]:
    return figure.before, figure.after, figure.left_out


def _percent(share: float) -> str:
    return units.signed_percent(share)
