"""Before anything bills: price, budget and the cloud's own checks, then the question with its price."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from clusters.clouds.base import Cloud, Place, PreflightCheck
from clusters.faults import CloudFault
from clusters.launch import blocks, pricing
from clusters.launch.nouns import (
    FAILED,
    NO_CREDENTIALS,
    Ceiling,
    Confirmation,
    Elsewhere,
    Hands,
    LaunchRequest,
    PriceItem,
)
from clusters.launch.patience import retrying
from clusters.launch.running import Running, order_of
from planner import units
from planner.search.candidates import frameworks_for

ELSEWHERE_CHECKS = ("quota", "offered", "capacity", "region")  # another place may pass them
_FREE_KINDS = ("local", "hosts")


class Stopped(Exception):  # noqa: N818 (an end of a launch, not an error of the program)
    """The launch ends before anything was created."""

    def __init__(
        self, message: str, hint: str, exit_code: int = FAILED, elsewhere: Elsewhere | None = None
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code
        self.elsewhere = elsewhere


@dataclass(frozen=True, slots=True)
class Priced:
    """Prices of now and what follows from them."""

    shown_usd_per_hour: Decimal | None
    node_usd_per_hour: Decimal | None
    items: tuple[PriceItem, ...]
    usd_per_hour: Decimal | None
    at_most_usd: Decimal | None


def priced(asked: LaunchRequest, hands: Hands) -> Priced:
    """Ask today's price; where nobody says it, the price that was shown stands."""
    offer = asked.plan.candidate.offer
    shown = node = offer.usd_per_hour
    if asked.kind == "local" and offer.market != "owned":  # a plan of any provider may be tried out here
        shown = node = Decimal(0)
    elif not blocks.is_block(asked):  # what a block costs today is nothing to one that was bought
        now = hands.price_now(offer)
        node = shown if now is None else now
    items = pricing.price_items(asked, node)
    if blocks.is_block(asked):
        items = blocks.counted(items, hands.ledger.launches())
    return Priced(
        shown_usd_per_hour=shown,
        node_usd_per_hour=node,
        items=items,
        usd_per_hour=pricing.usd_per_hour(items),
        at_most_usd=pricing.at_most_usd(items, asked.plan, asked.limits),
    )


def preflight(
    cloud: Cloud, asked: LaunchRequest, launch_id: str, price: Priced, hands: Hands
) -> tuple[PreflightCheck, ...]:
    """Look at everything that can be looked at without a bill. May raise ``CloudFault``."""
    order = order_of(asked, launch_id, first_place(asked), price.usd_per_hour)
    Path(order.directory).mkdir(parents=True, exist_ok=True, mode=0o700)
    found = retrying(lambda: cloud.preflight(order, asked.budget_usd), hands, asked.limits)
    return (price_check(asked, price), budget_check(asked, price), *layout_check(asked), *found)


def layout_check(request: LaunchRequest) -> tuple[PreflightCheck, ...]:
    """What our own training step refuses cannot be probed: that is said before anything bills."""
    refused = frameworks_for(request.plan.candidate.run)
    if refused is None:
        return ()
    return (
        PreflightCheck(
            name="layout",
            passed=False,
            detail=f"cannot be probed: {refused}",
            hint="plan suggest … --zero 3 --tp 1 --pp 1   (or plan cluster, and your own framework)",
        ),
    )


def first_place(request: LaunchRequest) -> Place:
    """Where the plan itself stands."""
    offer = request.plan.candidate.offer
    return Place(region=offer.region, zone=request.choices.zone or offer.zone)


def price_check(request: LaunchRequest, price: Priced) -> PreflightCheck:
    """Compare the price of now with the one that was shown."""
    if blocks.is_block(request):
        return _block_check(request, price)
    shown, now = price.shown_usd_per_hour, price.node_usd_per_hour
    plan = request.plan.id
    if shown is None or now is None:
        free = request.kind in _FREE_KINDS
        return PreflightCheck(
            name="price",
            passed=free,
            detail="the price of a node is unknown" + ("; hosts of your own need none" if free else ""),
            hint="plan prices refresh",
        )
    allowed = shown * (1 + Decimal(str(request.limits.dearer_at_most)))
    dearer = now > allowed
    detail = f"{units.usd_per_hour(now)} a node" + (
        ", unchanged" if now == shown else f", was {units.usd_per_hour(shown)} when the plan was shown"
    )
    return PreflightCheck(
        name="price",
        passed=not dearer or request.accept_price,
        detail=detail,
        hint=f"plan launch {plan} --accept-price" if dearer else "",
    )


