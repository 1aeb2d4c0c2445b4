"""``plan compare``: rent or buy. The user's machines against the offers of their GPU."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from planner.cli import text
from planner.cli.prices.comparison import SCHEMA_VERSION, CompareDocument, Comparison, comparison
from planner.cli.prices.own import own
from planner.cli.request import Options, choice, top, words
from planner.cli.screens import compare as screens_compare
from planner.cli.suggest import offers_for
from planner.errors import UserError
from planner.search.market import considered
from planner.types import Goal
from providers.owned import EXAMPLE, title

DEFAULT_TOP = 6


def run(options: Options) -> int:
    """Compare every machine that was named."""
    now = datetime.now(UTC)
    found = compare(options, now)
    if options["json"]:
        document = CompareDocument(schema_version=SCHEMA_VERSION, comparisons=found)
        typer.echo(document.model_dump_json())
    elif options["quiet"]:
        for each in found:
            typer.echo(each.cheaper)
    else:
        typer.echo(screens_compare.comparisons(found, now, text.terminal()))
    return 0


def compare(options: Options, now: datetime) -> tuple[Comparison, ...]:
    """Comparisons of all machines. Raises ``UserError`` where none is named."""
    mine = own(options, now)
    if not mine.machines:
        raise UserError("say which machine to compare: --own or --own-ray", f"plan compare {EXAMPLE}")
    market = choice(options["market"], ("any", "on-demand", "spot"), "--market") or "any"
    bounds = Goal(
        providers=words(options["provider"], "--provider"),
        regions=words(options["region"], "--region"),
        market="spot" if options["spot"] else market,  # type: ignore[arg-type]
    )
    offers, _ = offers_for(bounds, words(options["excluded"], "--not"), mine, now)
    chosen = considered(offers, bounds)
    shown = top(options) or DEFAULT_TOP
    return tuple(comparison(title(m), m, chosen, shown) for m in mine.machines)
