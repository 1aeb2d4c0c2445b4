"""Budgets of projects: what is left is never more than what was set, and never counts what has no price."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from planner.budgets import ProjectBudget, beginning, standing
from planner.results import Plan
from tests.cli.conftest import choices
from tests.planner.report_tools import BEGUN, HOUR, launch

CREATING = (("planned", 0.0), ("creating", 0.0))
DONE = (*CREATING, ("committed", 1.0), ("gone", 10.0))
LATER = BEGUN + 50 * HOUR


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(id="p-00000001", created=BEGUN, command="plan suggest", candidate=choices()[0])


def budget(usd: int = 500, per: str = "total") -> ProjectBudget:
    return ProjectBudget.model_validate({"project": "alpha", "usd": Decimal(usd), "per": per})


def test_only_launches_of_the_project_count(plan: Plan) -> None:
    mine, other = launch(plan, *DONE, project="alpha"), launch(plan, *DONE, id="l-2", project="beta")
    assert standing(budget(), [mine, other], LATER).spent_usd == Decimal(100)


def test_a_running_launch_holds_its_own_budget_back(plan: Plan) -> None:
    at = standing(budget(), [launch(plan, *CREATING, project="alpha")], BEGUN + 5 * HOUR)
    assert (at.spent_usd, at.committed_usd, at.left_usd) == (50, 150, 300)


def test_left_is_never_negative(plan: Plan) -> None:
    at = standing(budget(60), [launch(plan, *DONE, project="alpha")], LATER)
    assert at.left_usd == 0
    assert at.crossed == 100


@pytest.mark.parametrize(("usd", "crossed"), [(1000, None), (200, 50), (125, 80), (100, 100), (50, 100)])
def test_the_highest_threshold_that_was_reached_is_told(plan: Plan, usd: int, crossed: int | None) -> None:
    assert standing(budget(usd), [launch(plan, *DONE, project="alpha")], LATER).crossed == crossed


def test_a_month_counts_only_what_was_spent_in_it(plan: Plan) -> None:
    month = standing(
        budget(per="month"), [launch(plan, *DONE, project="alpha")], datetime(2026, 12, 2, tzinfo=UTC)
    )
    assert month.spent_usd == 0
    assert standing(budget(per="month"), [launch(plan, *DONE, project="alpha")], LATER).spent_usd == 100


def test_what_has_no_price_makes_the_standing_incomplete(plan: Plan) -> None:
    at = standing(budget(), [launch(plan, *DONE, project="alpha", usd_per_hour=None)], LATER)
    assert not at.is_complete


def test_periods_begin_at_midnight_of_their_first_day() -> None:
    now = datetime(2026, 11, 30, 17, 5, tzinfo=UTC)
    assert beginning("month", now) == datetime(2026, 11, 1, tzinfo=UTC)
    assert beginning("year", now) == datetime(2026, 1, 1, tzinfo=UTC)
    assert beginning("total", now) is None
