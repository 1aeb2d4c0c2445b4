"""``plan ls --orphans``: what carries a tag of ours and no ledger row explains. Nothing is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import typer

from clusters.launch.adopting import Orphan
from planner import units
from planner.cli import text
from planner.cli.launch import clouds_asked, ledger
from planner.cli.launch import hands as launch_hands
from planner.cli.launch.clouds_asked import Answers, Asked
from planner.cli.launch.progress import screen_for
from planner.cli.request import Options
from planner.cli.text import Column, Terminal
from planner.types import Record

SCHEMA_VERSION = 1


class OrphansDocument(Record):
    """``plan ls --orphans --json``."""

    schema_version: int
    made: datetime
    orphans: tuple[Orphan, ...]
    asked: tuple[Asked, ...]


def run(options: Options) -> int:
    """Ask the clouds and list."""
    hands = launch_hands.hands({"no_calibration": True}, screen_for(json=False, quiet=False))
    found = clouds_asked.ask(regions_of(options), ledger.launches(), hands)
    now = datetime.now(UTC)
    if options["json"]:
        document = OrphansDocument(
            schema_version=SCHEMA_VERSION, made=now, orphans=found.orphans, asked=found.asked
        )
        typer.echo(document.model_dump_json())
        return 0
    if options["quiet"]:
        for orphan in found.orphans:
            typer.echo(orphan.launch_id)
    else:
        typer.echo("\n".join(screen(found, now, text.terminal())))
    for line in not_asked(found):
        typer.echo(line, err=True)
    return 0


def regions_of(options: Options) -> tuple[str, ...]:
    """Regions that the user named."""
    return tuple(r.strip() for r in (options["region"] or "").split(",") if r.strip())


def not_asked(found: Answers) -> Iterator[str]:
    """One line for the clouds that did not answer, by what would help: what is there is not known."""
    silent: dict[tuple[str, str], list[Asked]] = {}
    for asked in found.asked:
        if not asked.answered:
            silent.setdefault((asked.kind, asked.hint), []).append(asked)
    for (kind, hint), those in silent.items():
        where = ", ".join(a.where for a in those)
        said = f"not known: {kind}, {where}: {those[0].why}{f' ({hint})' if hint else ''}"
        yield "\n".join(text.paragraph(said, text.terminal()))


def screen(found: Answers, now: datetime, term: Terminal) -> Iterator[str]:
    """Draw what was found, launch by launch."""
    asked = ", ".join(_where(a) for a in found.asked if a.answered) or "none"
    if not found.orphans:
        yield from text.paragraph(f"No orphans where a cloud answered. Asked: {asked}.", term)
        return
    for orphan in found.orphans:
        yield from _orphan(orphan, now, term)
        yield ""
    yield from text.paragraph(f"Asked: {asked}. Nothing was deleted.", term)


def _where(asked: Asked) -> str:
    return asked.where if asked.kind == "local" else f"{asked.kind} {asked.where}"


def _orphan(orphan: Orphan, now: datetime, term: Terminal) -> Iterator[str]:
    yield from text.paragraph(headline(orphan, now), term)
    columns = [Column("KIND"), Column("ID"), Column("STATE"), Column("PLACE"), Column("BILLS")]
    cells = [[r.kind, r.id, r.state, r.place, "yes" if r.bills else "no"] for r in orphan.resources]
    yield from text.table(columns, cells, term.width, "  ")
    yield f"  plan adopt {orphan.launch_id}   takes it over; by hand:"
    for resource in orphan.resources:
        yield f"    {resource.hint or 'no command is known'}"


def headline(orphan: Orphan, now: datetime) -> str:
    """Name an orphan with what its tags say."""
    marks = orphan.marks
    why = "no row in this ledger" if orphan.why == "no-row" else "the ledger says that it is gone"
    said = [f"{orphan.launch_id}, {orphan.kind}: {why}"]
    said.append(f"owner {marks.owner}" if marks.owner else "owner unknown")
    said.append(f"plan {marks.plan_id}" if marks.plan_id else "plan unknown")
    if marks.deadline is None:
        said.append("when it ends itself is unknown")
    elif marks.deadline > now:
        left = units.age((marks.deadline - now).total_seconds())
        said.append(text.keep(f"ends itself in {left}"))
    else:
        said.append(text.keep("its deadline has passed"))
    said.append("something of it bills" if orphan.bills else "nothing of it bills")
    return "; ".join(said)
