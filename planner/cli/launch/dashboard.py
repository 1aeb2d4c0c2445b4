"""``plan dashboard``: a way to Ray's dashboard of a launch, open until Ctrl-C."""

from __future__ import annotations

import threading

import typer

from planner.cli.launch.way import told, way_to
from planner.cli.request import Options


def run(options: Options) -> int:
    """Print the address and wait; Ctrl-C closes the way and ends nothing else."""
    launch, cloud, order = way_to(options["launch"])
    with told(launch), cloud.reach(order) as created:
        typer.echo(created.address)
        if created.auth_token_path is not None:
            typer.echo(f"Ray asks for the token that lies in {created.auth_token_path}", err=True)
        typer.echo("Ctrl-C closes the way; the launch goes on", err=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            typer.echo("closed", err=True)
    return 0
