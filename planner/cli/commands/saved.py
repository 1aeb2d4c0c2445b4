"""Commands about what was saved: ``ls``, ``rm``."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module
from planner.cli.options import launch as la


@app.command("ls")
def list_plans(
    context: typer.Context,
    plans: o.ListPlans = False,
    orphans: la.Orphans = False,
    region: la.Regions = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """List launches with state, spend, forecast and deadline, saved plans, or orphans in the clouds."""
    run_module("plans", context)


@app.command("rm")
def remove_plans(context: typer.Context, ids: o.PlanIds, quiet: o.Quiet = False) -> None:
    """Delete saved plans."""
    run_module("plans_rm", context)
