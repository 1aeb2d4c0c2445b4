"""``plan schema COMMAND``: the JSON schema of what ``--json`` prints."""

from __future__ import annotations

import importlib
import json

import typer

from planner.cli.request import Options, choice
from planner.types import Record

# command -> module of planner.cli and class of its document
DOCUMENTS = {
    "suggest": ("json_output", "SuggestDocument"),
    "estimate": ("json_output", "EstimateDocument"),
    "gpus": ("json_output", "GpusDocument"),
    "ls": ("launch.rows", "LaunchRow"),
    "ls plans": ("json_output", "PlansDocument"),  # plan ls --plans
    "ls orphans": ("launch.orphans", "OrphansDocument"),  # plan ls --orphans
    "adopt": ("launch.rows", "LaunchRow"),
    "launch": ("launch.rows", "Event"),
    "down": ("launch.rows", "Event"),
    "extend": ("launch.rows", "LaunchRow"),
    "doctor": ("launch.doctor", "DoctorDocument"),
    "accuracy": ("accuracy", "AccuracyDocument"),
    "calibrate": ("calibrate", "CalibrationDocument"),
    "prices": ("prices.documents", "PricesDocument"),
    "compare": ("prices.comparison", "CompareDocument"),
    "probe": ("probe.documents", "ProbeDocument"),
    "table": ("table", "TableDocument"),
    "explain": ("explain", "ExplainDocument"),
    "help": ("help_pages", "HelpDocument"),
    "prices refresh": ("prices.documents", "PricesDocument"),
    "prices diff": ("prices.documents", "MovesDocument"),
    "report": ("report", "Report"),
    "report compare": ("report.compare", "DifferencesDocument"),
    "budget": ("budget", "BudgetsDocument"),
    "budget ls": ("budget", "BudgetsDocument"),
}


def run(options: Options) -> int:
    """Print the schema of a command's document."""
    command = choice(" ".join(options["command"]), tuple(DOCUMENTS), "plan schema")
    typer.echo(json.dumps(document_of(command or "").model_json_schema(mode="serialization"), indent=1))
    return 0


def document_of(command: str) -> type[Record]:
    """Find the record that a command prints."""
    module, name = DOCUMENTS[command]
    document: type[Record] = getattr(importlib.import_module(f"planner.cli.{module}"), name)
    return document
