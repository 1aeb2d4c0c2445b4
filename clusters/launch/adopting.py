"""Launches that no ledger row explains: found by their tags, shown, taken over, and ended without an order.

An adopted launch has a row, and no order: this machine has neither its key nor its plan's file, so it can be
listed, counted and deleted, and nothing else. What its machines cost is known only where its plan is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal

from clusters.clouds.base import Cloud
from clusters.clouds.marks import Marks
from clusters.launch import teardown
from clusters.launch.nouns import DONE, MAY_BILL, Finished, Hands, Limits
from clusters.launch.running import WORK
from planner import units
from planner.launched import CloudKind, Event, Launch, Outcome, PricePoint, Resource, Transition
from planner.results import Plan
from planner.spend import ended, spent, usd_per_hour
from planner.types import Record

Why = Literal["no-row", "gone"]
_ITEM_OF = {"instance": "node", "volume": "disk", "address": "address"}
_UNKNOWN = "unknown"


class Orphan(Record):
    """What is there of a launch that this ledger does not know, or takes for gone."""

    launch_id: str
    kind: CloudKind
    why: Why
    resources: tuple[Resource, ...]
    marks: Marks

    @property
    def bills(self) -> bool:
        """Whether anything of it costs money."""
        return any(r.bills for r in self.resources)


class Machine(Record):
    """What a type of machine holds, as the catalog says."""

    gpu: str
    gpus_per_node: int


def orphans(
    kind: CloudKind, found: Sequence[Resource], marks: Sequence[Marks], known: Sequence[Launch]
) -> tuple[Orphan, ...]:
    """Sort what a cloud names by launch, and leave out launches that the ledger has and that are not gone."""
    alive = {x.id for x in known if x.state != "gone"}
    gone = {x.id for x in known} - alive
    said = {m.launch_id: m for m in marks}
    of_launch: dict[str, list[Resource]] = {}
    for resource in found:
        if resource.launch_id is not None and resource.launch_id not in alive:
            of_launch.setdefault(resource.launch_id, []).append(resource)
    return tuple(
        Orphan(
            launch_id=name,
            kind=kind,
            why="gone" if name in gone else "no-row",
            resources=tuple(of_launch[name]),
            marks=said.get(name, Marks(launch_id=name)),
        )
        for name in sorted(of_launch)
    )


def adopt(orphan: Orphan, plan: Plan | None, machine: Machine | None, hands: Hands) -> Launch:
    """Write the row of an orphan; one that was taken for gone comes back with what it cost meanwhile.

    ``plan``: the one of its tags, where this machine has it; without it no price is known. The cloud is not
    touched.
    """
    now, detail = hands.now(), f"adopted: {_said(orphan.resources)}"
    with hands.ledger.lock(orphan.launch_id):
        if orphan.why == "gone":
            launch = hands.ledger.launch(orphan.launch_id)
            again = _billing_again(launch, orphan)
            hands.ledger.save(
                launch.model_copy(update={"prices": (*launch.prices, *again), "outcome": "left_running"})
            )
            hands.ledger.enter(orphan.launch_id, Transition(at=now, state="up", detail=detail))
        else:
            hands.ledger.add(_row(orphan, plan, machine, now, detail))
    return hands.ledger.launch(orphan.launch_id)


def is_adopted(launch: Launch, hands: Hands) -> bool:
    """Whether a launch has a row and no order here."""
    return hands.ledger.note(launch.id, WORK) is None


def down(launch: Launch, cloud: Cloud, hands: Hands, limits: Limits) -> Finished:
    """Delete everything of an adopted launch, and look until it is gone."""
    with hands.ledger.lock(launch.id), hands.interrupts.caught():
        hands.interrupts.hold()
        _enter(launch.id, "tearing_down", "plan down", hands)
        cleared = teardown.clear(cloud, launch.id, hands, limits)
        if cleared.may_bill:
            return _may_bill(launch, cloud, cleared, hands)
        now = hands.now()
        _save(launch.id, "torn_down", cleared.left, _stopped(hands.ledger.launch(launch.id), now), hands)
        _enter(launch.id, "gone", "plan down", hands)
        _tell(launch.id, "plan down", "torn_down", cleared.left, hands)
    return Finished(
        launch_id=launch.id, outcome="torn_down", exit_code=DONE, message="plan down", left=cleared.left
    )


# ------------------------------------------------------------------------------------- the row


def _row(orphan: Orphan, plan: Plan | None, machine: Machine | None, now: datetime, detail: str) -> Launch:
    marks = orphan.marks
    offer = None if plan is None else plan.candidate.offer
    places = [r.place for r in orphan.resources if r.place != "global"]
    since = marks.since or now
    return Launch(
        id=orphan.launch_id,
        plan_id=marks.plan_id or _UNKNOWN,
        plan_json="" if plan is None else plan.model_dump_json(),
        user=marks.owner or _UNKNOWN,
        project=None,
        kind=orphan.kind,
        provider=orphan.kind,
        region=marks.region or (places[0] if places else _UNKNOWN),
        zone=marks.zone,
        market=marks.market or (offer.market if offer is not None else _UNKNOWN),
        instance_type=marks.machine_type or (offer.instance_type if offer is not None else _UNKNOWN),
        gpu=_gpu(plan, machine),
        gpus_per_node=_gpus_per_node(plan, machine),
        num_nodes=len(marks.machines) if plan is None else plan.candidate.num_nodes,
        budget_usd=None,
        created=min(since, now),
        deadline=marks.deadline,
        min_billing_s=None if offer is None else offer.min_billing_s,
        billing_increment_s=None if offer is None else offer.billing_increment_s,
        outcome="left_running",
        transitions=(Transition(at=now, state="up", detail=detail),),
        prices=_prices(orphan, plan, min(since, now)),
    )


def _gpu(plan: Plan | None, machine: Machine | None) -> str:
    return plan.candidate.offer.gpu if plan is not None else machine.gpu if machine is not None else _UNKNOWN


def _gpus_per_node(plan: Plan | None, machine: Machine | None) -> int | None:
    if plan is not None:
        return plan.candidate.offer.gpus_per_node
    return None if machine is None else machine.gpus_per_node


def _prices(orphan: Orphan, plan: Plan | None, since: datetime) -> tuple[PricePoint, ...]:
    """Everything that bills, from its machines' start; only nodes of a plan that is here have a price."""
    hourly: Decimal | None = None
    source = "tags name no plan that is saved here"
    if orphan.marks.market == "capacity-block":
        source = "a capacity block, paid up front; what it cost is not in its tags"
    elif plan is not None and orphan.marks.machine_type == plan.candidate.offer.instance_type:
        hourly, source = plan.candidate.offer.usd_per_hour, plan.candidate.offer.source
    points = []
    for item, quantity in _billing(orphan.resources).items():
        known = item == "node"
        points.append(
            PricePoint(
                since=since,
                item=item,
                quantity=quantity,
                usd_per_hour=hourly if known else None,
                source=source if known else "not in the tags of the launch",
            )
        )
    return tuple(points)


