"""``plan report``: what was planned, spent and billed against the budget, on the screen or as a file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import typer

from planner import units
from planner.cli import budgets, store, text
from planner.cli.launch import ledger
from planner.cli.report import csv_text, html, markdown, screen
from planner.cli.request import Options, choice
from planner.errors import UserError
from planner.launched import Launch
from planner.report import Asked, report
from planner.report.nouns import Report
from planner.results import Plan

Form = Literal["screen", "json", "csv", "md", "html"]
_SUFFIXES: Mapping[str, Form] = {
    ".json": "json",
    ".csv": "csv",
    ".md": "md",
    ".markdown": "md",
    ".html": "html",
    ".htm": "html",
}


def run(options: Options) -> int:
    """Make the report and print it, or write it where ``--out`` says."""
    now = datetime.now(UTC)
    form = _form(options)
    launches = ledger.launches()
    asked = asked_of(options, launches, now)
    if options["reconcile"]:
        from planner.cli.report import reconcile

        launches = reconcile.from_provider(launches, now)
    if options["bill"]:
        from planner.cli.report import reconcile

        launches = reconcile.from_file(launches, options["bill"], now)
    plans = plans_for(options, launches)
    subject = launches[-1].plan_id if launches else plans[0].id if plans else ""
    made = report(asked, plans, _newest_first(launches), store.field_of(subject))
    if options["out"]:
        _write(made, form, Path(options["out"]))
    if not options["out"] or form == "screen":
        typer.echo(_text(made, form).rstrip("\n"))
    return 0


def asked_of(options: Options, launches: tuple[Launch, ...], now: datetime) -> Asked:
    """Read what the report is to be about."""
    by = choice(options["group_by"], ("provider", "gpu", "project", "user"), "--group-by")
    since, until = units_day(options["since"], "--since"), units_day(options["until"], "--until")
    if since is not None and until is not None and since > until:
        raise UserError(f"--since {since:%Y-%m-%d} is after --until {until:%Y-%m-%d}", "plan report --help")
    return Asked(
        now=now,
        tool_version=version("plan"),
        since=since,
        until=until,
        plan_id=store.find(options["plan"]).id if options["plan"] else None,
        project=options["project"],
        budget_usd=_budget(options, launches, now),
        group_by=by,  # type: ignore[arg-type]
    )


def plans_for(options: Options, launches: tuple[Launch, ...]) -> list[Plan]:
    """Plans to set side by side: the named one, or those of the last suggest in its order."""
    if options["plan"]:
        return [store.find(options["plan"])]
    return [] if launches else store.last_shown()


def units_day(given: str | None, option: str) -> datetime | None:
    """Read a day, or a day and time, as UTC. Raises ``UserError``."""
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given.strip())
    except ValueError:
        raise UserError(f"{option}: {given!r:.40} is no date", f"{option} 2026-11-01") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _budget(options: Options, launches: tuple[Launch, ...], now: datetime) -> Decimal | None:
    """Read ``--budget``, else the budget of ``--project``, which may have launches and no budget."""
    if options["budget"] is not None:
        return units.parse_usd(options["budget"], "--budget")
    project = options["project"]
    if project is None:
        return None
    if any(launch.project == project for launch in launches) and budgets.budget_of(project) is None:
        return None
    return budgets.limit_of(project, now)


def _newest_first(launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
    return tuple(sorted(launches, key=lambda la: la.created, reverse=True))


# ------------------------------------------------------------------------------------- forms


def _form(options: Options) -> Form:
    """Form that was asked for: ``--json``, ``--format``, else by the suffix of ``--out``, else the screen."""
    named: Form | None = choice(options["format"], ("screen", "json", "csv", "md", "html"), "--format")  # type: ignore[assignment]
    if options["json"]:
        if named not in (None, "json"):
            raise UserError(f"--json contradicts --format {named}", "leave one of them out")
        return "json"
    if named is not None or not options["out"]:
        return named or "screen"
    suffix = Path(options["out"]).suffix.lower()
    if suffix not in _SUFFIXES:
        raise UserError(
            f"--out {options['out']!r:.100}: which form? say --format", "plan report --out report.html"
        )
    return _SUFFIXES[suffix]


def _text(made: Report, form: Form) -> str:
    if form == "json":
        return made.model_dump_json()
    if form == "csv":
        return csv_text.text(made)
    if form == "md":
        return markdown.text(made)
    return html.page(made) if form == "html" else screen.draw(made, text.terminal())


def _write(made: Report, form: Form, path: Path) -> None:
    """Write the file, and say so on stderr; a page takes its Markdown and JSON along."""
    forms: list[tuple[Path, Form]] = [(path, "md" if form == "screen" else form)]
    if form == "html":
        forms += [(path.with_suffix(".md"), "md"), (path.with_suffix(".json"), "json")]
    for where, kind in forms:
        content = _text(made, kind)
        try:
            store.write(where, content)
        except OSError as error:
            raise UserError(
                f"--out: cannot write {str(where)!r:.200} ({error.strerror})", "--out report.html"
            ) from None
        typer.echo(str(where), err=True)
