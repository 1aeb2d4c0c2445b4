"""``plan extend``: move the deadline of a launch, on its nodes and in the ledger."""

from __future__ import annotations

from datetime import timedelta

import typer

from clusters.faults import CloudFault
from clusters.launch.running import Running, read_work
from planner import spend, units
from planner.cli.launch import found as launches_found
from planner.cli.launch import hands as launch_hands
from planner.cli.launch.progress import screen_for
from planner.cli.launch.rows import row
from planner.cli.request import Options
from planner.errors import UserError

_ALIVE = ("up", "probing", "verdict", "committed")


def run(options: Options) -> int:
    """Extend; the nodes first, so that the ledger never promises what they do not keep."""
    hands = launch_hands.hands({**options, "no_calibration": True}, screen_for(options["json"], quiet=False))
    longer_s = units.parse_duration(options["longer"], "plan extend", 86_400 * 366)
    launch_id = launches_found.launch_id_of(options["launch"])
    launch, work = hands.ledger.launch(launch_id), read_work(launch_id, hands)
    if launch.state not in _ALIVE or work.order is None or launch.deadline is None:
        raise UserError(
            f"{launch_id} is {launch.state}: nothing of it runs that could live longer", "plan ls"
        )
    deadline = launch.deadline + timedelta(seconds=longer_s)
    run_ = Running(launch_id, work.request, hands.cloud_of(work.request), hands)
    order = work.order.model_copy(update={"budget_usd": run_.left_of_budget()})
    try:
        run_.cloud.extend(order, deadline)
    except CloudFault as fault:
        raise UserError(
            f"the deadline of {launch_id} was not moved: {fault}", fault.hint or f"plan down {launch_id}"
        ) from None
    hands.ledger.save(launch.model_copy(update={"deadline": deadline}))
    if options["json"]:
        typer.echo(row(hands.ledger.launch(launch_id), hands.now()).model_dump_json())
        return 0
    hourly = spend.usd_per_hour(launch)
    more = None if hourly is None else hourly * int(longer_s) / 3600
    budget = (
        "" if launch.budget_usd is None else f"; the budget of {units.usd(launch.budget_usd)} still caps it"
    )
    typer.echo(
        f"{launch_id} ends itself at {deadline:%Y-%m-%d %H:%M UTC};"
        f" {units.duration(longer_s)} more cost at most {units.usd(more)}{budget}"
    )
    return 0