def _billing(resources: Sequence[Resource]) -> dict[str, int]:
    """How many of each item bill."""
    counted: dict[str, int] = {}
    for resource in resources:
        if resource.bills:
            item = _ITEM_OF.get(resource.kind, "node")
            counted[item] = counted.get(item, 0) + 1
    return counted


def _billing_again(launch: Launch, orphan: Orphan) -> tuple[PricePoint, ...]:
    """What was counted as ended when the launch was taken for gone had gone on at its last price."""
    since = ended(launch) or orphan.marks.since or launch.created
    priced = {p.item: p for p in launch.prices if p.quantity > 0}
    points = []
    for item, quantity in _billing(orphan.resources).items():
        old = priced.get(item)
        points.append(
            PricePoint(
                since=since,
                item=item,
                quantity=quantity,
                usd_per_hour=None if old is None else old.usd_per_hour,
                source="found after the launch was taken for gone" if old is None else old.source,
            )
        )
    return tuple(points)


def _said(resources: Sequence[Resource]) -> str:
    counted: dict[str, int] = {}
    for resource in resources:
        counted[resource.kind] = counted.get(resource.kind, 0) + 1
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counted.items()))


# ------------------------------------------------------------------------------------- the end


def _may_bill(launch: Launch, cloud: Cloud, cleared: teardown.Cleared, hands: Hands) -> Finished:
    _save(launch.id, "may_still_bill", cleared.left, (), hands)
    hourly = usd_per_hour(launch)
    what = ", ".join(f"{r.kind} {r.id}" for r in cleared.left) or f"what is left is not known ({cleared.why})"
    cost = "at a price that is unknown" if hourly is None else f"up to {units.usd_per_hour(hourly)}"
    message = f"still there: {what}; this may cost money, {cost}"
    _tell(launch.id, message, "may_still_bill", cleared.left, hands)
    by_hand = [
        f"plan down {launch.id}   (safe to repeat)",
        *(r.hint or cloud.by_hand(r) for r in cleared.left),
    ]
    return Finished(
        launch_id=launch.id,
        outcome="may_still_bill",
        exit_code=MAY_BILL,
        message=message,
        hint="\n".join(by_hand),
        left=cleared.left,
    )


def _stopped(launch: Launch, now: datetime) -> tuple[PricePoint, ...]:
    latest = {p.item: p for p in sorted(launch.prices, key=lambda p: p.since)}
    return tuple(
        p.model_copy(update={"since": now, "quantity": 0}) for p in latest.values() if p.quantity > 0
    )


def _save(
    launch_id: str,
    outcome: Outcome,
    left: tuple[Resource, ...],
    prices: tuple[PricePoint, ...],
    hands: Hands,
) -> None:
    launch = hands.ledger.launch(launch_id)
    update = {"outcome": outcome, "resources_left": left, "prices": (*launch.prices, *prices)}
    hands.ledger.save(launch.model_copy(update=update))


def _enter(launch_id: str, state: Literal["tearing_down", "gone"], detail: str, hands: Hands) -> None:
    hands.ledger.enter(launch_id, Transition(at=hands.now(), state=state, detail=detail))
    _tell(launch_id, detail, None, (), hands)


def _tell(
    launch_id: str, detail: str, outcome: Outcome | None, left: tuple[Resource, ...], hands: Hands
) -> None:
    launch = hands.ledger.launch(launch_id)
    found = spent(launch, hands.now())
    hands.screen.event(
        Event(
            time=hands.now(),
            launch_id=launch_id,
            state=launch.state,
            detail=detail,
            spent_usd=None if "node" in found.unknown else found.usd,
            outcome=outcome,
            resources_left=left,
        )
    )
