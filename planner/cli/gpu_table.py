"""``plan gpus``: the table of GPUs with the cheapest offer of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import typer

from planner.cli import text
from planner.cli.request import Options, words
from planner.cli.screens import tables as screens_tables
from planner.hardware.gpus import gpus, matching_ids
from planner.types import Offer
from providers import registry


def run(options: Options) -> int:
    """List GPUs, all or those that are named."""
    names = words(options["names"], "plan gpus")
    chosen = matching_ids(names)
    rows = [g for g in gpus() if not names or g.id in chosen]
    if options["quiet"]:
        for each in rows:
            typer.echo(each.id)
        return 0
    best = cheapest(registry.offers().offers)
    if options["json"]:
        from planner.cli.json_output import gpus_document

        typer.echo(gpus_document(rows, best).model_dump_json())
    else:
        typer.echo(screens_tables.gpus(rows, best, datetime.now(UTC), text.terminal()))
    return 0


def cheapest(offers: Sequence[Offer]) -> dict[str, Offer]:
    """Cheapest offer of each GPU, by the price of one GPU; offers without a price do not count."""
    best: dict[str, tuple[float, Offer]] = {}
    for offer in offers:
        if offer.usd_per_hour is None:
            continue
        price = float(offer.usd_per_hour) / offer.gpus_per_node
        if offer.gpu not in best or price < best[offer.gpu][0]:
            best[offer.gpu] = (price, offer)
    return {gpu: offer for gpu, (_, offer) in best.items()}