def _block_check(request: LaunchRequest, price: Priced) -> PreflightCheck:
    """What a capacity block cost must be known; nothing is compared, since it is paid."""
    if blocks.price_usd(request) is None:
        return PreflightCheck(
            name="price",
            passed=False,
            detail="what the capacity block cost is unknown",
            hint=f"plan launch {request.plan.id} --reservation-usd USD",
        )
    once = units.usd_cents(blocks.once_usd(price.items))
    return PreflightCheck(
        name="price", passed=True, detail=f"${once} for the whole block, paid up front; no hour costs more"
    )


def budget_check(request: LaunchRequest, price: Priced) -> PreflightCheck:
    """The budget must hold creation, probe and teardown at their limits, and one hour of the run."""
    if price.at_most_usd is None or price.usd_per_hour is None:
        return PreflightCheck(
            name="budget", passed=request.kind in _FREE_KINDS, detail="the price of a node is unknown"
        )
    least = price.at_most_usd + price.usd_per_hour
    if request.budget_usd is None:
        free = price.usd_per_hour == 0
        said = "none is needed: nothing is rented" if free else "none was given"
        return PreflightCheck(name="budget", passed=free, detail=said, hint="--budget 200")
    return PreflightCheck(
        name="budget",
        passed=request.budget_usd >= least,
        detail=f"{units.usd(request.budget_usd)}; creation, probe, teardown and the first hour take at most"
        f" {units.usd_exact(least)}",
        hint=f"--budget {math.ceil(least)}",
    )


def refuse_failed(checks: tuple[PreflightCheck, ...]) -> None:
    """Stop at the first check that did not pass. Raises ``Stopped``."""
    failed = [c for c in checks if not c.passed]
    if not failed:
        return
    first = failed[0]
    code = NO_CREDENTIALS if credentials_missing(first) else FAILED
    movable = all(c.name in ELSEWHERE_CHECKS and c.fault in (None, "quota", "capacity") for c in failed)
    raise Stopped(f"{first.name}: {first.detail}", first.hint, code, ("region" if movable else None))


def credentials_missing(failed: PreflightCheck) -> bool:
    """Whether a check failed because the provider does not know who asks, and not for lack of an answer."""
    return failed.fault == "credentials" or (failed.name == "credentials" and failed.fault is None)


def confirm(run: Running, price: Priced, ceiling: Ceiling | None) -> Ceiling:
    """Show what it costs and ask; below what was confirmed already no new answer is needed.

    Raises:
        Declined: the answer was not yes.
        Stopped: it is dearer than what ``--yes`` has confirmed.

    """
    asked, plan = run.request, run.request.plan
    mine = Ceiling(usd_per_hour=price.usd_per_hour, at_most_usd=price.at_most_usd)
    if ceiling is not None and _within(mine, ceiling):
        run.hands.screen.say(
            f"{plan.id} at {units.usd_per_hour(price.usd_per_hour)} is within the confirmed"
            f" {units.usd_per_hour(ceiling.usd_per_hour)}"
        )
        return ceiling
    run.hands.screen.confirmation(
        Confirmation(
            launch_id=run.id,
            plan=plan,
            kind=asked.kind,
            items=price.items,
            shown_usd_per_hour=price.shown_usd_per_hour,
            node_usd_per_hour=price.node_usd_per_hour,
            at_most_usd=price.at_most_usd,
            budget_usd=asked.budget_usd,
            deadline=asked.choices.deadline,
            then=asked.then,
            keep=asked.keep,
            tried=run.cloud.tried,
            limits=asked.limits,
        )
    )
    if asked.yes and ceiling is None:
        return mine
    if run.hands.ask is None:
        raise Stopped(
            f"{plan.id} costs more than was confirmed, and nobody is there to ask",
            f"plan launch {plan.id} --yes",
            elsewhere="any",
        )
    question = f"Start the cluster and the probe for at most {units.usd_exact(price.at_most_usd)}?"
    if price.usd_per_hour == 0:
        question = "Start Ray and the probe on this machine? Nothing is rented."
    elif price.at_most_usd is None:
        question = "Start the cluster and the probe, at a price that is unknown?"
    if not run.hands.ask(question):
        raise Declined("declined; nothing was started")
    return mine


class Declined(Exception):  # noqa: N818 (an answer, not an error)
    """The user did not say yes."""


def _within(mine: Ceiling, confirmed: Ceiling) -> bool:
    pairs = ((mine.usd_per_hour, confirmed.usd_per_hour), (mine.at_most_usd, confirmed.at_most_usd))
    return all(a is not None and b is not None and a <= b for a, b in pairs)


def stopped_by(fault: CloudFault) -> Stopped:
    """How a fault of the cloud ends a launch that has created nothing."""
    code = NO_CREDENTIALS if fault.kind == "credentials" else FAILED
    elsewhere: Elsewhere | None = (
        "any" if fault.kind == "capacity" else "region" if fault.kind == "quota" else None
    )
    return Stopped(str(fault), fault.hint, code, elsewhere)
