"""``plan ls``: launches and where they stand; with ``--plans`` the plans that were saved."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from planner.cli import store, text
from planner.cli.request import Options
from planner.cli.screens import tables as screens_tables


def run(options: Options) -> int:
    """List launches, saved plans, or orphans."""
    if options.get("orphans"):
        from planner.cli.launch import orphans as launches_orphans

        return launches_orphans.run(options)
    return _plans(options) if options["plans"] else _launches(options)


def _launches(options: Options) -> int:
    """Launches, newest first; in JSON one line each, as events are."""
    from planner.cli.launch import ledger

    found = ledger.launches()[::-1]
    if options["quiet"]:
        for launch in found:
            typer.echo(launch.id)
        return 0
    from planner.cli.launch.rows import row

    now = datetime.now(UTC)
    rows = [row(launch, now) for launch in found]
    if options["json"]:
        for each in rows:
            typer.echo(each.model_dump_json())
        return 0
    from planner.cli.screens import launches as screens_launches

    typer.echo(screens_launches.launches(rows, len(store.saved_ids()), now, text.terminal()))
    return 0


def _plans(options: Options) -> int:
    if options["quiet"]:
        for full_id in store.saved_ids():
            typer.echo(full_id)
        return 0
    found = store.all_plans()
    if options["json"]:
        from planner.cli.json_output import plans_document

        typer.echo(plans_document(found).model_dump_json())
    else:
        typer.echo(screens_tables.plans(found, datetime.now(UTC), text.terminal()))
    return 0
