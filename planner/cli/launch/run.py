"""``plan launch``: the plan that was shown, proven on its cluster, then the full run; or nothing left."""

from __future__ import annotations

from clusters.launch import machine
from clusters.launch.nouns import Finished, Hands
from planner.cli import budgets, store
from planner.cli.launch import found as launches_found
from planner.cli.launch import hands as launch_hands
from planner.cli.launch import request as launch_request
from planner.cli.launch.progress import TerminalScreen, screen_for
from planner.cli.request import Options
from planner.errors import UserError

_BAD_INPUT = 2


def run(options: Options) -> int:
    """Launch or resume; returns the exit code of how it ended."""
    screen = screen_for(options["json"], options["quiet"])
    hands = launch_hands.hands(options, screen)
    try:
        finished = _finished(options, hands)
    except machine.RefusedError as refused:
        if refused.exit_code == _BAD_INPUT:  # the plan alone, without --hosts or --budget, is another launch
            raise UserError(
                str(refused), "add --yes to the same command, all its options as they are"
            ) from None
        screen.complain(str(refused), refused.hint)
        return refused.exit_code
    return show(finished, hands, screen)


def _finished(options: Options, hands: Hands) -> Finished:
    if options["resume"] is not None:
        if options["plan"] is not None:
            raise UserError(
                "--resume takes a launch, and no plan beside it", f"plan launch --resume {options['resume']}"
            )
        return machine.resume(launches_found.launch_id_of(options["resume"]), hands)
    now = launch_request.now()
    return machine.launch(launch_request.request_of(options, launch_request.plan_of(options), now), hands)


def show(finished: Finished, hands: Hands, screen: TerminalScreen) -> int:
    """Show how it ended, tell owners of budgets that were crossed, and return the exit code."""
    screen.finished(finished, hands.ledger.launch(finished.launch_id))
    for said in budgets.alert(hands.now()):
        store.warn(said)
    return finished.exit_code
