"""A full run on spot machines: a host that is taken away costs the work since the last checkpoint.

While the run is followed, and when it is resumed, machines that are gone are noticed; what is left is torn
down, the lost work is written down, and the cluster is built again within what is left of the budget. The job
starts with the same command and goes on from its own checkpoint. A rebuilt cluster is not probed again.
"""

from __future__ import annotations

import json
import re
from datetime import datetime

from clusters.clouds.base import Created
from clusters.faults import CloudFault
from clusters.launch import before, creating, ending, proving, teardown
from clusters.launch.interrupts import Interrupted
from clusters.launch.nouns import DONE, FAILED, Finished, Work
from clusters.launch.patience import retrying
from clusters.launch.pricing import MACHINES_OF_THEIR_OWN
from clusters.launch.running import Running
from planner import units
from planner.launched import LostWork, Resource
from planner.types import Record

MACHINES, PROGRESS, ENDED = "machines", "progress", "ended"
_STEP = re.compile(r"\bstep (\d+)\b")
_CHECKPOINT = re.compile(r"\bcheckpoint at step (\d+)\b")


class Progress(Record):
    """How far the job said it was. ``checkpoint_at``: when its line was read, which may be later."""

    step: int | None = None
    checkpoint_step: int | None = None
    checkpoint_at: datetime | None = None


