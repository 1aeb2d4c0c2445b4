"""``plan report`` in a terminal: one row a run, what was spent, what is to come."""

from __future__ import annotations

from collections.abc import Iterator

from planner import units
from planner.cli import text
from planner.cli.report import tables
from planner.cli.report.tables import Section
from planner.cli.text import Terminal
from planner.report.nouns import Report


def draw(r: Report, term: Terminal) -> str:
    """Draw the report."""
    return "\n".join(_lines(r, term))


def _lines(r: Report, term: Terminal) -> Iterator[str]:
    yield from text.paragraph(r.headline, term)
    for section in (tables.runs(r), tables.groups(r)):
        if section is not None:
            yield ""
            yield from _table(section, term)
    if any(row.launch_id for row in r.runs):
        yield ""
        yield from text.paragraph(to_date(r), term)
        yield from _bills(r, term)
        yield from text.paragraph(tables.errors_said(r), term)


def _table(section: Section, term: Terminal) -> list[str]:
    return text.table(section.columns, section.rows, term.width, " ")


def to_date(r: Report) -> str:
    """Spent of the budget, forecast, and the day it breaks."""
    of = "" if r.budget_usd is None else f" of {units.usd(r.budget_usd)}"
    said = [f"TO DATE  {'' if r.spent_is_complete else '≥ '}${units.usd_cents(r.spent_usd)}{of}"]
    if r.billed_usd is not None:
        said.append(f"billed ${units.usd_cents(r.billed_usd)}")
    if r.forecast_usd is not None:
        forecast = f"forecast at the end {units.usd_band(r.forecast_usd)}"
        said.append(forecast + (f", OVER from {r.over_budget_on}" if r.over_budget_on else ""))
    return " · ".join(said)


def _bills(r: Report, term: Terminal) -> Iterator[str]:
    """Explain bills that are not what was counted."""
    for row in r.runs:
        if row.billed_usd is not None and row.billed_why not in ("", "as counted"):
            yield from text.paragraph(f"{row.launch_id}: {row.billed_why}", term)
