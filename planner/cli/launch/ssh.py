"""``plan ssh``: a shell on the head of a launch."""

from __future__ import annotations

import subprocess

from planner.cli.launch.way import told, way_to
from planner.cli.request import Options
from planner.errors import UserError


def run(options: Options) -> int:
    """Run the shell; its exit code is ours."""
    launch, cloud, order = way_to(options["launch"])
    with told(launch):
        words = cloud.shell(order)
    if not words:
        raise UserError(f"{launch.id} runs on this machine: you are there", f"plan dashboard {launch.id}")
    try:
        return subprocess.run(words, check=False).returncode
    except FileNotFoundError:
        raise UserError(f"{words[0]} was not found on this machine", f"install {words[0]}") from None
