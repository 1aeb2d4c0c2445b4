"""Budgets of projects: what is spent in a period, what is left, which thresholds were crossed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import Field

from planner import spend
from planner.launched import Launch
from planner.types import Record

Period = Literal["month", "year", "total"]
THRESHOLDS = (50, 80, 100)  # percent of the budget at which its owner is told


class ProjectBudget(Record):
    """Money that a project may spend in a period. ``command``, ``webhook``: told of crossed thresholds."""

    project: str = Field(min_length=1, max_length=60)
    usd: Decimal = Field(gt=0)
    per: Period
    command: str | None = None
    webhook: str | None = None


class Standing(Record):
    """How a budget stands. ``committed_usd``: what running launches may still cost, by their own budgets.

    ``is_complete`` ``False``: something that bills has no price, so more is spent than is said.
    """

    budget: ProjectBudget
    begun: datetime | None
    spent_usd: Decimal
    committed_usd: Decimal
    is_complete: bool

    @property
    def left_usd(self) -> Decimal:
        """What a new launch may cost; never negative."""
        return max(Decimal(0), self.budget.usd - self.spent_usd - self.committed_usd)

    @property
    def crossed(self) -> int | None:
        """The highest threshold, in percent, that the spent money has reached."""
        reached = [t for t in THRESHOLDS if self.spent_usd * 100 >= self.budget.usd * t]
        return reached[-1] if reached else None


def standing(budget: ProjectBudget, launches: Sequence[Launch], now: datetime) -> Standing:
    """Work out how a budget stands at ``now``."""
    begun = beginning(budget.per, now)
    mine = [la for la in launches if la.project == budget.project]
    spent = [_spent_since(la, begun, now) for la in mine]
    return Standing(
        budget=budget,
        begun=begun,
        spent_usd=sum((usd for usd, _ in spent), Decimal(0)),
        committed_usd=sum((_still(la, now) for la in mine), Decimal(0)),
        is_complete=all(complete for _, complete in spent),
    )


def beginning(per: Period, now: datetime) -> datetime | None:
    """First moment of the period that ``now`` lies in; ``None``: all time."""
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return {"month": first, "year": first.replace(month=1), "total": None}[per]


def _spent_since(launch: Launch, begun: datetime | None, now: datetime) -> tuple[Decimal, bool]:
    """What a launch spent in the period, and whether all of it has a price."""
    until_now = spend.spent(launch, now)
    before = Decimal(0) if begun is None else spend.spent(launch, begun).usd
    return max(Decimal(0), until_now.usd - before), until_now.complete


def _still(launch: Launch, now: datetime) -> Decimal:
    """What a launch that is not gone may still cost: its own budget less what it spent."""
    if launch.state == "gone" or launch.budget_usd is None:
        return Decimal(0)
    return max(Decimal(0), launch.budget_usd - spend.spent(launch, now).usd)
