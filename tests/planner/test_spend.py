"""What a launch has spent, worked out by hand."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from planner.launched import Launch, PricePoint, Transition
from planner.spend import billed_s, spent, usd_per_hour
from tests.clusters.ledger.test_store import launch as any_launch

START = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


def point(after_s: float, item: str, quantity: int, price: str | None) -> PricePoint:
    return PricePoint(
        since=START + timedelta(seconds=after_s),
        item=item,
        quantity=quantity,
        usd_per_hour=None if price is None else Decimal(price),
        source="a list",
    )


def launch(*prices: PricePoint, gone_after_s: float | None = None, **rules: int) -> Launch:
    steps = [Transition(at=START, state="planned")]
    if gone_after_s is not None:
        steps.append(Transition(at=START + timedelta(seconds=gone_after_s), state="gone"))
    return any_launch(prices=prices, transitions=tuple(steps), created=START, **rules)


def usd(found: Launch, after_s: float) -> Decimal:
    return spent(found, START + timedelta(seconds=after_s)).usd


def test_nodes_times_hours_times_price():
    running = launch(point(0, "node", 2, "10.00"))
    assert usd(running, 5400) == Decimal("30.0000")
    assert usd(running, 0) == 0


def test_parts_of_an_hour_count_by_the_second():
    assert usd(launch(point(0, "node", 1, "3.60")), 100) == Decimal("0.1000")


def test_minimum_billing_and_steps_round_a_node_up():
    hourly = launch(point(0, "node", 1, "6.00"), billing_increment_s=3600)
    assert usd(hourly, 60) == Decimal("6.0000")
    assert usd(hourly, 3601) == Decimal("12.0000")
    assert usd(launch(point(0, "node", 1, "6.00"), min_billing_s=600), 60) == Decimal("1.0000")


def test_each_time_that_nodes_run_is_rounded_up_by_itself():
    twice = launch(
        point(0, "node", 1, "6.00"),
        point(60, "node", 0, "6.00"),
        point(7200, "node", 1, "6.00"),
        gone_after_s=7260,
        billing_increment_s=3600,
    )
    assert usd(twice, 90_000) == Decimal("12.0000")


def test_disks_and_addresses_are_not_rounded():
    parts = launch(
        point(0, "disk", 1, "0.36"),
        point(0, "address", 2, "0.18"),
        billing_increment_s=3600,
        min_billing_s=60,
    )
    assert usd(parts, 10) == Decimal("0.0020")


def test_a_price_that_moves_holds_from_then_on():
    spot = launch(point(0, "node", 1, "1.00"), point(3600, "node", 1, "3.00"), gone_after_s=7200)
    found = spent(spot, START + timedelta(days=9))
    assert found.usd == Decimal("4.0000")
    assert [line.billed_s for line in found.lines] == [3600, 3600]


def test_rounding_up_stands_in_the_last_piece_of_a_run():
    spot = launch(point(0, "node", 1, "1.00"), point(1800, "node", 1, "2.00"), billing_increment_s=3600)
    found = spent(spot, START + timedelta(seconds=2700))
    assert [line.billed_s for line in found.lines] == [1800, 1800]
    assert found.usd == Decimal("1.5000")


def test_it_ends_when_the_launch_is_gone():
    assert usd(launch(point(0, "node", 1, "10.00"), gone_after_s=1800), 99_999) == Decimal("5.0000")


def test_what_has_no_price_is_named_and_never_summed():
    found = spent(launch(point(0, "node", 1, "10.00"), point(0, "disk", 1, None)), START + timedelta(hours=1))
    assert (found.usd, found.unknown, found.complete) == (Decimal("10.0000"), ("disk",), False)
    assert [line.usd for line in found.lines] == [Decimal("10.0000"), None]


def test_without_prices_nothing_was_spent():
    found = spent(launch(), START + timedelta(hours=1))
    assert (found.usd, found.unknown, found.lines) == (0, (), ())


def test_an_hour_costs_what_bills_now():
    found = launch(point(0, "node", 2, "10.00"), point(0, "disk", 2, "0.02"), point(9, "node", 1, "10.00"))
    assert usd_per_hour(found) == Decimal("10.04")
    assert usd_per_hour(launch(point(0, "node", 1, None))) is None
    assert usd_per_hour(launch(point(0, "node", 1, "1"), point(5, "node", 0, "1"))) == 0


@pytest.mark.parametrize(
    ("run_s", "least", "step", "billed"),
    [(0, None, None, 0), (61, 60, 1, 61), (0.5, 60, 1, 60), (60.2, None, 60, 120), (120, None, 60, 120)],
)
def test_seconds_that_are_billed(run_s: float, least: int | None, step: int | None, billed: float):
    assert billed_s(run_s, least, step) == billed
