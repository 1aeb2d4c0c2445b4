"""Options of ``plan probe`` alone."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import complete
from planner.cli.options import PLAN_HELP, Text

Plan = Annotated[
    Text,
    typer.Option(
        "--plan",
        autocompletion=complete.plan_ids,
        metavar="ID|FILE",
        help=PLAN_HELP,
    ),
]
Address = Annotated[
    Text,
    typer.Option(
        "--address",
        metavar="auto|URL",
        help="A Ray cluster that runs: http://HEAD:8265, or auto. Without it Ray is started here, and ended.",
    ),
]
AuthTokenFile = Annotated[
    Text, typer.Option("--auth-token-file", metavar="FILE", help="File with the cluster's token.")
]
Only = Annotated[
    Text,
    typer.Option("--only", metavar="PHASES", help="Some of hardware,collectives,memory,steps (all)."),
]
Scale = Annotated[
    Text,
    typer.Option(
        "--scale",
        metavar="auto|N",
        help="Run fewer layers: N, or as many as fit and are quick; compared with the prediction for those.",
    ),
]
Repeat = Annotated[
    Text, typer.Option("--repeat", metavar="N", help="Measure N times as many steps and collectives (1).")
]
CheckPrecision = Annotated[
    bool,
    typer.Option("--check-precision", help="Compare the loss with that of the same steps in fp32."),
]
Entrypoint = Annotated[
    Text,
    typer.Option(
        "--entrypoint", metavar="MODULE:FUNCTION", help="Your own loop in place of the plan's step."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="The verdict only.")]
