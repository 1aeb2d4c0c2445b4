"""Figures that all clouds work out of an order. Pure: no clock, no machine."""

from __future__ import annotations

from datetime import datetime

from clusters import watchdog
from clusters.backend.documents import GRACE_S
from clusters.clouds.base import Order
from planner.results import Plan

WORKER_BYTES = 400 * 1024**2  # of a Ray worker with torch, before the model (383 to 391 MiB, Ray 2.60)


def num_ranks(plan: Plan) -> int:
    """Ranks of a plan's layout: one GPU each."""
    layout = plan.candidate.run.layout
    return layout.dp * layout.tp * layout.pp * layout.cp


def limits(
    order: Order,
    end: str,
    since_s: float,
    address: str = "",
    paths: str = "",
    head_paths: str = "",
    region: str = "",
) -> watchdog.Limits:
    """Limits of a launch: its deadline, and what may still be spent on it from ``since_s`` on."""
    return watchdog.Limits(
        launch_id=order.launch_id,
        deadline_s=order.choices.deadline.timestamp(),
        since_s=since_s,
        budget_usd=None if order.budget_usd is None else str(order.budget_usd),
        usd_per_hour=None if order.usd_per_hour is None else str(order.usd_per_hour),
        grace_s=GRACE_S,
        end=end,
        region=region,
        address=address,
        paths=paths,
        head_paths=head_paths,
    )


def moved(old: watchdog.Limits, order: Order, deadline: datetime) -> watchdog.Limits:
    """Limits with another deadline, and the order's budget; since when it counts stays."""
    budget = None if order.budget_usd is None else str(order.budget_usd)
    return old._replace(deadline_s=deadline.timestamp(), budget_usd=budget)


def kernel_bytes(text: str, key: str) -> float | None:
    """Read a line ``Key:  123 kB`` of ``/proc/meminfo``."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == key:
            number = value.split()[0]
            return float(number) * 1024 if number.isdigit() else None
    return None
