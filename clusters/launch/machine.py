"""The state machine of a launch: each state is written before its act, and every way out ends in order.

``launch`` goes from the plan to a committed run or to nothing left, candidate after candidate where the first
cannot be had; ``resume`` goes on from whatever the ledger says, and never creates twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal

from clusters.clouds.base import Created, Order
from clusters.faults import CloudFault
from clusters.launch import before, blocks, creating, ending, proving, spot
from clusters.launch.interrupts import Interrupted
from clusters.launch.nouns import (
    DONE,
    FAILED,
    INTERRUPTED,
    PROBE_FAILED,
    USAGE,
    Ceiling,
    Finished,
    Hands,
    LaunchRequest,
    Work,
)
from clusters.launch.patience import retrying
from clusters.launch.running import WORK, Running, read_work
from clusters.launch.teardown import num_machines
from clusters.ledger.locks import HeldError
from clusters.ledger.store import LiveLaunchError
from planner import units
from planner.errors import UserError
from planner.launched import Launch, Transition
from planner.results import Plan
from planner.spend import spent

_PROVING = ("up", "probing", "verdict")
_COUNTED_AS_ONE = ("local", "kuberay")  # one group of processes, one RayCluster


class RefusedError(UserError):
    """The launch may not begin; nothing was started. ``exit_code``: 2 for a missing answer, else 1."""

    def __init__(self, message: str, hint: str, exit_code: int) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


def launch(request: LaunchRequest, hands: Hands) -> Finished:
    """Launch a plan, or the next candidate where it cannot be had.

    Raises:
        RefusedError: nobody can answer the question, or the plan has a launch that is not gone.

    """
    _refuse_without_answer(request, hands)
    finished = _one(request, hands, None)
    failed: list[tuple[Plan, Finished]] = [(request.plan, finished)]
    for plan in _others(finished, request, hands):
        if finished.elsewhere is None or hands.interrupts.noted:
            break
        if any(_same_reason(plan, *past) for past in failed):
            continue
        left = _budget_left(request, failed, hands)
        hands.screen.say(f"next candidate: {describe(plan)}")
        finished = _one(_for(plan, request, left), hands, finished.ceiling)
        failed.append((plan, finished))
    if hands.interrupts.noted and finished.elsewhere is not None:  # it came during the teardown
        return finished.model_copy(update={"exit_code": INTERRUPTED})
    return finished


def resume(launch_id: str, hands: Hands) -> Finished:
    """Go on with a launch whose process ended: continue, or tear down; nothing is ever created twice.

    Raises:
        UserError: there is no such launch, or another process acts on it.

    """
    hands.ledger.launch(launch_id)
    with _held(launch_id, hands):
        work = read_work(launch_id, hands)
        run = Running(launch_id, work.request, hands.cloud_of(work.request), hands)
        state = run.launch().state
        if state == "gone":
            return ending.already_gone(run)
        if state in ("planned", "preflight", "confirmed", "creating", *_PROVING):
            _refuse_without_answer(work.request, hands)
        return _guarded(run, lambda: _continue(run, work))


def describe(plan: Plan) -> str:
    """Name a candidate with its price."""
    c = plan.candidate
    return (
        f"{plan.id}, {c.num_nodes} × {c.offer.provider} {c.offer.instance_type} in {c.offer.region},"
        f" {c.offer.market}, {units.usd_per_hour(c.offer.usd_per_hour)} a node"
    )


# ------------------------------------------------------------------------------------- one candidate


def _one(request: LaunchRequest, hands: Hands, ceiling: Ceiling | None) -> Finished:
    """Launch one candidate under an id of its own."""
    launch_id = hands.new_id()
    with _held(launch_id, hands):
        work = Work(request=request)
        try:
            hands.ledger.begin(_planned(launch_id, request, hands), {WORK: work.model_dump_json()})
        except LiveLaunchError as error:
            raise RefusedError(
                f"{request.plan.id} has a launch that is not gone: {error.launch_id}",
                f"plan launch --resume {error.launch_id}   or   plan down {error.launch_id}",
                FAILED,
            ) from None
        run = Running(launch_id, request, hands.cloud_of(request), hands)
        run.tell("planned", describe(request.plan))
        return _guarded(run, lambda: _from_start(run, ceiling))


def _from_start(run: Running, ceiling: Ceiling | None) -> Finished:
    """Preflight, question, and on."""
    run.enter("preflight")
    try:
        price = before.priced(run.request, run.hands)
        checks = before.preflight(run.cloud, run.request, run.id, price, run.hands)
        run.hands.screen.checks(checks)
        before.refuse_failed(checks)
        confirmed = before.confirm(run, price, ceiling)
    except before.Declined as declined:
        return ending.declined(run, str(declined))
    except before.Stopped as stopped:
        return ending.stopped(run, stopped, ceiling)
    except CloudFault as fault:
        return ending.stopped(run, before.stopped_by(fault), ceiling)
    run.write_work(run.work().model_copy(update={"ceiling": confirmed}))
    run.enter("confirmed")
    return _from_confirmed(run, price)


def _from_confirmed(run: Running, price: before.Priced) -> Finished:
    """Create, and on."""
    try:
        created = creating.create(run, price)
        order = run.work().order
        assert order is not None
        run.write_work(run.work().model_copy(update={"created": created}))
        run.enter("up", f"{created.num_nodes} nodes, {created.num_gpus} GPUs")
        creating.verify(run, order, created)
    except creating.NotReleased as left:
        return ending.not_released(run, left)
    except CloudFault as fault:
        return ending.failed(run, fault)
    _remember_address(run, created, order)
    return _from_up(run, order)


def _from_up(run: Running, order: Order) -> Finished:
    """Probe, verdict, full run."""
    try:
        verdict = proving.prove(run, order)
        proving.ask_for_commit(run, verdict)
    except proving.ProbeFailed as failed:
        if run.request.keep:
            return ending.kept(run, failed)
        finished = ending.torn_down(run, str(failed), PROBE_FAILED, _hint(failed))
        wanted = run.request.next_on_fail and finished.exit_code == PROBE_FAILED
        return finished.model_copy(update={"elsewhere": "any" if wanted else None, "ceiling": run.ceiling()})
    except proving.CommitDeclined as declined:
        finished = ending.torn_down(run, str(declined), FAILED)
        return finished.model_copy(update={"outcome": "declined"}) if not finished.left else finished
    return _from_commit(run, order)


def _from_commit(run: Running, order: Order) -> Finished:
    """Start the full run, and show its log while we may; a signal now only detaches."""
    try:
        job_id = proving.commit(run, order)
    except CloudFault as fault:
        return ending.failed(run, fault)
    return _attached(run, job_id)


def _attached(run: Running, job_id: str | None) -> Finished:
    if job_id is None:
        return ending.committed(run, DONE, f"the cluster is yours: {run.launch().address}")
    if spot.is_spot(run):
        return spot.attached(run, job_id)
    try:
        succeeded = proving.follow(run, run.work(), job_id)
    except (CloudFault, Interrupted) as error:
        run.hands.interrupts.hold()
        return ending.committed(run, DONE, f"detached ({error}); job {job_id} goes on")
    if succeeded:
        return ending.committed(run, DONE, f"job {job_id} succeeded")
    return ending.committed(run, FAILED, f"job {job_id} failed")


# ------------------------------------------------------------------------------------- resume


def _continue(run: Running, work: Work) -> Finished:
    """Go on from the state that the ledger names."""
    state = run.launch().state
    run.hands.screen.say(f"{run.id} was left in state {state}")
    if state not in ("tearing_down", "committed") and run.request.choices.deadline <= run.hands.now():
        return ending.torn_down(run, "its deadline has passed", FAILED, f"plan launch {run.request.plan.id}")
    if state in ("planned", "preflight"):
        return _from_start(run, None)
    if state == "confirmed":
        return _from_start(run, work.ceiling)
    if state == "creating":
        return _recreate(run, work)
    if state in _PROVING and work.order is not None and _all_there(run, work.order):
        return _from_up(run, work.order)
    if state == "committed" and work.order is not None and spot.is_spot(run):
        return spot.resumed(run, work)
    if state == "committed" and work.order is not None and _all_there(run, work.order):
        return _from_commit(run, work.order)
    return ending.torn_down(run, f"left in state {state}", FAILED)


def _recreate(run: Running, work: Work) -> Finished:
    """Create only where nothing of the launch exists; whatever does is torn down, never added to."""
    limits = run.request.limits
    for look in range(limits.looks):
        try:
            found = retrying(lambda: run.cloud.find(run.id), run.hands, limits)
        except CloudFault as fault:
            return ending.failed(run, fault)
        if num_machines(found):
            return ending.torn_down(run, "interrupted while it was created", FAILED)
        if look < limits.looks - 1:
            run.hands.sleep(limits.look_every_s)
    begun = [t.at for t in run.launch().transitions if t.state == "creating"]
    run.unbill(begun[-1])
    return _from_start(run, work.ceiling)


def _all_there(run: Running, order: Order) -> bool:
    """Whether every machine of the launch still exists; a cloud that does not answer counts as no."""
    try:
        found = retrying(lambda: run.cloud.find(run.id), run.hands, run.request.limits)
        return num_machines(found) >= (1 if run.request.kind in _COUNTED_AS_ONE else order.num_nodes)
    except CloudFault:
        return False


# ------------------------------------------------------------------------------------- around all of it


def _guarded(run: Running, act: Callable[[], Finished]) -> Finished:
    """Run with signals caught; whatever ends it early, the launch is torn down."""
    settled = False
    with run.hands.interrupts.caught():
        try:
            finished = act()
            settled = True
        except Interrupted as signal:
            run.hands.interrupts.hold()
            settled = True
            finished = ending.interrupted(run, signal)
        finally:
            if not settled:  # an error of ours: it is raised, and costs nothing
                run.hands.interrupts.hold()
                ending.torn_down(run, "ended by an error", FAILED)
    return finished


@contextmanager
def _held(launch_id: str, hands: Hands) -> Iterator[None]:
    """Hold the launch's lock."""
    try:
        with hands.ledger.lock(launch_id):
            yield
    except HeldError as error:
        raise RefusedError(str(error), f"plan down {launch_id}   asks it to end", FAILED) from None


