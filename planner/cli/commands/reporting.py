"""Commands about money: ``report``, ``report compare``, ``budget``."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module
from planner.cli.options import report as r

report = typer.Typer(rich_markup_mode=None)
app.add_typer(report, name="report")
budget = typer.Typer(rich_markup_mode=None)
app.add_typer(budget, name="budget")


@report.callback(invoke_without_command=True)
def _report(
    context: typer.Context,
    since: r.Since = None,
    until: r.Until = None,
    plan: r.PlanId = None,
    budget: r.Budget = None,
    project: r.Project = None,
    group_by: r.GroupBy = None,
    format: r.Format = None,  # the option's name
    out: r.Out = None,
    reconcile: r.Reconcile = False,
    bill: r.Bill = None,
    json: o.Json = False,
) -> None:
    """Show what was planned, spent and billed; before a launch, plans side by side."""
    if context.invoked_subcommand is None:
        run_module("report", context)


@report.command("compare")
def compare_plans(context: typer.Context, first: r.First, second: r.Second, json: o.Json = False) -> None:
    """Show what differs between two plans: GPUs, layout, memory, time, cost."""
    run_module("report.compare", context)


@budget.callback(invoke_without_command=True)
def _budget(context: typer.Context, json: o.Json = False) -> None:
    """Show what projects may spend; 'set' and 'rm' change it, 'check' tells who wants to know."""
    if context.invoked_subcommand is None:
        context.params["action"] = "ls"
        run_module("budget", context)


@budget.command("set")
def set_budget(
    context: typer.Context,
    project: r.NamedProject,
    usd: r.Amount,
    per: r.Per = None,
    command: r.AlertCommand = None,
    webhook: r.Webhook = None,
) -> None:
    """Set what a project may spend; its owner is told at 50, 80 and 100 %."""
    context.params["action"] = "set"
    run_module("budget", context)


@budget.command("ls")
def list_budgets(context: typer.Context, json: o.Json = False) -> None:
    """List budgets, what is spent and what is left."""
    context.params["action"] = "ls"
    run_module("budget", context)


@budget.command("rm")
def remove_budget(context: typer.Context, project: r.NamedProject) -> None:
    """Forget the budget of a project."""
    context.params["action"] = "rm"
    run_module("budget", context)


@budget.command("check")
def check_budgets(context: typer.Context) -> None:
    """Tell owners of budgets that crossed a threshold; for a timer."""
    context.params["action"] = "check"
    run_module("budget", context)