class NotRebuilt(Exception):  # noqa: N818 (an end of a launch)
    """The cluster is not built again: too often, too late, too dear, or the answer was no."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Watch:
    """Reads how far the job is from its log, and looks now and then whether its machines are there."""

    def __init__(self, run: Running) -> None:
        self._run = run
        self._seen = self._looked = run.hands.now()
        self.progress = _progress(run)

    def log(self, line: str) -> None:
        """Show a line; ``step N`` and ``checkpoint at step N`` in it say how far the job is."""
        if found := _CHECKPOINT.search(line):
            self._checkpoint(int(found[1]))
        elif found := _STEP.search(line):
            self.progress = self.progress.model_copy(update={"step": int(found[1])})
        self._run.hands.screen.say(line)

    def _checkpoint(self, step: int) -> None:
        if step == self.progress.checkpoint_step:  # a log that is followed again comes from its beginning
            return
        now = self._run.hands.now()
        self.progress = Progress(step=step, checkpoint_step=step, checkpoint_at=now)
        self._run.hands.ledger.write_note(self._run.id, PROGRESS, self.progress.model_dump_json())

    def tick(self) -> None:
        """Raise ``CloudFault`` where machines have been gone for so long that the job waits for them."""
        run, limits, now = self._run, self._run.request.limits, self._run.hands.now()
        if (now - self._looked).total_seconds() < limits.watch_every_s:
            return
        self._looked = now
        if not _gone(run, by_id=False):
            self._seen = now
        elif (now - self._seen).total_seconds() >= limits.lost_after_s:
            raise CloudFault("unreachable", "machines of the run are gone, and it does not go on")


def is_spot(run: Running) -> bool:
    """Whether a launch has a full run on machines that may be taken away."""
    market, kind = run.request.plan.candidate.offer.market, run.request.kind
    return market == "spot" and kind in MACHINES_OF_THEIR_OWN and run.request.then is not None


def attached(run: Running, job_id: str) -> Finished:
    """Follow the full run to its end, over as many clusters as it takes."""
    while True:
        _remember_machines(run)
        watch = Watch(run)
        try:
            succeeded = _follow(run, job_id, watch)
        except Interrupted as signal:
            run.hands.interrupts.hold()
            return ending.committed(run, DONE, f"detached ({signal}); job {job_id} goes on")
        except CloudFault as fault:
            why = _missing(run, by_id=False)
            if not why:
                return ending.committed(run, DONE, f"detached ({fault}); job {job_id} goes on")
        else:
            why = "" if succeeded else _missing(run, by_id=True)
            if not why:
                return _ended(run, job_id, succeeded)
        again = _rebuilt(run, _lost(run, watch.progress, why))
        if isinstance(again, Finished):
            return again
        job_id = again


def resumed(run: Running, work: Work) -> Finished:
    """Go on with a committed run: attach where its machines are there, else build them again."""
    assert work.order is not None
    why, ended = _missing(run, by_id=False), run.hands.ledger.note(run.id, ENDED)
    if why and ended is not None:
        code = DONE if ended == "succeeded" else FAILED
        return ending.torn_down(run, f"its job had {ended}; {why}", code)
    if not why:
        try:
            job_id = proving.commit(run, work.order)
        except CloudFault as fault:
            return ending.failed(run, fault)
        assert job_id is not None
        return attached(run, job_id)
    lost = LostWork(at=run.hands.now(), steps=None, seconds=None, why=why)  # nobody saw when they went
    again = _rebuilt(run, lost)
    return again if isinstance(again, Finished) else attached(run, again)


# ------------------------------------------------------------------------------------- what is there


def _follow(run: Running, job_id: str, watch: Watch) -> bool:
    order = run.work().order
    assert order is not None
    with run.cloud.reach(order) as created:
        return run.hands.proving.follow(created, job_id, watch.log, watch.tick)


def _ended(run: Running, job_id: str, succeeded: bool) -> Finished:
    run.hands.ledger.write_note(run.id, ENDED, "succeeded" if succeeded else "failed")
    if succeeded:
        return ending.committed(run, DONE, f"job {job_id} succeeded")
    return ending.committed(run, FAILED, f"job {job_id} failed")


def _remember_machines(run: Running) -> None:
    """Write down which machines the run stands on; where the cloud does not say, their number is all."""
    try:
        found = retrying(lambda: run.cloud.find(run.id), run.hands, run.request.limits)
    except CloudFault:
        found = ()
    run.hands.ledger.write_note(run.id, MACHINES, json.dumps(sorted(_alive(found))))


def _alive(found: tuple[Resource, ...]) -> set[str]:
    return {r.id for r in found if r.kind in teardown.MACHINES and r.bills}


def _gone(run: Running, *, by_id: bool) -> str:
    """Say which machines of the run are gone; empty where all are there, or where nobody can tell.

    ``by_id``: also where another stands in for it. Ray replaces a worker by itself, which a job that goes on
    has survived, and one that failed has not.
    """
    try:
        there = _alive(retrying(lambda: run.cloud.find(run.id), run.hands, run.request.limits))
    except CloudFault:
        return ""
    known = set(json.loads(run.hands.ledger.note(run.id, MACHINES) or "[]"))
    num = max(len(known), run.request.plan.candidate.num_nodes)
    gone = known - there
    if gone and (by_id or len(there) < num):
        return f"{len(gone)} of {num} machines are gone: {', '.join(sorted(gone))}"
    return f"{num - len(there)} of {num} machines are gone" if len(there) < num else ""


def _missing(run: Running, *, by_id: bool) -> str:
    """As ``_gone``, several times in a row: one list that is short may be a list of a moment ago."""
    limits, in_a_row = run.request.limits, 0
    for look in range(2 * limits.looks):
        if look:
            run.hands.sleep(limits.look_every_s)
        said = _gone(run, by_id=by_id)
        in_a_row = in_a_row + 1 if said else 0
        if in_a_row >= limits.looks:
            return said
    return ""


def _progress(run: Running) -> Progress:
    text = run.hands.ledger.note(run.id, PROGRESS)
    return Progress() if text is None else Progress.model_validate_json(text)


def _lost(run: Running, progress: Progress, why: str) -> LostWork:
    """Count back to the last checkpoint that the job named, else to the start of this cluster's run."""
    begun = [t.at for t in run.launch().transitions if t.state == "committed"][-1]
    now = run.hands.now()
    known = progress.step is not None and progress.checkpoint_step is not None
    steps = max(0, (progress.step or 0) - (progress.checkpoint_step or 0)) if known else None
    since = max(begun, progress.checkpoint_at or begun)
    return LostWork(at=now, steps=steps, seconds=(now - since).total_seconds(), why=why)


