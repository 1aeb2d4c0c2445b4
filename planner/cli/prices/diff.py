"""``plan prices diff``: what moved between the last two sets of prices of each provider."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from planner.cli import text
from planner.cli.request import Options, words
from planner.cli.screens import prices as screens_prices
from planner.errors import UserError, did_you_mean
from planner.types import Offer
from providers import snapshot
from providers.catalog import shipped
from providers.moves import Moves, moves


def run(options: Options) -> int:
    """Compare the last snapshot with the one before; the first with the shipped catalog."""
    where = snapshot.directory()
    known = snapshot.providers_in(where)
    names = [n.lower() for n in words(options["names"], "plan prices diff")] or list(known)
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            raise UserError(f"no live prices of {name!r:.40} yet{near}", f"plan prices refresh {name}")
    if not names:
        raise UserError("no live prices yet: nothing to compare", "plan prices refresh")
    found = moves(*_before_and_after(names))
    if options["json"]:
        from planner.cli.prices.documents import moves_document

        typer.echo(moves_document(found).model_dump_json())
    else:
        typer.echo(_screen(found))
    return 0


def _screen(found: Moves) -> str:
    return screens_prices.moved(found, datetime.now(UTC), text.terminal())


def _before_and_after(names: Sequence[str]) -> tuple[list[Offer], list[Offer]]:
    """Offers of both points in time; of a provider with one snapshot only, the shipped ones are before."""
    where = snapshot.directory()
    before: list[Offer] = []
    after: list[Offer] = []
    for name in names:
        kept = snapshot.history(name, where, last=2)
        last = snapshot.load(name, where).snapshot
        after += last.offers if last else ()
        before += kept[-2].offers if len(kept) > 1 else (o for o in shipped() if o.provider == name)
    return before, after
