"""A capacity block is priced as it was bought: once, whole, and no hour of its machines again."""

from decimal import Decimal
from pathlib import Path

import pytest

from clusters.launch import down, machine
from clusters.launch.running import read_work
from planner import spend
from planner.cli.launch.rows import forecast, row
from tests.clusters import tools
from tests.clusters.launch.cloud import FileCloud
from tests.clusters.launch.hands import Clock, Proving, Screen, hands, request

HELD = "cr-0123456789abcdef0"
PAID = Decimal(480)  # two nodes at 10 USD for a day


@pytest.fixture
def cloud(tmp_path: Path) -> FileCloud:
    return FileCloud(tmp_path)


def asked(tmp_path: Path, **more: object):
    choices = tools.choices(launch_id="-", reservation=HELD, zone=None, subnet=None, security_group=None)
    plan = tools.plan(market="capacity-block", nodes=2, min_billing_s=86_400)
    return request(tmp_path, **{"plan": plan, "choices": choices, "then": "python train.py", **more})


def test_the_block_is_paid_once_and_its_hours_cost_nothing_more(tmp_path: Path, cloud: FileCloud):
    clock, screen = Clock(), Screen()
    h = hands(tmp_path, cloud, clock=clock, screen=screen, price_now=lambda offer: Decimal(99))
    assert machine.launch(asked(tmp_path), h).exit_code == 0
    (shown,) = screen.confirmations
    extras = sum(i.quantity * i.usd_per_hour for i in shown.items if i.usd_per_hour)
    assert 0 < extras < 1  # disks and addresses
    assert PAID < shown.at_most_usd < PAID + 1
    launch = h.ledger.launch("l-01")
    clock.sleep(30 * 3600)  # past the day
    spent = spend.spent(launch, clock.now())
    assert spent.complete
    assert PAID < spent.usd < PAID + 31 * extras
    assert spend.usd_per_hour(launch) == extras
    assert row(launch, clock.now()).forecast_usd == forecast(launch)
    assert float(PAID) < forecast(launch).mid < float(PAID) + 12


def test_the_watchdog_gets_what_is_left_beside_the_block(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud)
    machine.launch(asked(tmp_path, budget_usd=Decimal(500)), h)
    order = read_work("l-01", h).order
    assert order is not None
    assert order.budget_usd == 500 - PAID
    assert order.usd_per_hour is not None
    assert order.usd_per_hour < 1


def test_a_second_launch_in_the_same_block_does_not_pay_it_again(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud, clock=(clock := Clock()), screen=(screen := Screen()))
    machine.launch(asked(tmp_path), h)
    down.down("l-01", h)
    assert machine.launch(asked(tmp_path, budget_usd=Decimal(20)), h).exit_code == 0
    assert screen.confirmations[-1].at_most_usd < 1
    second = next(p for p in h.ledger.launch("l-02").prices if p.item == "block")
    assert (second.usd_once, second.source[-15:]) == (0, "counted in l-01")
    both = [spend.spent(x, clock.now()).usd for x in h.ledger.launches()]
    assert PAID < sum(both) < PAID + 2
    order = read_work("l-02", h).order
    assert order is not None
    assert order.budget_usd == 20


def test_what_was_paid_may_be_said(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud, screen=(screen := Screen()))
    machine.launch(asked(tmp_path, reservation_usd=Decimal(300)), h)
    assert {i.item: i.usd_once for i in screen.confirmations[0].items}["block"] == 300
    assert "$300.00 for the whole block" in screen.checked[0].detail


def test_a_block_whose_price_nobody_knows_is_not_free(tmp_path: Path, cloud: FileCloud):
    plan = tools.plan(market="capacity-block", nodes=2)
    finished = machine.launch(asked(tmp_path, plan=plan), hands(tmp_path, cloud))
    assert finished.exit_code == 1
    assert "what the capacity block cost is unknown" in finished.message
    assert "--reservation-usd USD" in finished.hint
    assert cloud.creates == []


def test_a_budget_below_the_block_starts_nothing(tmp_path: Path, cloud: FileCloud):
    finished = machine.launch(asked(tmp_path, budget_usd=Decimal(400)), hands(tmp_path, cloud))
    assert (finished.exit_code, cloud.creates) == (1, [])
    assert "budget" in finished.message


def test_a_run_that_ends_after_the_block_is_not_started(tmp_path: Path, cloud: FileCloud):
    choices = asked(tmp_path).choices.model_copy(update={"deadline": tools.NOW + tools.timedelta(hours=9)})
    finished = machine.launch(asked(tmp_path, choices=choices), hands(tmp_path, cloud, proving=Proving()))
    assert (finished.exit_code, finished.outcome) == (5, "torn_down")
    assert "the machines of the block end in" in finished.message
    assert not cloud.resources()
