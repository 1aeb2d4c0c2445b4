"""The report as Markdown for a pull-request comment: a sentence, a small table, the rest folded away."""

from __future__ import annotations

from collections.abc import Iterator

from planner import units
from planner.cli.report import tables
from planner.cli.report.tables import Section
from planner.report.nouns import Report


def text(r: Report) -> str:
    """Write the report."""
    return "\n".join(_lines(r)) + "\n"


def _lines(r: Report) -> Iterator[str]:
    yield f"**{r.headline}**"
    if r.over_budget_on is not None:
        yield f"\nAt today's rate the budget is used up on {r.over_budget_on}."
    if r.forecast_usd is not None:
        yield f"\nForecast at the end: {units.usd_band(r.forecast_usd)}."
    first, *rest = tables.sections(r) or (None,)
    if first is not None:
        yield ""
        yield from _table(first)
    for section in rest:
        yield ""
        yield f"<details><summary>{section.title}</summary>"
        yield ""
        if section.said:
            yield section.said
            yield ""
        yield from _table(section)
        yield ""
        yield "</details>"


def _table(section: Section) -> Iterator[str]:
    """Write one table."""
    if not section.rows:
        return
    yield from tables.plain_rows([[c.title for c in section.columns]])
    yield "|" + "|".join("---:" if c.right else "---" for c in section.columns) + "|"
    yield from tables.plain_rows(section.rows)
