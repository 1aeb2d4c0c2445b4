"""``plan ls``: what was saved."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from planner.cli import screens_tables, store, text
from planner.cli.request import Options


def run(options: Options) -> int:
    """List saved plans."""
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
