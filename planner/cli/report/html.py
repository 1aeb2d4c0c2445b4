"""The report as one self-contained page: no script, no request, pictures inside, each with its table."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from planner import units
from planner.cli.report import charts, tables
from planner.cli.report.tables import Section
from planner.report.nouns import Report


def page(r: Report) -> str:
    """Draw the page. Raises ``UserError`` where matplotlib is not installed."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    drawn = [replace(s, svg=_picture(s, r)) for s in tables.sections(r)]
    return environment.get_template("report.html.j2").render(
        r=r,
        big=_big(r),
        made=f"{r.made:%Y-%m-%d %H:%M} UTC",
        sections=drawn,
        version=version("plan"),
    )


def _big(r: Report) -> str:
    """The one number that counts."""
    if r.forecast_usd is not None:
        return units.usd(r.forecast_usd.mid)
    if any(row.launch_id for row in r.runs):
        return f"{'' if r.spent_is_complete else '≥ '}{units.usd(r.spent_usd)}"
    if not r.runs or r.runs[0].predicted_usd.high <= 0:
        return units.UNKNOWN
    least = "" if r.runs[0].predicted_is_complete else "≥ "
    return f"{least}{units.usd(r.runs[0].predicted_usd.mid)}"


def _picture(section: Section, r: Report) -> str:
    """Picture of a section, where it has one."""
    budget = None if r.budget_usd is None else float(r.budget_usd)
    if section.id == "budget":
        return charts.budget(r.budget_parts, budget)
    if section.id == "dots":
        return charts.cost_and_time(r.dots, budget)
    if section.id == "memory":
        return charts.memory(r.memory)
    if section.id == "sensitivity":
        mid = sum(p.usd or 0.0 for p in r.budget_parts if p.name != "spread of time and price")
        return charts.tornado(r.sensitivity, mid)
    if section.id == "burn":
        return charts.burn_down(r.burn, budget)
    if section.id == "predictions" and r.predictions:
        return charts.predicted_and_measured(r.predictions)
    return ""
