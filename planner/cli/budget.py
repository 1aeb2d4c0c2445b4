"""``plan budget set``, ``ls``, ``rm``, ``check``: what a project may spend in a month, a year, or in all."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import typer
from pydantic import ValidationError

from planner import units
from planner.budgets import ProjectBudget, Standing, standing
from planner.cli import budgets, text
from planner.cli.launch import ledger
from planner.cli.request import Options, choice, has_host
from planner.cli.text import Column
from planner.errors import UserError
from planner.types import Record

SCHEMA_VERSION = 1
_EXAMPLE = "plan budget set project=alpha 5000 --per month"


class BudgetRow(Record):
    """A budget and how it stands."""

    project: str
    per: str
    budget_usd: Decimal
    spent_usd: Decimal
    spent_is_complete: bool
    committed_usd: Decimal
    left_usd: Decimal


class BudgetsDocument(Record):
    """``plan budget ls --json``."""

    schema_version: int
    budgets: tuple[BudgetRow, ...]


def run(options: Options) -> int:
    """Do what the sub-command says."""
    now = datetime.now(UTC)
    action = {"set": _set, "ls": _list, "rm": _remove, "check": _check}[options["action"]]
    return action(options, now)


def _set(options: Options, now: datetime) -> int:
    """Set or replace the budget of a project."""
    project = _project(options["project"])
    old = budgets.budget_of(project)
    try:
        wanted = ProjectBudget(
            project=project,
            usd=units.parse_usd(options["usd"], "plan budget set"),
            per=choice(options["per"], ("month", "year", "total"), "--per") or "total",  # type: ignore[arg-type]
            command=options["command"] or (old.command if old else None),
            webhook=_address(options["webhook"]) or (old.webhook if old else None),
        )
    except ValidationError as error:
        raise UserError(f"project {project!r:.60}: {error.errors()[0]['msg']}", _EXAMPLE) from None
    budgets.save([*(b for b in budgets.all_budgets() if b.project != project), wanted])
    typer.echo(budgets.sentence(standing(wanted, ledger.launches(), now)))
    return 0


def _project(given: str) -> str:
    """Read ``project=alpha``, or ``alpha``."""
    name = given.removeprefix("project=").strip()
    if not name or "=" in name:
        raise UserError(f"{given!r:.60} names no project", _EXAMPLE)
    return name


def _address(given: str | None) -> str | None:
    """Check an address that alerts go to."""
    if given is not None and not has_host(given):
        raise UserError("--webhook takes an address with a host", "--webhook https://HOST/PATH")
    return given


def _list(options: Options, now: datetime) -> int:
    """List budgets."""
    known = budgets.all_budgets()  # before the ledger: what is wrong with budgets is said first
    launches = ledger.launches()
    found = [standing(b, launches, now) for b in known]
    if options["json"]:
        rows = tuple(_row(at) for at in found)
        typer.echo(BudgetsDocument(schema_version=SCHEMA_VERSION, budgets=rows).model_dump_json())
    elif not found:
        typer.echo(f"No budget is set.\n\nnext: {_EXAMPLE}")
    else:
        typer.echo("\n".join(_table(found)))
    return 0


def _row(at: Standing) -> BudgetRow:
    return BudgetRow(
        project=at.budget.project,
        per=at.budget.per,
        budget_usd=at.budget.usd,
        spent_usd=at.spent_usd,
        spent_is_complete=at.is_complete,
        committed_usd=at.committed_usd,
        left_usd=at.left_usd,
    )


def _table(found: list[Standing]) -> list[str]:
    columns = [Column("PROJECT"), Column("PER")]
    columns += [Column(c, right=True) for c in ("BUDGET", "SPENT", "COMMITTED", "LEFT")]
    rows = [
        [
            at.budget.project,
            at.budget.per,
            units.usd(at.budget.usd),
            ("" if at.is_complete else "≥ ") + units.usd(at.spent_usd),
            units.usd(at.committed_usd),
            units.usd(at.left_usd),
        ]
        for at in found
    ]
    return text.table(columns, rows, text.terminal().width, " ")


def _remove(options: Options, now: datetime) -> int:
    """Forget the budget of a project."""
    del now
    project = budgets.known(_project(options["project"])).project
    budgets.save([b for b in budgets.all_budgets() if b.project != project])
    typer.echo(f"project {project} has no budget now")
    return 0


def _check(options: Options, now: datetime) -> int:
    """Tell owners of budgets that crossed a threshold; says so here too."""
    del options
    for line in budgets.alert(now):
        typer.echo(line)
    return 0
