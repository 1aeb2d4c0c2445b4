"""``plan report compare p-1 p-2``: what differs between two plans."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import typer

from planner import units
from planner.cli import describe, store, text
from planner.cli.request import Options
from planner.cli.text import Column
from planner.results import Candidate, CostLine, Plan
from planner.types import Band, Record

SCHEMA_VERSION = 1


class Difference(Record):
    """One thing that two plans have, each in words; ``change``: from the first to the second."""

    name: str
    first: str
    second: str
    change: str


class DifferencesDocument(Record):
    """``plan report compare --json``."""

    schema_version: int
    first: str
    second: str
    differences: tuple[Difference, ...]


def run(options: Options) -> int:
    """Compare two plans; lines that are the same in both are left out."""
    first, second = store.find(options["first"]), store.find(options["second"])
    found = tuple(differences(first, second))
    if options["json"]:
        document = DifferencesDocument(
            schema_version=SCHEMA_VERSION, first=first.id, second=second.id, differences=found
        )
        typer.echo(document.model_dump_json())
    else:
        typer.echo("\n".join(_screen(first, second, found)))
    return 0


def differences(first: Plan, second: Plan) -> Iterator[Difference]:
    """Everything in which two plans differ."""
    a, b = first.candidate, second.candidate
    for name, says in (
        ("model", lambda c: describe.model(c.run.model)),
        ("training", lambda c: describe.training(c.run.training, describe.num_params(c.run.model))),
        ("GPUs", lambda c: describe.gpus(c.run)),
        ("offer", describe.offer),
        ("region", lambda c: c.offer.region),
        ("layout", lambda c: describe.layout(c.run.layout)),
        ("link", describe.limiting_link),
        ("verdict", lambda c: c.verdict),
    ):
        yield from _if_different(name, says(a), says(b), "")
    yield from _figures(a, b)
    yield from _lines(a, b)


def _figures(a: Candidate, b: Candidate) -> Iterator[Difference]:
    """Figures with their spread."""
    pairs = (
        ("memory", units.gib_band, a.memory.device_bytes, b.memory.device_bytes),
        ("step", units.seconds_band, a.speed.step_s, b.speed.step_s),
        ("time", units.hours_band, a.hours, b.hours),
        ("cost", units.usd_band, _cost(a), _cost(b)),
    )
    for name, show, left, right in pairs:
        yield from _if_different(name, show(left), show(right), _change(left, right))
    yield from _if_different("MFU", units.percent(a.speed.mfu), units.percent(b.speed.mfu), "")
    hourly = [_per_hour(c) for c in (a, b)]
    yield from _if_different("price", units.usd_per_hour(hourly[0]), units.usd_per_hour(hourly[1]), "")


def _cost(c: Candidate) -> Band | None:
    return None if c.offer.usd_per_hour is None else c.cost_usd


def _per_hour(c: Candidate) -> Decimal | None:
    return None if c.offer.usd_per_hour is None else c.offer.usd_per_hour * c.num_nodes


def _lines(a: Candidate, b: Candidate) -> Iterator[Difference]:
    """Cost lines, by name."""
    left, right = ({line.name: line for line in c.cost_lines} for c in (a, b))
    for name in dict.fromkeys([*left, *right]):
        before, after = left.get(name), right.get(name)
        change = _change(before.usd if before else None, after.usd if after else None)
        yield from _if_different(f"  {name}", _amount(before), _amount(after), change)


def _amount(line: CostLine | None) -> str:
    return "none" if line is None else units.usd_band(line.usd)


def _change(first: Band | None, second: Band | None) -> str:
    """Change of the middle; empty where there is none to speak of."""
    if first is None or second is None or first.mid <= 0:
        return ""
    return units.signed_percent(second.mid / first.mid - 1)


def _if_different(name: str, first: str, second: str, change: str) -> Iterator[Difference]:
    if first != second:
        yield Difference(name=name, first=first, second=second, change=change)


def _screen(first: Plan, second: Plan, found: tuple[Difference, ...]) -> list[str]:
    if not found:
        return [f"{first.id} and {second.id} are the same plan, but for the row that they stood in."]
    term = text.terminal()
    columns = [Column(""), Column(first.id, 20), Column(second.id, 20), Column("CHANGE", right=True)]
    rows = [
        [d.name, d.first.replace("\u00a0", " "), d.second.replace("\u00a0", " "), d.change] for d in found
    ]
    return text.table(columns, rows, term.width, " ")
