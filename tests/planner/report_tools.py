"""Launches made by hand, for tests of spending, budgets and reports."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from planner.launched import BilledAmount, Launch, LaunchState, PricePoint, Transition
from planner.probed import Check, ProbeVerdict, Repriced
from planner.results import Plan
from planner.types import Band

BEGUN = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def check(name: str, predicted: float | None, measured: float | None, unit: str) -> Check:
    band = None if predicted is None else Band(low=predicted * 0.9, mid=predicted, high=predicted * 1.1)
    return Check(name=name, predicted=band, measured=measured, limit=None, unit=unit, passed=True)


def passed(cost_usd: float = 100.0, *checks: Check) -> ProbeVerdict:
    band = Band(low=cost_usd * 0.9, mid=cost_usd, high=cost_usd * 1.1)
    repriced = Repriced(
        hours=Band(low=9, mid=10, high=11), cost_usd=band, budget_usd=Decimal(200), within_budget=True
    )
    return ProbeVerdict(verdict="pass", checks=checks, repriced=repriced)


def launch(
    plan: Plan,
    *states: tuple[LaunchState, float],
    id: str = "l-1",
    usd_per_hour: str | None = "10",
    budget_usd: str | None = "200",
    project: str | None = None,
    user: str = "ada",
    verdict: ProbeVerdict | None = None,
    billed: tuple[BilledAmount, ...] = (),
) -> Launch:
    """A launch that entered states at hours after ``BEGUN``; it bills one node from ``creating`` on."""
    price = None if usd_per_hour is None else Decimal(usd_per_hour)
    created = next((h for s, h in states if s == "creating"), None)
    points = (
        ()
        if created is None
        else (
            PricePoint(
                since=BEGUN + created * HOUR, item="node", quantity=1, usd_per_hour=price, source="test"
            ),
        )
    )
    offer = plan.candidate.offer
    return Launch(
        id=id,
        plan_id=plan.id,
        plan_json=plan.model_dump_json(),
        user=user,
        project=project,
        kind="aws",
        provider=offer.provider,
        region=offer.region,
        zone=None,
        market=offer.market,
        instance_type=offer.instance_type,
        gpu=offer.gpu,
        gpus_per_node=offer.gpus_per_node,
        num_nodes=plan.candidate.num_nodes,
        budget_usd=None if budget_usd is None else Decimal(budget_usd),
        created=BEGUN,
        deadline=None,
        transitions=tuple(Transition(at=BEGUN + h * HOUR, state=s) for s, h in states),
        prices=points,
        verdict=verdict,
        billed=billed,
    )
