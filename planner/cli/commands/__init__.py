"""The command line, command by command: names, options and help. Each imports its module when it runs.

Importing this package registers every command with the app, in the order of the help page.
"""

# ruff: noqa: I001 (the order of the help page)
from planner.cli.commands import (
    planning,
    guide,
    pricing,
    building,
    probing,
    launching,
    reporting,
    trust,
    saved,
    helping,
)

__all__ = [
    "building",
    "guide",
    "helping",
    "launching",
    "planning",
    "pricing",
    "probing",
    "reporting",
    "saved",
    "trust",
]
