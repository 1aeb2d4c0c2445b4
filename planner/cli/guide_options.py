"""Options of the guide's commands, once each."""

from __future__ import annotations

from typing import Annotated

import typer

Text = str | None

Sizes = Annotated[
    Text,
    typer.Option(
        "--params",
        metavar="350M,1B,7B",
        help="Sizes of models, separated by commas; the ranges of the rule of thumb if not given.",
    ),
]
