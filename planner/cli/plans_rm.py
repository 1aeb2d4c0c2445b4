"""``plan rm``: delete saved plans."""

from __future__ import annotations

import typer

from planner.cli import store
from planner.cli.request import Options


def run(options: Options) -> int:
    """Delete plans; each id is looked up before anything is deleted, so that a wrong one deletes nothing."""
    full_ids = [store.find(name).id for name in options["ids"]]
    for full_id in dict.fromkeys(full_ids):
        store.remove(full_id)
        typer.echo(full_id if options["quiet"] else f"removed {full_id}")
    return 0
