"""Launches as lines of ``plan ls``: state, spend, forecast, deadline."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from planner import spend
from planner.launched import Event, Launch, LostWork
from planner.results import Plan
from planner.types import Band


class LaunchRow(Event):
    """A launch now. It is an event whose time is the moment of asking; ``unknown``: items without a price."""

    plan_id: str
    provider: str
    region: str
    instance_type: str
    num_nodes: int
    user: str
    project: str | None
    usd_per_hour: Decimal | None
    unknown: tuple[str, ...]
    forecast_usd: Band | None
    budget_usd: Decimal | None
    deadline: datetime | None
    address: str | None
    job_id: str | None
    lost: tuple[LostWork, ...] = ()
    lost_usd: Decimal = Decimal(0)


def row(launch: Launch, now: datetime) -> LaunchRow:
    """Work out one line."""
    found, lost = spend.spent(launch, now), spend.lost_usd(launch, now)
    return LaunchRow(
        time=now,
        launch_id=launch.id,
        state=launch.state,
        detail=launch.transitions[-1].detail if launch.transitions else "",
        spent_usd=None if "node" in found.unknown else found.usd,
        outcome=launch.outcome,
        resources_left=launch.resources_left,
        plan_id=launch.plan_id,
        provider=launch.provider if launch.kind not in ("local", "hosts") else launch.kind,
        region=launch.region if launch.kind not in ("local", "hosts") else "",
        instance_type=launch.instance_type,
        num_nodes=launch.num_nodes,
        user=launch.user,
        project=launch.project,
        usd_per_hour=spend.usd_per_hour(launch),
        unknown=found.unknown,
        forecast_usd=_with_lost(forecast(launch), lost),
        budget_usd=launch.budget_usd,
        deadline=launch.deadline,
        address=launch.address,
        job_id=launch.job_id,
        lost=launch.lost,
        lost_usd=lost,
    )


def _with_lost(band: Band | None, lost_usd: Decimal) -> Band | None:
    """Add what is done twice to what a run was to cost."""
    more = float(lost_usd)
    return None if band is None else Band(low=band.low + more, mid=band.mid + more, high=band.high + more)


def forecast(launch: Launch) -> Band | None:
    """Cost at the end: what the probe says from its moment on, else the plan's own figure."""
    if launch.kind == "local":
        return None
    if any(p.usd_once is not None for p in launch.prices):
        return _of_block(launch)
    if launch.verdict is not None:
        repriced, at = launch.verdict.repriced, _verdict_at(launch)
        if repriced is None or repriced.cost_usd is None or at is None:
            return None
        before = float(spend.spent(launch, at).usd)
        cost = repriced.cost_usd
        return Band(low=cost.low + before, mid=cost.mid + before, high=cost.high + before)
    if not launch.plan_json:  # adopted without its plan
        return None
    plan = Plan.model_validate_json(launch.plan_json)
    return plan.candidate.cost_usd if plan.candidate.offer.usd_per_hour is not None else None


def _of_block(launch: Launch) -> Band | None:
    """Cost at the end in a capacity block: what is paid, and what its disks and addresses still take."""
    repriced = None if launch.verdict is None else launch.verdict.repriced
    hours = Plan.model_validate_json(launch.plan_json).candidate.hours if repriced is None else repriced.hours
    before = float(spend.spent(launch, _verdict_at(launch) or launch.prices[0].since).usd)
    hourly = float(spend.usd_per_hour(launch) or 0)
    low, mid, high = (before + hourly * h for h in (hours.low, hours.mid, hours.high))
    return Band(low=low, mid=mid, high=high)


def _verdict_at(launch: Launch) -> datetime | None:
    times = [t.at for t in launch.transitions if t.state == "verdict"]
    return times[-1] if times else None
