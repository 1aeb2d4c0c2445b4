"""A report says what was planned, spent and billed: known sums only, forecasts never below what is spent."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from planner.launched import BilledAmount
from planner.report import Asked, report
from planner.report.nouns import Report
from planner.results import Dot, Plan
from tests.cli.conftest import choices
from tests.planner.report_tools import BEGUN, HOUR, check, launch, passed

UP = (("planned", 0.0), ("confirmed", 0.1), ("creating", 1.0), ("up", 1.2))
RUNNING = (*UP, ("probing", 1.3), ("verdict", 1.4), ("committed", 1.5))
DONE = (*RUNNING, ("tearing_down", 11.0), ("gone", 11.0))
NOW = BEGUN + 6 * HOUR


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [Plan(id=c.id, created=BEGUN, command="plan suggest", candidate=c) for c in choices()]


def asked(now: datetime = NOW, **more: object) -> Asked:
    return Asked.model_validate({"now": now, "tool_version": "1.2.3", **more})


def make(plans: list[Plan], *launches: object, **more: object) -> Report:
    return report(asked(**more), plans, launches, ())  # type: ignore[arg-type]


def test_before_any_launch_plans_stand_side_by_side(plans: list[Plan]) -> None:
    made = make(plans)
    assert [r.plan_id for r in made.runs] == [p.id for p in plans]
    assert {r.state for r in made.runs} == {"planned"}
    assert all(r.spent_usd is None and r.hours is None for r in made.runs)
    assert made.subject == plans[0].id


def test_headline_names_the_cost_and_how_it_stands_to_the_budget(plans: list[Plan]) -> None:
    under = make(plans, budget_usd=Decimal(1000)).headline
    over = make(plans, budget_usd=Decimal(10)).headline
    assert "under the budget of $1,000" in under
    assert "OVER the budget of $10" in over


def test_headline_of_an_incomplete_cost_bounds_what_is_left_from_above(plans: list[Plan]) -> None:
    incomplete = make([plans[2]], budget_usd=Decimal(100_000)).headline
    assert "at least $" in incomplete
    assert "at most $" in incomplete


def test_once_something_was_launched_other_plans_are_not_rows(plans: list[Plan]) -> None:
    made = make(plans, launch(plans[1], *RUNNING))
    assert [(r.plan_id, r.launch_id) for r in made.runs] == [(plans[1].id, "l-1")]


def test_a_running_launch_has_spent_the_price_recorded_at_its_start(plans: list[Plan]) -> None:
    row = make(plans, launch(plans[0], *RUNNING)).runs[0]
    assert (row.hours, row.spent_usd) == (5.0, Decimal(50))


def test_a_launch_without_a_price_is_never_summed_as_zero(plans: list[Plan]) -> None:
    priced = launch(plans[0], *RUNNING)
    unpriced = launch(plans[1], *RUNNING, id="l-2", usd_per_hour=None)
    made = make(plans, priced, unpriced)
    assert made.spent_usd == Decimal(50)
    assert not made.spent_is_complete
    assert made.runs[1].usd_per_hour is None


def test_the_probe_reprices_the_forecast(plans: list[Plan]) -> None:
    made = make(plans, launch(plans[0], *RUNNING, verdict=passed(400.0)))
    assert made.forecast_usd is not None
    assert made.forecast_usd.mid == pytest.approx(400)


def test_a_forecast_is_never_below_what_is_spent(plans: list[Plan]) -> None:
    late = BEGUN + 101 * HOUR
    made = make(plans, launch(plans[0], *RUNNING, verdict=passed(100.0)), now=late)
    assert made.forecast_usd is not None
    assert made.forecast_usd.low >= float(made.spent_usd) == 1000


def test_a_launch_that_is_gone_has_no_forecast_and_stops_spending(plans: list[Plan]) -> None:
    made = make(plans, launch(plans[0], *DONE), now=BEGUN + 500 * HOUR)
    assert made.forecast_usd is None
    assert made.spent_usd == Decimal(100)


def test_the_day_that_breaks_the_budget_follows_from_todays_rate(plans: list[Plan]) -> None:
    made = make(plans, launch(plans[0], *RUNNING, verdict=passed(400.0)), budget_usd=Decimal(290))
    # 50 spent, 240 left at 10 an hour: a day from now
    assert made.over_budget_on == (NOW + timedelta(hours=24)).date() == date(2026, 11, 21)


def test_no_day_is_named_where_the_forecast_stays_within_the_budget(plans: list[Plan]) -> None:
    made = make(plans, launch(plans[0], *RUNNING, verdict=passed(100.0)), budget_usd=Decimal(290))
    assert made.over_budget_on is None


def test_a_bill_that_differs_is_explained_and_one_that_agrees_says_so(plans: list[Plan]) -> None:
    def why(usd: str, until: datetime = BEGUN + 20 * HOUR) -> str:
        bill = BilledAmount(until=until, usd=Decimal(usd), source="a bill")
        return make(plans, launch(plans[0], *DONE, billed=(bill,)), now=BEGUN + 30 * HOUR).runs[0].billed_why

    assert why("100.00") == "as counted"
    assert why("130").startswith("billed more")
    assert why("70").startswith("billed less")
    assert why("70", until=BEGUN + 3 * HOUR) == "the bill ends before the launch did"


def test_prediction_errors_are_medians_over_launches(plans: list[Plan]) -> None:
    launches = [
        launch(plans[0], *DONE, id=f"l-{i}", verdict=passed(100.0, check("step time", 4.0, step, "s")))
        for i, step in enumerate((4.0, 4.4, 6.0))
    ]
    made = make(plans, *launches)
    assert made.prediction_error.time == pytest.approx(0.1)
    assert made.prediction_error.memory is None
    assert len(made.predictions) == 3


def test_cost_error_counts_only_full_runs_that_are_over(plans: list[Plan]) -> None:
    torn_down = launch(plans[0], *UP, ("probing", 2.0), ("tearing_down", 3.0), ("gone", 3.0))
    done = launch(plans[0], *DONE, id="l-2")
    assert make(plans, torn_down).prediction_error.cost is None
    unpriced = launch(plans[0], *DONE, id="l-3", usd_per_hour=None)
    assert make(plans, unpriced).prediction_error.cost is None
    predicted = plans[0].candidate.cost_usd.mid
    assert make(plans, done).prediction_error.cost == pytest.approx(100 / predicted - 1)


def test_since_and_until_keep_launches_that_lived_then(plans: list[Plan]) -> None:
    done = launch(plans[0], *DONE)
    later = {"now": BEGUN + 100 * HOUR}
    assert make(plans, done, since=BEGUN + 10 * HOUR, **later).runs[0].launch_id == "l-1"
    assert make([], done, since=BEGUN + 12 * HOUR, **later).runs == ()
    assert make([], done, until=BEGUN - HOUR, **later).runs == ()


@pytest.mark.parametrize(
    ("by", "names"),
    [("user", ["ada", "bob"]), ("project", ["alpha", "no project"]), ("provider", ["verda", "aws"])],
)
def test_groups_add_up_to_the_whole(plans: list[Plan], by: str, names: list[str]) -> None:
    launches = (
        launch(plans[0], *DONE, project="alpha"),
        launch(plans[1], *RUNNING, id="l-2", user="bob"),
    )
    made = make(plans, *launches, group_by=by)
    assert [g.name for g in made.groups] == names
    assert sum(g.spent_usd for g in made.groups) == made.spent_usd


def test_known_parts_of_the_budget_add_up_to_the_cost_and_unknown_ones_are_named(plans: list[Plan]) -> None:
    made = make([plans[0]])
    parts = {p.name: p for p in made.budget_parts}
    known = sum(p.usd or 0 for n, p in parts.items() if n != "spread of time and price")
    assert known == pytest.approx(plans[0].candidate.cost_usd.mid)
    assert parts["unknown"].usd is None
    assert parts["unknown"].note == "egress"


def test_no_dot_of_the_front_is_beaten_in_both_time_and_cost(plans: list[Plan]) -> None:
    cells = [(10.0, 100.0), (5.0, 150.0), (12.0, 120.0), (20.0, 90.0), (4.0, 400.0), (30.0, 80.0)]
    verdicts = ["ok", "ok", "ok", "tight", "ok", "over"]
    field = [
        Dot(hours=h, usd=u, name="x", verdict=v, reason="")  # type: ignore[arg-type]
        for (h, u), v in zip(cells, verdicts, strict=True)
    ]
    front = [(d.hours, d.usd) for d in report(asked(), plans, (), field).dots if d.on_front]
    assert front == [(4.0, 400.0), (5.0, 150.0), (10.0, 100.0), (20.0, 90.0)]


def test_each_cause_moves_the_cost_to_both_sides_and_the_largest_stands_first(plans: list[Plan]) -> None:
    made = make([plans[0]])
    spans = [abs(s.usd_at_high - s.usd_at_low) for s in made.sensitivity]
    assert spans == sorted(spans, reverse=True)
    by_cause = {s.cause: s for s in made.sensitivity}
    assert by_cause["tokens"].usd_at_low < by_cause["tokens"].usd_at_high
    assert by_cause["price of the node"].usd_at_low < by_cause["price of the node"].usd_at_high
    assert {"speed (MFU)", "spot interruptions and failures", "micro-batch"} <= set(by_cause)


def test_a_measured_peak_stands_beside_the_predicted_bar(plans: list[Plan]) -> None:
    verdict = passed(100.0, check("peak memory reserved", 40e9, 41e9, "bytes"))
    bars = make(plans, launch(plans[0], *RUNNING, verdict=verdict)).memory
    assert [b.measured_bytes for b in bars] == [41e9]


def test_nothing_at_all_is_said_plainly() -> None:
    made = report(Asked(now=datetime(2026, 1, 1, tzinfo=UTC), tool_version="1"), (), (), ())
    assert made.headline == "Nothing was planned or launched yet."
    assert made.subject is None
    assert made.runs == ()
