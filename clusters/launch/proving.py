"""On a cluster that is up: probe, verdict, and then the full run or nothing."""

from __future__ import annotations

from datetime import timedelta

from clusters.clouds.base import Order
from clusters.faults import CloudFault
from clusters.launch import blocks
from clusters.launch.nouns import Work
from clusters.launch.patience import retrying
from clusters.launch.running import Running
from planner import units
from planner.probed import ProbeResult, ProbeVerdict
from planner.spend import usd_per_hour

RESULT = "probe"


class ProbeFailed(Exception):  # noqa: N818 (an end of a launch)
    """The probe did not run, did not pass, or says that the run costs more than the budget."""

    def __init__(self, message: str, advice: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.advice = advice


class CommitDeclined(Exception):  # noqa: N818 (an answer)
    """The user did not want the full run."""


def prove(run: Running, order: Order) -> ProbeVerdict:
    """Probe and judge.

    Raises:
        ProbeFailed: there is no verdict that passes within the budget.

    """
    result = _probed(run, order)
    run.enter("verdict")
    budget = None if blocks.is_block(run.request) else run.left_of_budget()
    verdict = run.hands.proving.judge(run.request.plan, result, budget)
    if blocks.is_block(run.request) and verdict.repriced is not None:  # the rest of the run is paid
        verdict = verdict.model_copy(
            update={"repriced": verdict.repriced.model_copy(update={"cost_usd": None, "within_budget": None})}
        )
    run.hands.ledger.save(run.launch().model_copy(update={"verdict": verdict}))
    run.hands.screen.verdict(verdict, run.launch())
    if verdict.verdict != "pass":
        failed = ", ".join(dict.fromkeys(c.name for c in verdict.checks if c.passed is False)) or "a check"
        raise ProbeFailed(f"probe failed: {failed}{_lost_hosts(result)}", verdict.advice)
    _refuse_over_budget(run, verdict)
    return verdict


def _probed(run: Running, order: Order) -> ProbeResult:
    """Run the probe over the way that the place opens; bounded in time."""
    limits = run.request.limits
    run.enter("probing", f"at most {units.duration(limits.probe_timeout_s)}")
    until = run.hands.now() + timedelta(seconds=limits.probe_timeout_s)

    def once() -> ProbeResult:
        left_s = max(1.0, (until - run.hands.now()).total_seconds())
        with run.cloud.reach(order) as created:
            return run.hands.proving.probe(created, run.request.plan, left_s, run.hands.screen.say)

    try:
        result = retrying(once, run.hands, limits)
    except CloudFault as fault:
        raise ProbeFailed(f"probe failed: {fault}") from fault
    run.hands.ledger.write_note(run.id, RESULT, result.model_dump_json())
    return result


def _lost_hosts(result: ProbeResult) -> str:
    """Name the hosts whose processes are gone; empty where none is known."""
    hosts = [f.node for f in result.failures if f.kind == "worker-lost" and f.node is not None]
    return f"; lost: {', '.join(dict.fromkeys(hosts))}" if hosts else ""


def _refuse_over_budget(run: Running, verdict: ProbeVerdict) -> None:
    """The forecast must lie within the budget; one that is not known does not, where money is asked for."""
    if blocks.is_block(run.request):
        return _refuse_past_deadline(run, verdict)
    repriced, budget = verdict.repriced, run.request.budget_usd
    nothing_rented = usd_per_hour(run.launch()) == 0
    if budget is None or nothing_rented or (repriced is not None and repriced.within_budget):
        return
    if repriced is None or repriced.cost_usd is None:
        raise ProbeFailed(f"the rest of the run has no price, and the budget is {units.usd(budget)}")
    raise ProbeFailed(
        f"the rest of the run takes {units.hours_band(repriced.hours)} and costs"
        f" {units.usd_band(repriced.cost_usd)}; {units.usd(repriced.budget_usd)} of"
        f" {units.usd(budget)} are left",
        verdict.advice,
    )


def _refuse_past_deadline(run: Running, verdict: ProbeVerdict) -> None:
    """The rest of a run in a capacity block must end with it: more hours of it cannot be bought."""
    left_h = (run.request.choices.deadline - run.hands.now()) / timedelta(hours=1)
    if verdict.repriced is None:
        raise ProbeFailed("how long the rest of the run takes is unknown, and the block has an end")
    if verdict.repriced.hours.mid > left_h:
        raise ProbeFailed(
            f"the rest of the run takes {units.hours_band(verdict.repriced.hours)}; the machines of the block"
            f" end in {units.duration(left_h * 3600)}",
            verdict.advice,
        )


def ask_for_commit(run: Running, verdict: ProbeVerdict) -> None:
    """Ask whether the full run may start; ``--yes`` has said so. Raises ``CommitDeclined``."""
    if run.request.yes:
        return
    then = "Commit the full run?" if run.request.then else "Keep the cluster for the full run?"
    if verdict.repriced is not None and verdict.repriced.cost_usd is not None:
        then = f"{then} It costs about {units.usd_band(verdict.repriced.cost_usd)} more."
    if run.hands.ask is None or not run.hands.ask(then):
        raise CommitDeclined("the full run was declined")


def commit(run: Running, order: Order) -> str | None:
    """Start the full run, if there is a command; returns its job's id. Repeatable: one job of a launch.

    Raises:
        CloudFault: the job could not be started.

    """
    command = run.request.then
    run.enter("committed", "" if command is None else f"job {run.id}")
    run.hands.ledger.save(run.launch().model_copy(update={"outcome": "committed"}))
    if command is None:
        return None

    def once() -> str:
        with run.cloud.reach(order) as created:
            return run.hands.proving.submit(created, run.request, run.id)

    job_id = retrying(once, run.hands, run.request.limits)
    run.hands.ledger.save(run.launch().model_copy(update={"job_id": job_id}))
    return job_id


def follow(run: Running, work: Work, job_id: str) -> bool:
    """Show the job's log until it ends; whether it succeeded. Raises ``CloudFault``."""
    assert work.order is not None
    with run.cloud.reach(work.order) as created:
        return run.hands.proving.follow(created, job_id, run.hands.screen.say)