# ------------------------------------------------------------------------------------- again


def _rebuilt(run: Running, lost: LostWork) -> str | Finished:
    """Build the cluster again and start the job on it; how the launch ended where that is not possible."""
    try:
        return _rebuild(run, lost)
    except NotRebuilt as over:
        return ending.torn_down(run, f"{lost.why}; not rebuilt: {over}", FAILED, over.hint)
    except creating.NotReleased as left:
        return ending.not_released(run, left)
    except CloudFault as fault:
        return ending.failed(run, fault).model_copy(update={"elsewhere": None})


def _rebuild(run: Running, lost: LostWork) -> str:
    launch = run.launch()
    run.hands.ledger.save(launch.model_copy(update={"lost": (*launch.lost, lost)}))
    run.enter("tearing_down", f"{lost.why}; {_said(lost)}")
    cleared = teardown.clear(run.cloud, run.id, run.hands, run.request.limits)
    if not cleared.gone:
        raise creating.NotReleased(cleared, f"{lost.why}; {cleared.why}")
    ending.stop_billing(run)
    price = _allowed(run)
    created = _created(run, price)
    order = run.work().order
    assert order is not None
    run.write_work(run.work().model_copy(update={"created": created}))
    run.enter("up", f"{created.num_nodes} nodes, {created.num_gpus} GPUs, rebuilt")
    creating.verify(run, order, created)
    update = {"address": created.address, "zone": order.place.zone, "region": order.place.region}
    run.hands.ledger.save(run.launch().model_copy(update=update))
    job_id = proving.commit(run, order)
    assert job_id is not None
    return job_id


def _said(lost: LostWork) -> str:
    steps = "steps unknown" if lost.steps is None else f"{lost.steps} steps"
    seconds = "for how long is unknown" if lost.seconds is None else units.duration(lost.seconds)
    return f"lost work: {steps}, {seconds}"


def _allowed(run: Running) -> before.Priced:
    """Price another start. Raises ``NotRebuilt`` where it is too often, too late, or not paid for."""
    launch, limits = run.launch(), run.request.limits
    if len(launch.lost) > limits.rebuilds:
        raise NotRebuilt(f"it was rebuilt {limits.rebuilds} times", f"plan launch {launch.plan_id}")
    if (launch.deadline or run.request.choices.deadline) <= run.hands.now():
        raise NotRebuilt("its deadline has passed", f"plan launch {launch.plan_id}")
    price = before.priced(run.request, run.hands)
    left = run.left_of_budget()
    check = before.budget_check(run.request.model_copy(update={"budget_usd": left}), price)
    if not check.passed:
        raise NotRebuilt(f"the budget has {check.detail}", f"plan launch {launch.plan_id} --budget MORE")
    try:
        before.confirm(run, price, run.ceiling())
    except before.Declined as declined:
        raise NotRebuilt(str(declined)) from None
    except before.Stopped as stopped:
        raise NotRebuilt(str(stopped), stopped.hint) from None
    return price


def _created(run: Running, price: before.Priced) -> Created:
    """Create under a new client token; where spot has no capacity, wait: nothing bills meanwhile."""
    limits = run.request.limits
    for waits_left in range(limits.capacity_waits, -1, -1):
        _next_attempt(run)
        try:
            return creating.create(run, price)
        except CloudFault as fault:
            if fault.kind != "capacity" or not waits_left:
                raise
            run.tell("creating", f"no spot capacity; again in {units.duration(limits.capacity_wait_s)}")
        run.hands.sleep(limits.capacity_wait_s)
        price = _allowed(run)
    raise AssertionError  # the last try returns or raises


def _next_attempt(run: Running) -> None:
    """The token of the machines that are gone must not be used again: AWS would answer with those."""
    work = run.work()
    assert work.order is not None
    order = work.order.model_copy(update={"attempt": work.order.attempt + 1})
    run.write_work(work.model_copy(update={"order": order}))
