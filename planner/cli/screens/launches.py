"""The screen of ``plan ls``: launches, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from planner import units
from planner.cli import text
from planner.cli.launch.rows import LaunchRow
from planner.cli.text import Column, Terminal


def launches(rows: Sequence[LaunchRow], num_plans: int, now: datetime, term: Terminal) -> str:
    """Draw the launches, newest first."""
    plans = f"{num_plans} saved plans: plan ls --plans" if num_plans else "No plans saved."
    if not rows:
        return f"No launches. {plans}"
    columns = [Column("LAUNCH"), Column("PLAN", 14), *([Column("WHERE", 12)] if term.wide else [])]
    columns += [Column("STATE"), Column("$/h", right=True), Column("SPENT", 6, right=True)]
    columns += [Column("FORECAST", 12), Column("ENDS")]
    cells = [_cells(row, now, term) for row in rows]
    lost = [line for row in rows if row.lost for line in text.paragraph(lost_work(row), term)]
    return "\n".join([*text.table(columns, cells, term.width), *lost, plans])


def lost_work(row: LaunchRow) -> str:
    """Say how often machines were taken away and what is done again; what is not known is not summed."""
    times = "once" if len(row.lost) == 1 else f"{len(row.lost)} times"
    steps = [x.steps for x in row.lost if x.steps is not None]
    seconds = [x.seconds for x in row.lost if x.seconds is not None]
    whole = len(steps) == len(row.lost)
    said = f"{'' if whole else 'at least '}{sum(steps)} steps" if steps else "an unknown number of steps"
    took = units.duration(sum(seconds)) if seconds else "an unknown time"
    at_least = "at least " if seconds and len(seconds) < len(row.lost) else ""
    return (
        f"{row.launch_id}: machines were taken away {times}; lost work: {said}, {at_least}{took};"
        f" ${units.usd_cents(row.lost_usd)} more in the forecast"
    )


def _cells(row: LaunchRow, now: datetime, term: Terminal) -> list[str]:
    alive = row.state != "gone"
    left = "" if row.deadline is None else units.age(max(0.0, (row.deadline - now).total_seconds()))
    spent = units.usd_cents(row.spent_usd)
    forecast = "–" if row.forecast_usd is None or not alive else units.usd_band(row.forecast_usd)
    hourly = units.usd_cents(row.usd_per_hour) if alive else "–"
    state = row.state if row.outcome in (None, "committed", "torn_down") else f"{row.state}, {row.outcome}"
    return [
        row.launch_id,
        row.plan_id,
        *([describe_place(row)] if term.wide else []),
        state.replace("_", " "),
        hourly,
        text.keep(f"≥ {spent}") if row.unknown else spent,
        forecast,
        text.keep(f"in {left}") if alive and left else "–",
    ]


def describe_place(row: LaunchRow) -> str:
    """Provider, place and machines of a launch."""
    if row.provider == "local":
        return "this machine"
    return f"{row.num_nodes} × {row.instance_type}, {row.provider} {row.region}".rstrip()
