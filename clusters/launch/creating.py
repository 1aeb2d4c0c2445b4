"""Bring a cluster up: place after place until one has the machines, all of them or none.

Before any create the launch's machines are counted by tag, and after a create that failed everything of the
launch is released before the next is tried: there are never two clusters of one launch.
"""

from __future__ import annotations

from datetime import datetime

from clusters.clouds.base import Created, Order, Place
from clusters.faults import CloudFault
from clusters.launch import blocks, pricing, teardown
from clusters.launch.before import Priced, first_place
from clusters.launch.nouns import PriceItem
from clusters.launch.patience import PASSING, pause, retrying
from clusters.launch.running import Running


class NotReleased(Exception):  # noqa: N818 (an end of a launch)
    """What a failed create left behind did not go away."""

    def __init__(self, cleared: teardown.Cleared, why: str) -> None:
        super().__init__(why)
        self.cleared = cleared


def create(run: Running, price: Priced) -> Created:
    """Create in the first place that has the machines.

    Raises:
        CloudFault: of the last place, or of the first that another place would not help.
        NotReleased: what is left of a failed try may still bill.

    """
    last = CloudFault("capacity", "no place offers this machine")
    before = run.work().order  # of a launch that is resumed: the same place under the same token comes first
    places = _places(run, price)
    if before is not None:
        places = tuple(dict.fromkeys((before.place, *places)))
    for attempt, place in enumerate(places, 1 if before is None else before.attempt):
        try:
            return _create_at(run, place, attempt, price)
        except CloudFault as fault:
            if fault.kind != "capacity":
                raise
            run.tell("creating", f"no capacity in {place.zone or place.region}: {fault}")
            last = fault
    raise last


def _places(run: Running, price: Priced) -> tuple[Place, ...]:
    """Zones to try in order; a zone that the user named is the only one."""
    first = first_place(run.request)
    if run.request.choices.zone:
        return (first,)
    order = run.order(first, 1, price.usd_per_hour)
    found = retrying(lambda: run.cloud.places(order), run.hands, run.request.limits)
    if (
        run.request.kind in pricing.MACHINES_OF_THEIR_OWN
    ):  # another region has another price: a next candidate
        found = [p for p in found if p.region == first.region]
    return tuple(dict.fromkeys(found)) or (first,)


def _create_at(run: Running, place: Place, attempt: int, price: Priced) -> Created:
    """Create in one place; a call that was lost on its way is repeated with the same client token."""
    order = run.order(place, attempt, price.usd_per_hour, blocks.once_usd(price.items))
    where = place.zone or place.region
    tried = 0
    while True:
        tried += 1
        run.write_work(run.work().model_copy(update={"order": order}))
        run.enter("creating", f"{order.num_nodes} × {_type(run)} in {where}, attempt {attempt}")
        begun = run.hands.now()
        try:
            _refuse_existing(run)
            ready = retrying(lambda: run.cloud.prepare(order), run.hands, run.request.limits)
            run.write_work(run.work().model_copy(update={"order": ready}))
            run.bill(price.items, on=True)
            return run.cloud.create(ready, run.hands.screen.say)
        except CloudFault as fault:
            nothing = release(run, price.items, begun, fault)
            if fault.kind not in PASSING or not nothing or tried >= run.request.limits.tries:
                raise
            pause(tried, run.hands, run.request.limits)


def _refuse_existing(run: Running) -> None:
    """Count the launch's machines by tag; none may be there before a create."""
    found = retrying(lambda: run.cloud.find(run.id), run.hands, run.request.limits)
    if there := teardown.num_machines(found):
        raise CloudFault("not-joined", f"{there} machines of {run.id} exist before it was to create any")


def release(run: Running, items: tuple[PriceItem, ...], begun: datetime, fault: CloudFault) -> bool:
    """All or none: delete what a failed create left; returns whether no machine had been there.

    Raises:
        NotReleased: something may still bill.

    """
    run.tell("creating", f"{fault}; releasing what was created")
    if fault.log:
        run.hands.screen.say(fault.log)
    cleared = teardown.clear(run.cloud, run.id, run.hands, run.request.limits)
    if not cleared.gone:
        raise NotReleased(cleared, f"{fault}; {cleared.why}")
    if cleared.found_billing:
        run.bill(items, on=False)
    else:
        run.unbill(begun)
    return not cleared.found_billing


def verify(run: Running, order: Order, created: Created) -> None:
    """Count what has joined: every node and GPU of the plan, or the cluster is no good.

    Raises:
        CloudFault: ``not-joined``.

    """
    if run.request.kind == "local":  # one machine, whose CPUs may stand in for GPUs
        return
    gpus = order.num_nodes * run.request.plan.candidate.offer.gpus_per_node
    if created.num_nodes < order.num_nodes or created.num_gpus < gpus:
        raise CloudFault(
            "not-joined",
            f"{created.num_nodes} of {order.num_nodes} nodes with {created.num_gpus} GPUs have joined",
        )
    if run.request.kind in pricing.MACHINES_OF_THEIR_OWN:
        found = retrying(lambda: run.cloud.find(run.id), run.hands, run.request.limits)
        if (machines := teardown.num_machines(found)) < order.num_nodes:
            raise CloudFault("not-joined", f"the provider names {machines} of {order.num_nodes} machines")


def _type(run: Running) -> str:
    return run.request.plan.candidate.offer.instance_type
