"""``plan help PAGE``: conventions, exit codes, environment."""

from __future__ import annotations

import typer

from planner.cli import conventions, text
from planner.cli.app import app
from planner.cli.conventions import Entry
from planner.cli.request import Options, choice
from planner.cli.text import Column
from planner.types import Record

SCHEMA_VERSION = 1
PAGES = ("conventions", "exit-codes", "environment")
_TITLES = {
    "conventions": ("WHAT", "HOLDS"),
    "exit-codes": ("CODE", "MEANING"),
    "environment": ("VARIABLE", "MEANING"),
}


class EntryDocument(Record):
    """A word, a code or a variable, and what it means."""

    name: str
    meaning: str


class HelpDocument(Record):
    """``plan help PAGE --json``. ``credentials``: of providers, on the page about the environment."""

    schema_version: int
    page: str
    entries: tuple[EntryDocument, ...]
    credentials: tuple[EntryDocument, ...] = ()


def run(options: Options) -> int:
    """Print a page, or the help of a command; alone, the names of the pages."""
    commands = _commands()
    page = choice(options["page"], (*PAGES, *commands), "plan help")
    if page in commands:
        app([page, "--help"], prog_name="plan", standalone_mode=False)
        return 0
    if page is None:
        typer.echo("\n".join(f"plan help {name}" for name in PAGES))
        typer.echo("plan COMMAND --help\nplan explain  (topics: memory, precision, spot, …)")
        return 0
    found, credentials = _entries(page), conventions.credentials() if page == "environment" else ()
    if options["json"]:
        typer.echo(_document(page, found, credentials).model_dump_json())
    elif options["markdown"]:
        typer.echo(conventions.markdown(found, *_TITLES[page]))
    else:
        typer.echo(_screen(page, found, credentials))
    return 0


def _commands() -> tuple[str, ...]:
    """Names of all commands and groups of them."""
    alone = [c.name or getattr(c.callback, "__name__", "") for c in app.registered_commands]
    return (*alone, *(str(group.name) for group in app.registered_groups))


def _entries(page: str) -> tuple[Entry, ...]:
    if page == "exit-codes":
        return conventions.exit_codes()
    return conventions.CONVENTIONS if page == "conventions" else conventions.ENVIRONMENT


def _document(page: str, found: tuple[Entry, ...], credentials: tuple[Entry, ...]) -> HelpDocument:
    return HelpDocument(
        schema_version=SCHEMA_VERSION,
        page=page,
        entries=tuple(EntryDocument(name=e.name, meaning=e.meaning) for e in found),
        credentials=tuple(EntryDocument(name=e.name, meaning=e.meaning) for e in credentials),
    )


def _screen(page: str, found: tuple[Entry, ...], credentials: tuple[Entry, ...]) -> str:
    term = text.terminal()
    columns = [Column(title) for title in _TITLES[page]]
    lines = text.table(columns, [[e.name, e.meaning] for e in found], term.width - 1, indent=" ")
    if credentials:
        columns = [Column("PROVIDER"), Column("LIVE PRICES NEED")]
        rows = [[e.name, e.meaning] for e in credentials]
        lines += ["", *text.table(columns, rows, term.width - 1, indent=" ")]
    return "\n".join(lines)
