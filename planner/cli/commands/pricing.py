"""Commands about prices: ``prices``, ``prices refresh``, ``prices diff``, ``compare``."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module


@app.command()
def compare(
    context: typer.Context,
    own: o.OwnMachines = None,
    own_ray: o.OwnRay = None,
    gpu: o.Gpus = None,
    price_list: o.PriceList = None,
    provider: o.Providers = None,
    region: o.Regions = None,
    excluded: o.Excluded = None,
    market: o.Market = None,
    spot: o.Spot = False,
    top: o.Top = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Rent or buy: your machines against the offers of their GPU, with the hours where both cost the same."""
    run_module("prices.compare", context)


prices = typer.Typer(rich_markup_mode=None)
app.add_typer(prices, name="prices")


@prices.callback(invoke_without_command=True)
def _prices(
    context: typer.Context,
    gpu: o.Gpus = None,
    provider: o.Providers = None,
    region: o.Regions = None,
    market: o.PriceMarket = None,
    spot: o.Spot = False,
    max: o.Most = None,  # the option's name
    all: o.All = False,
    sort: o.PriceSort = None,
    price_list: o.PriceList = None,
    own: o.OwnMachines = None,
    missing: o.Missing = False,
    history: o.History = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """List offers with price, age and source; 'refresh' asks the providers, 'diff' shows what moved."""
    if context.invoked_subcommand is None:
        run_module("prices.listing", context)


@prices.command("refresh")
def refresh_prices(
    context: typer.Context, names: o.ProviderNames = None, json: o.Json = False, quiet: o.Quiet = False
) -> None:
    """Ask providers for their prices, all at once; what fails leaves the last good prices in use."""
    run_module("prices.refresh", context)


@prices.command("diff")
def diff_prices(context: typer.Context, names: o.ProviderNames = None, json: o.Json = False) -> None:
    """Show which prices moved between the last two refreshes."""
    run_module("prices.diff", context)
