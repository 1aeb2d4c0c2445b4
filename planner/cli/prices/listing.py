"""``plan prices``: offers with their age and source, and the state of every provider. Asks no provider."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import typer

from planner.cli import text
from planner.cli.prices.own import own
from planner.cli.request import Options, words
from planner.cli.screens import prices as screens_prices
from planner.cli.suggest import offers_for
from planner.errors import UserError, did_you_mean
from planner.search.market import considered
from planner.types import Goal, Offer
from providers import registry, snapshot
from providers.adapters import adapters
from providers.base import Key, key
from providers.catalog import shipped
from providers.moves import Point, over_time
from providers.refresh import ProviderRow
from providers.served import served
from providers.states import states

DEFAULT_MAX = 20
MARKETS = ("any", "on-demand", "spot", "capacity-block", "community", "reserved", "owned")
SORTS = ("price", "node", "age", "provider")


@dataclass(frozen=True, slots=True)
class Listing:
    """Offers that fit the filters, in order, how many of them are shown, and what is only counted."""

    offers: tuple[Offer, ...]
    most: int | None
    num_spot: int
    num_unknown: int
    missing: bool


def run(options: Options) -> int:
    """List offers; ``--missing`` those without a price, ``--history`` their prices over time."""
    now = datetime.now(UTC)
    offers = _offers(options, now)
    base = served()
    for warning in base.warnings:
        typer.echo(f"warning: {warning}", err=True)
    listing = listed(offers, options)
    rows = states(offers, base.snapshots, adapters(), os.environ, now, snapshot.directory())
    if options["history"]:
        _print_history(listing, options)
    elif options["json"]:
        from planner.cli.prices.documents import prices_document

        typer.echo(prices_document(_cut(listing), rows).model_dump_json())
    else:
        _print(listing, rows, now, options)
    return 0


def _offers(options: Options, now: datetime) -> tuple[Offer, ...]:
    """Offers that fit the names asked for; at the user's prices where there is a list of them."""
    providers, regions = words(options["provider"], "--provider"), words(options["region"], "--region")
    gpus = words(options["gpu"], "--gpu")
    mine = own(options, now)
    if not mine.providers and not mine.listed.discounts:
        return registry.offers(providers, gpus=gpus, regions=regions).offers
    bounds = Goal(providers=providers, regions=regions, gpus=gpus)
    return considered(offers_for(bounds, (), mine, now)[0], bounds)


def _print(listing: Listing, rows: Sequence[ProviderRow], now: datetime, options: Options) -> None:
    if options["quiet"]:
        for offer in _cut(listing):
            typer.echo(f"{offer.provider} {offer.instance_type} {offer.region} {offer.market}")
    else:
        typer.echo(screens_prices.prices(listing, rows, now, text.terminal()))


def listed(offers: Sequence[Offer], options: Options) -> Listing:
    """Offers of the market that is asked for, sorted. By default spot is counted on the screen, not shown."""
    default = "any" if options["json"] or options["missing"] else "on-demand"
    market = _one_of(options["market"], MARKETS, "--market") or default
    if options["spot"]:
        if options["market"] is not None and market != "spot":
            raise UserError(f"--spot and --market {market} contradict each other", "--spot")
        market = "spot"
    fits = [o for o in offers if _is_of(o, market)]
    unknown = [o for o in fits if o.usd_per_hour is None]
    kept = unknown if options["missing"] else fits if options["json"] else [o for o in fits if o.usd_per_hour]
    order = _one_of(options["sort"], SORTS, "--sort") or "price"
    return Listing(
        offers=tuple(sorted(kept, key=lambda o: _order(o, order))),
        most=_most(options),
        num_spot=0 if market in ("spot", "any") else sum(o.market == "spot" for o in offers),
        num_unknown=len(unknown),
        missing=bool(options["missing"]),
    )


def _is_of(offer: Offer, market: str) -> bool:
    """``on-demand`` means whatever is not taken away: community, reserved and owned machines too."""
    if market == "on-demand":
        return offer.market in ("on-demand", "community", "reserved", "owned")
    return market in ("any", offer.market)


def _order(offer: Offer, by: str) -> tuple[object, ...]:
    """Key of a sort; an unknown price comes last, a price without a date is the oldest."""
    usd = float("inf") if offer.usd_per_hour is None else float(offer.usd_per_hour)
    seen = offer.price_seen.timestamp() if offer.price_seen else 0.0
    first = {"price": usd / offer.gpus_per_node, "node": usd, "age": -seen, "provider": 0.0}[by]
    return (first, offer.provider, offer.instance_type, offer.region, offer.zone or "", offer.market)


def _one_of(value: object, known: Sequence[str], option: str) -> str | None:
    """Value of an option that takes one of a few words."""
    if value is None:
        return None
    word = str(value).strip().lower()
    if word not in known:
        raise UserError(
            f"{option}: unknown {word!r:.40}{did_you_mean(word, known)}",
            f"{option} {known[0]}   (or {', '.join(known[1:])})",
        )
    return word


def _most(options: Options) -> int | None:
    """How many rows to show; ``None``: all."""
    said = options["max"]
    if options["all"]:
        if said is not None:
            raise UserError("--all and --max contradict each other", "--all")
        return None
    if said is None:
        return None if options["json"] else DEFAULT_MAX
    if not str(said).isascii() or not str(said).isdecimal() or not 1 <= int(str(said)) <= 100_000:
        raise UserError(f"--max: {str(said)!r:.40} is not a number of rows", "--max 20")
    return int(str(said))


def _cut(listing: Listing) -> tuple[Offer, ...]:
    return listing.offers[: listing.most]


# ---------------------------------------------------------------------------------- history


def history(offers: Sequence[Offer]) -> Mapping[Key, tuple[Point, ...]]:
    """Prices over time of ``offers``: the catalog's, then those of every kept snapshot."""
    where = snapshot.directory()
    names, wanted = sorted({o.provider for o in offers}), frozenset(key(o) for o in offers)
    lists = [tuple(o for o in shipped() if key(o) in wanted)]
    kept = sorted((s for n in names for s in snapshot.history(n, where, wanted=wanted)), key=lambda s: s.seen)
    return over_time([*lists, *(s.offers for s in kept)])


def _print_history(listing: Listing, options: Options) -> None:
    shown = _cut(listing)
    points = history(shown)
    if options["json"]:
        from planner.cli.prices.documents import history_document

        typer.echo(history_document(shown, points).model_dump_json())
    else:
        typer.echo(screens_prices.history(shown, points, text.terminal()))