def _refuse_without_answer(request: LaunchRequest, hands: Hands) -> None:
    if hands.ask is None and not request.yes:
        raise RefusedError(
            "nobody is there to confirm the price; nothing was started",
            f"plan launch {request.plan.id} --yes",
            USAGE,
        )


def _planned(launch_id: str, request: LaunchRequest, hands: Hands) -> Launch:
    c, now = request.plan.candidate, hands.now()
    return Launch(
        id=launch_id,
        plan_id=request.plan.id,
        plan_json=request.plan.model_dump_json(),
        user=request.user,
        project=request.project,
        kind=request.kind,
        provider=c.offer.provider,
        region=c.offer.region,
        zone=request.choices.zone or c.offer.zone,
        market=c.offer.market,
        instance_type=c.offer.instance_type,
        gpu=c.offer.gpu,
        gpus_per_node=c.offer.gpus_per_node,
        num_nodes=c.num_nodes,
        budget_usd=request.budget_usd,
        created=now,
        deadline=request.choices.deadline,
        then=request.then,
        checkpoint_path=request.choices.storage,
        min_billing_s=None if blocks.is_block(request) else c.offer.min_billing_s,
        billing_increment_s=c.offer.billing_increment_s,
        transitions=(Transition(at=now, state="planned"),),
    )


