"""Options of ``plan launch``, ``down``, ``extend`` and ``doctor``, once each."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import complete
from planner.cli.options import PLAN_HELP, Text

PlanId = Annotated[
    Text,
    typer.Argument(
        metavar="[PLAN]",
        autocompletion=complete.plan_ids,
        help=PLAN_HELP,
        show_default=False,
    ),
]
LaunchId = Annotated[
    str,
    typer.Argument(
        metavar="LAUNCH", autocompletion=complete.launch_ids, help="Id of a launch, or of its plan."
    ),
]
MaybeLaunchId = Annotated[
    Text,
    typer.Argument(
        metavar="[LAUNCH]",
        autocompletion=complete.launch_ids,
        help="Id of a launch, or of its plan.",
        show_default=False,
    ),
]
OrphanId = Annotated[str, typer.Argument(metavar="LAUNCH", help="Id that plan ls --orphans shows.")]
Longer = Annotated[str, typer.Argument(metavar="12h", help="How much longer its machines may live.")]
Budget = Annotated[
    Text,
    typer.Option(
        "--budget",
        metavar="USD",
        help="Caps everything, the probe included; the plan's upper cost if not given.",
    ),
]
Then = Annotated[
    Text,
    typer.Option("--then", metavar="COMMAND", help="The full run, as a Ray job, once the probe has passed."),
]
WorkingDir = Annotated[
    Text,
    typer.Option("--working-dir", metavar="DIR", help="What goes along with --then; the current directory."),
]
Keep = Annotated[
    bool, typer.Option("--keep", help="Leave the cluster running where the probe fails (exit 7).")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Answer the questions with yes; the price is shown.")]
AcceptPrice = Annotated[
    bool,
    typer.Option("--accept-price", help="Go on though the price has risen by more than 5 % since shown."),
]
NextOnFail = Annotated[
    bool, typer.Option("--next-on-fail", help="Where the probe fails, try the next candidate of the suggest.")
]
Expire = Annotated[
    Text,
    typer.Option(
        "--expire", metavar="48h", help="When the machines end themselves; by plan and budget if not given."
    ),
]
Resume = Annotated[
    Text,
    typer.Option(
        "--resume",
        metavar="LAUNCH",
        autocompletion=complete.launch_ids,
        help="Go on with a launch whose process ended; nothing is created twice.",
    ),
]
Provider = Annotated[
    Text, typer.Option("--provider", metavar="NAME", help="local: this machine alone; kuberay: Kubernetes.")
]
ReservationUsd = Annotated[
    Text,
    typer.Option(
        "--reservation-usd",
        metavar="USD",
        help="What the whole capacity block cost; by the plan's offer if not given.",
    ),
]
Project = Annotated[
    Text, typer.Option("--project", metavar="NAME", help="Whose budget this is on (plan budget set).")
]
GcpProject = Annotated[Text, typer.Option("--gcp-project", metavar="ID", help="Google Cloud project.")]
CreateTimeout = Annotated[
    Text, typer.Option("--create-timeout", metavar="30m", help="Longest wait for all nodes (30 min).")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")]
Everything = Annotated[bool, typer.Option("--all", help="Every launch of this ledger; orphans are listed.")]
Orphans = Annotated[
    bool,
    typer.Option(
        "--orphans", help="What carries a tag of ours in the clouds and no row of this ledger explains."
    ),
]
DownOrphans = Annotated[
    bool,
    typer.Option(
        "--orphans", help="With --all: also what no row of this ledger explains, perhaps another user's."
    ),
]
Regions = Annotated[
    Text,
    typer.Option(
        "--region",
        metavar="NAME,...",
        help="Regions of AWS to look in; those of launches and saved plans if not given.",
    ),
]
