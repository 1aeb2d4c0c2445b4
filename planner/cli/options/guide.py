"""Options of the guide's commands, once each."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import complete
from planner.cli.options import Text

Sizes = Annotated[
    Text,
    typer.Option(
        "--params",
        metavar="350M,1B,7B",
        help="Sizes of models, separated by commas; the ranges of the rule of thumb if not given.",
    ),
]
Topic = Annotated[
    Text,
    typer.Argument(
        metavar="TOPIC", autocompletion=complete.topics, help="What to explain.", show_default=False
    ),
]
HelpPage = Annotated[
    Text,
    typer.Argument(
        metavar="PAGE",
        autocompletion=complete.help_pages,
        help="conventions, exit-codes, environment, or a command.",
        show_default=False,
    ),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="As a Markdown table.")]
