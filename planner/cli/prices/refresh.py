"""``plan prices refresh``: ask providers for their prices, all at once; keep what is good."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from planner.cli import text
from planner.cli.request import Options, words
from planner.cli.screens import prices as screens_prices
from planner.exits import FAILED, INTERRUPTED, NO_CREDENTIALS
from providers import snapshot
from providers.adapters import chosen
from providers.refresh import ProviderRow, refresh


def run(options: Options) -> int:
    """Refresh; 0 where one provider answered, 4 where all lack credentials, else 1."""
    asked = chosen(words(options["names"], "plan prices refresh"))
    if not options["quiet"]:
        sys.stderr.write(f"asking {', '.join(a.provider for a in asked)}\n")
    say = (lambda row: None) if options["quiet"] else _say
    try:
        rows = refresh(asked, os.environ, lambda: datetime.now(UTC), snapshot.directory(), say)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()
        os._exit(INTERRUPTED)  # threads still wait for servers; what is on the disk is whole at any time
    if options["json"]:
        from planner.cli.prices.documents import prices_document

        typer.echo(prices_document((), rows).model_dump_json())
    elif not options["quiet"]:
        typer.echo(screens_prices.closing(rows, text.terminal()))
    return exit_code(rows)


def _say(row: ProviderRow) -> None:
    """One line as a provider is done."""
    sys.stderr.write(f"  {screens_prices.progress(row)}\n")
    sys.stderr.flush()


def exit_code(rows: Sequence[ProviderRow]) -> int:
    """What the rows mean for a script."""
    found = {r.state for r in rows}
    if "ok" in found:
        return 0
    return NO_CREDENTIALS if found == {"skipped"} else FAILED
