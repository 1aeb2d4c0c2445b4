"""How a launch ends: each way writes its states, deletes what is to go, and knows its exit code."""

from __future__ import annotations

from clusters.faults import CloudFault
from clusters.launch import teardown
from clusters.launch.before import Stopped, stopped_by
from clusters.launch.creating import NotReleased
from clusters.launch.interrupts import Interrupted
from clusters.launch.nouns import (
    DONE,
    FAILED,
    INTERRUPTED,
    KEPT,
    MAY_BILL,
    Ceiling,
    Finished,
)
from clusters.launch.proving import ProbeFailed
from clusters.launch.running import Running
from planner import units
from planner.launched import Launch, Outcome, Resource
from planner.spend import usd_per_hour


def _nothing_yet(launch: Launch) -> bool:
    """Whether nothing can exist: no create was ever begun."""
    return all(t.state != "creating" for t in launch.transitions)


def declined(run: Running, message: str) -> Finished:
    """The user said no before anything was created."""
    if not _nothing_yet(run.launch()):
        return torn_down(run, message, FAILED)
    return _over(run, "declined", FAILED, message)


def stopped(run: Running, why: Stopped, ceiling: Ceiling | None) -> Finished:
    """Something stood in the way before anything was created."""
    finished = torn_down(run, str(why), why.exit_code, why.hint)
    if finished.exit_code == MAY_BILL:
        return finished
    return finished.model_copy(update={"elsewhere": why.elsewhere, "ceiling": ceiling})


def failed(run: Running, fault: CloudFault) -> Finished:
    """A fault while something may exist: everything goes; another place or candidate may do."""
    as_stop = stopped_by(fault)
    finished = torn_down(run, str(fault), as_stop.exit_code, fault.hint)
    if finished.exit_code == MAY_BILL:
        return finished
    return finished.model_copy(update={"elsewhere": as_stop.elsewhere, "ceiling": run.ceiling()})


def interrupted(run: Running, signal: Interrupted) -> Finished:
    """Ctrl-C, SIGTERM or SIGHUP before commit, or while the job of a commit was not started yet."""
    launch = run.launch()
    if launch.state == "committed" and (launch.job_id is not None or run.request.then is None):
        return committed(run, DONE, f"detached ({signal})")
    return torn_down(run, f"interrupted ({signal})", INTERRUPTED)


def torn_down(run: Running, message: str, exit_code: int, hint: str = "") -> Finished:
    """Delete everything of the launch; ``exit_code`` holds if it is gone, 6 if it may still bill."""
    run.hands.interrupts.hold()
    if _nothing_yet(run.launch()):
        finished = _over(run, "torn_down", exit_code, f"{message}; nothing was created", hint)
        return finished.model_copy(update={"message": message, "nothing_created": True})
    return cleared(run, message, exit_code, hint)


def cleared(run: Running, message: str, exit_code: int, hint: str = "") -> Finished:
    """Ask the cloud and delete what it names, whatever the ledger thinks."""
    run.enter("tearing_down", message)
    work = run.work()
    if work.order is not None:
        teardown.stop(run.cloud, work.order, run.hands)
    found = teardown.clear(run.cloud, run.id, run.hands, run.request.limits)
    if found.may_bill:
        return _may_bill(run, found, message)
    stop_billing(run)
    finished = _over(run, "torn_down", exit_code, message, hint, found.left)
    for resource in found.left:
        run.hands.screen.say(
            f"left, free of charge: {resource.kind} {resource.id}   {_by_hand(run, resource)}"
        )
    return finished


def not_released(run: Running, left: NotReleased) -> Finished:
    """A failed create left something that did not go: once more, in the order of a teardown."""
    return torn_down(run, str(left), FAILED)


def kept(run: Running, why: ProbeFailed) -> Finished:
    """The probe did not pass and the cluster stays, as the user wished."""
    hourly = units.usd_per_hour(usd_per_hour(run.launch()))
    return _told(
        run, "left_running", KEPT, f"{why}; left running on purpose at {hourly}", f"plan down {run.id}"
    )


def committed(run: Running, exit_code: int, message: str) -> Finished:
    """The full run goes on, or has ended, on a cluster that stays until its deadline or ``plan down``."""
    launch = run.launch()
    until = "" if launch.deadline is None else f" until {launch.deadline:%Y-%m-%d %H:%M UTC}"
    if hourly := usd_per_hour(launch):
        message += f"; the cluster costs {units.usd_per_hour(hourly)}{until}, or plan down"
    return _told(run, "committed", exit_code, message, f"plan down {run.id}")


def already_gone(run: Running) -> Finished:
    """Nothing is left to resume."""
    outcome = run.launch().outcome or "torn_down"
    run.tell("gone", "gone already", outcome)
    return Finished(launch_id=run.id, outcome=outcome, exit_code=DONE, message=f"{run.id} is gone already")


def _may_bill(run: Running, cleared: teardown.Cleared, message: str) -> Finished:
    run.settle("may_still_bill", cleared.left)
    hourly = usd_per_hour(run.launch())
    what = ", ".join(f"{r.kind} {r.id}" for r in cleared.left) or f"what is left is not known ({cleared.why})"
    said = f"{message}; still there: {what}; this may cost up to {units.usd_per_hour(hourly)}"
    run.tell("tearing_down", said, "may_still_bill", cleared.left)
    hands = [f"plan down {run.id}   (safe to repeat)", *(_by_hand(run, r) for r in cleared.left)]
    return Finished(
        launch_id=run.id,
        outcome="may_still_bill",
        exit_code=MAY_BILL,
        message=said,
        hint="\n".join(hands),
        left=cleared.left,
    )


def _by_hand(run: Running, resource: Resource) -> str:
    return resource.hint or run.cloud.by_hand(resource)


def stop_billing(run: Running) -> None:
    """Everything that billed has ended now."""
    launch, now = run.launch(), run.hands.now()
    latest = {p.item: p for p in sorted(launch.prices, key=lambda p: p.since)}
    ends = tuple(
        p.model_copy(update={"since": now, "quantity": 0}) for p in latest.values() if p.quantity > 0
    )
    run.hands.ledger.save(launch.model_copy(update={"prices": (*launch.prices, *ends)}))


def _over(
    run: Running,
    outcome: Outcome,
    exit_code: int,
    message: str,
    hint: str = "",
    left: tuple[Resource, ...] = (),
) -> Finished:
    """Nothing that bills exists any more."""
    run.settle(outcome, left)
    run.enter("gone", message)
    return _told(run, outcome, exit_code, message, hint, left)


def _told(
    run: Running,
    outcome: Outcome,
    exit_code: int,
    message: str,
    hint: str = "",
    left: tuple[Resource, ...] = (),
) -> Finished:
    run.settle(outcome, left)
    run.tell(run.launch().state, message, outcome, left)
    return Finished(
        launch_id=run.id, outcome=outcome, exit_code=exit_code, message=message, hint=hint, left=left
    )
