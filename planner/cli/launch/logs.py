"""``plan logs``: the log of the full run; followed to its end, its exit code is ours."""

from __future__ import annotations

import typer

from clusters.backend import jobs
from clusters.backend.jobs import Jobs, JobsError, JobState
from planner.cli.launch.way import told, way_to
from planner.cli.request import Options
from planner.errors import UserError

_FAILED = 1


def run(options: Options) -> int:
    """Print the log; 0 while the job runs, and its own exit code once it has ended."""
    launch, cloud, order = way_to(options["launch"])
    if launch.job_id is None:
        raise UserError(
            f"{launch.id} is {launch.state}: no full run was started in it", "plan launch … --then COMMAND"
        )
    with told(launch), cloud.reach(order) as created:
        try:
            found = jobs.connect(created.address, created.auth_token_path)
            return exit_code(_print(found, launch.job_id, follow=options["follow"]))
        except JobsError as error:
            raise UserError(f"{launch.id}: {error}", "plan ls") from None


def _print(found: Jobs, job_id: str, *, follow: bool) -> JobState:
    """Print what the job said so far, or says until it ends."""
    if not follow:
        typer.echo(found.logs(job_id), nl=False)
        return found.state(job_id)
    for line in found.follow(job_id):
        if line is not None:
            typer.echo(line)
    return found.state(job_id)


def exit_code(state: JobState) -> int:
    """Exit code of a job: its own where Ray knows it, 1 for a failure without one, 0 while it runs."""
    if state.exit_code is not None:
        return state.exit_code
    return _FAILED if state.ended and state.status != "succeeded" else 0