def _remember_address(run: Running, created: Created, order: Order) -> None:
    update = {"address": created.address, "zone": order.place.zone, "region": order.place.region}
    run.hands.ledger.save(run.launch().model_copy(update=update))


def _hint(failed: proving.ProbeFailed) -> str:
    return failed.advice[0] if failed.advice else "plan suggest …   with what the probe has shown"


def _others(finished: Finished, request: LaunchRequest, hands: Hands) -> Iterator[Plan]:
    if finished.elsewhere is not None and request.choices.reservation is None:  # what was bought, or nothing
        yield from hands.next_plans(request.plan)


def _same_reason(plan: Plan, past: Plan, finished: Finished) -> bool:
    """Whether a candidate would fail as a past one did: same place and machine, or a quota of one region."""
    a, b = plan.candidate.offer, past.candidate.offer
    same_place = (a.provider, a.region) == (b.provider, b.region)
    if finished.elsewhere == "region":
        return same_place and a.market == b.market
    return same_place and (a.instance_type, a.market, a.zone) == (b.instance_type, b.market, b.zone)


def _for(plan: Plan, request: LaunchRequest, budget: Decimal | None) -> LaunchRequest:
    """The same wish for another candidate; what names a place of the first does not go along."""
    same = plan.candidate.offer.region == request.plan.candidate.offer.region
    choices = request.choices
    if not same:
        choices = choices.model_copy(update={"zone": None, "subnet": None, "security_group": None})
    return request.model_copy(update={"plan": plan, "choices": choices, "budget_usd": budget})


def _budget_left(request: LaunchRequest, failed: list[tuple[Plan, Finished]], hands: Hands) -> Decimal | None:
    if request.budget_usd is None:
        return None
    launches = (hands.ledger.launch(f.launch_id) for _, f in failed)
    return max(request.budget_usd - sum(spent(x, hands.now()).usd for x in launches), Decimal(0))
