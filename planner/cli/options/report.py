"""Options of ``plan report`` and ``plan budget``."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import complete
from planner.cli.options import Text

Since = Annotated[
    Text, typer.Option("--since", metavar="DATE", help="Launches that lived on or after this day.")
]
Until = Annotated[Text, typer.Option("--until", metavar="DATE", help="Launches made before this day.")]
PlanId = Annotated[
    Text,
    typer.Option("--plan", metavar="ID", autocompletion=complete.plan_ids, help="Only this plan."),
]
Budget = Annotated[
    Text,
    typer.Option("--budget", metavar="USD", help="Budget to measure against; else that of the launches."),
]
Project = Annotated[
    Text, typer.Option("--project", metavar="NAME", help="Only this project, and its budget.")
]
GroupBy = Annotated[Text, typer.Option("--group-by", metavar="NAME", help="provider, gpu, project or user.")]
Format = Annotated[Text, typer.Option("--format", metavar="NAME", help="screen, json, csv, md or html.")]
Out = Annotated[
    Text,
    typer.Option("--out", metavar="FILE", help="Write a file; .html takes .md and .json along."),
]
Reconcile = Annotated[
    bool, typer.Option("--reconcile", help="Ask AWS Cost Explorer what was billed (0.01 USD a request).")
]
Bill = Annotated[
    Text,
    typer.Option("--bill", metavar="FILE", help="CSV of other providers: launch_id,usd,until[,source]."),
]
First = Annotated[str, typer.Argument(metavar="PLAN", autocompletion=complete.plan_ids)]
Second = Annotated[str, typer.Argument(metavar="PLAN", autocompletion=complete.plan_ids)]
NamedProject = Annotated[str, typer.Argument(metavar="project=NAME", help="Whose budget.")]
Amount = Annotated[str, typer.Argument(metavar="USD", help="How much.")]
Per = Annotated[Text, typer.Option("--per", metavar="PERIOD", help="month, year or total (default).")]
AlertCommand = Annotated[
    Text,
    typer.Option("--command", metavar="COMMAND", help="Run with one sentence when a threshold is crossed."),
]
Webhook = Annotated[
    Text, typer.Option("--webhook", metavar="URL", help='Gets {"text": …} when a threshold is crossed.')
]
