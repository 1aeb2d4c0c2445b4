"""The screen of what changes on the way to a plan (``plan suggest --from``)."""

from __future__ import annotations

from collections.abc import Iterator

from planner import units
from planner.cli import text
from planner.cli.text import Column, Terminal
from planner.guide.moving import Moving


def moving(found: Moving, term: Terminal) -> str:
    """Draw the moves, one table each, and what to do about each change."""
    start = found.start
    lines = text.paragraph(
        f"From {start.num_gpus}× {start.gpu} to #1 ({found.plan_id}): {_hours(found)}", term, hang=""
    )
    if not found.moves:
        lines.append("  nothing changes")
    for move in found.moves:
        lines += ["", move.title]
        rows = [[c.what, c.before, c.after] for c in move.changes]
        columns = [Column("WHAT", 12), Column("BEFORE", 14), Column("AFTER", 24)]
        lines += [*text.table(columns, rows, term.width - 2, indent="  "), *_todo(found, move.title, term)]
    return "\n".join(lines)


def _hours(found: Moving) -> str:
    """Time of the whole training at both ends."""
    before = "does not fit there" if found.hours_before is None else units.hours_band(found.hours_before)
    return f"{before} → {units.hours_band(found.hours_after)} of training, set-up and probe left out"


def _todo(found: Moving, title: str, term: Terminal) -> Iterator[str]:
    """What to do about each change of a move."""
    (move,) = (m for m in found.moves if m.title == title)
    for change in move.changes:
        yield from text.paragraph(f"{change.what}: {change.do}", term, indent="    ")
