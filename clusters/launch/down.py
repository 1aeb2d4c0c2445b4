"""``plan down``: end a launch from outside, and prove it. Repeatable; the cloud is asked, not the ledger."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from datetime import timedelta

from clusters.faults import CloudFault
from clusters.launch import ending
from clusters.launch.nouns import DONE, MAY_BILL, Finished, Hands
from clusters.launch.patience import retrying
from clusters.launch.running import Running, read_work
from clusters.ledger import locks
from clusters.ledger.locks import HeldError


def down(launch_id: str, hands: Hands) -> Finished:
    """Tear a launch down, also one that is gone by the ledger; a process that acts on it is asked to end.

    Raises:
        UserError: the ledger knows no such launch.

    """
    hands.ledger.launch(launch_id)
    work = read_work(launch_id, hands)
    run = Running(launch_id, work.request, hands.cloud_of(work.request), hands)
    with ExitStack() as stack:
        try:
            stack.enter_context(_lock(run))
        except HeldError as error:
            return _busy(run, error)
        stack.enter_context(hands.interrupts.caught())
        hands.interrupts.hold()
        if run.launch().state == "gone":
            return _look_once_more(run)
        return ending.cleared(run, "plan down", DONE)


def _lock(run: Running) -> ExitStack:
    """Ask the process that holds the launch to end, and give it time. Raises ``HeldError`` if it does not."""
    hands, limits = run.hands, run.request.limits
    until = hands.now() + timedelta(seconds=limits.down_waits_s + limits.teardown_timeout_s)
    asked = False
    while True:
        try:
            held = ExitStack()
            held.enter_context(hands.ledger.lock(run.id))
            return held
        except HeldError as error:
            if not asked and error.holder is not None and locks.is_same(error.holder):
                hands.screen.say(f"{error}; asked it to end")
                os.kill(error.holder.pid, signal.SIGTERM)
                asked = True
            if hands.now() >= until:
                raise
            hands.sleep(1.0)


def _busy(run: Running, error: HeldError) -> Finished:
    message = f"{error}, which did not end; it may still bill"
    run.tell(run.launch().state, message, "may_still_bill")
    return Finished(
        launch_id=run.id,
        outcome="may_still_bill",
        exit_code=MAY_BILL,
        message=message,
        hint=f"plan down {run.id}",
    )


def _ever_created(run: Running) -> bool:
    return any(t.state == "creating" for t in run.launch().transitions)


def _look_once_more(run: Running) -> Finished:
    """The ledger says gone: look whether the cloud agrees."""
    try:
        found = retrying(lambda: run.cloud.find(run.id), run.hands, run.request.limits)
    except CloudFault:
        found = None
    if found is None and not _ever_created(run):
        found = ()  # intent is written before the act, and none was
    if found is None or found:
        return ending.cleared(run, "it had been taken for gone", DONE)
    outcome = run.launch().outcome or "torn_down"
    run.tell("gone", "nothing is left", outcome)
    return Finished(launch_id=run.id, outcome=outcome, exit_code=DONE, message="nothing is left")
