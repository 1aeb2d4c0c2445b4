"""The screens of launch, doctor and ls, as they stand on a terminal."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from clusters.clouds.base import PreflightCheck
from clusters.launch import before, pricing
from clusters.launch.nouns import Confirmation, Finished, LaunchRequest
from planner.cli.launch.rows import row
from planner.cli.screens import launch as screens_launch
from planner.cli.screens import launches as screens_launches
from planner.cli.text import Terminal
from planner.launched import PricePoint, Resource, Transition
from tests.clusters import tools
from tests.clusters.launch.hands import request
from tests.clusters.ledger.test_store import NOW, launch

LATER = datetime(2026, 12, 1, 9, 12, tzinfo=UTC)


@pytest.fixture(params=[100, 80])
def terminal(request: pytest.FixtureRequest) -> Terminal:
    return Terminal(width=request.param)


def confirmation(asked: LaunchRequest, node: str = "10.00", tried: bool = False) -> Confirmation:
    items = pricing.price_items(asked, Decimal(node))
    return Confirmation(
        launch_id="l-01",
        plan=asked.plan,
        kind=asked.kind,
        items=items,
        shown_usd_per_hour=Decimal("10.00"),
        node_usd_per_hour=Decimal(node),
        at_most_usd=pricing.at_most_usd(items, asked.plan, asked.limits),
        budget_usd=asked.budget_usd,
        deadline=NOW + timedelta(hours=72),
        then=asked.then,
        keep=asked.keep,
        tried=tried,
        limits=asked.limits,
    )


def test_what_it_costs_before_the_question(tmp_path: Path, terminal: Terminal, snapshot: SnapshotAssertion):
    shown = confirmation(request(tmp_path, plan=tools.plan(nodes=2), then="python train.py"))
    drawn = screens_launch.confirmation(shown, LATER, terminal)
    assert max(map(len, drawn.splitlines())) <= terminal.width
    assert drawn == snapshot


def test_a_price_that_moved_and_a_cluster_that_is_kept(
    tmp_path: Path, terminal: Terminal, snapshot: SnapshotAssertion
):
    shown = confirmation(request(tmp_path, keep=True), node="10.40", tried=True)
    assert screens_launch.confirmation(shown, LATER, terminal) == snapshot


def test_this_machine_costs_nothing(tmp_path: Path, terminal: Terminal, snapshot: SnapshotAssertion):
    shown = confirmation(request(tmp_path, kind="local", budget_usd=None), node="0", tried=True)
    assert screens_launch.confirmation(shown, LATER, terminal) == snapshot


def test_checks_before_anything_bills(terminal: Terminal, snapshot: SnapshotAssertion, tmp_path: Path):
    asked = request(tmp_path, budget_usd=Decimal(5))
    items = pricing.price_items(asked, Decimal("11.00"))
    price = before.Priced(
        shown_usd_per_hour=Decimal("10.00"),
        node_usd_per_hour=Decimal("11.00"),
        items=items,
        usd_per_hour=pricing.usd_per_hour(items),
        at_most_usd=pricing.at_most_usd(items, asked.plan, asked.limits),
    )
    found = (
        before.price_check(asked, price),
        before.budget_check(asked, price),
        PreflightCheck(name="quota", passed=True, detail="48 vCPU needed, 0 in use, of 192"),
    )
    assert screens_launch.checks(found, terminal) == snapshot


def test_what_may_still_bill(terminal: Terminal, snapshot: SnapshotAssertion):
    left = Resource(
        kind="volume", id="vol-1", state="in-use", place="us-east-1", bills=True, launch_id="l-01"
    )
    finished = Finished(
        launch_id="l-01",
        outcome="may_still_bill",
        exit_code=6,
        message="probe failed: step time; still there: volume vol-1",
        hint="plan down l-01   (safe to repeat)\naws ec2 delete-volume --volume-id vol-1",
        left=(left,),
    )
    drawn = screens_launch.ended(finished, Decimal("2.06"), terminal)
    assert f"{drawn}\n{screens_launch.hint(finished)}" == snapshot


def test_launches_newest_first(terminal: Terminal, snapshot: SnapshotAssertion):
    plan = tools.plan()
    price = PricePoint(since=NOW, item="node", quantity=1, usd_per_hour=Decimal("10.49"), source="a list")
    unknown = price.model_copy(update={"item": "disk", "usd_per_hour": None})
    states = ("planned", "preflight", "confirmed", "creating", "up", "probing")
    steps = tuple(Transition(at=NOW, state=state) for state in states)
    running = launch(prices=(price,), transitions=steps, plan_json=plan.model_dump_json(), plan_id=plan.id)
    gone = launch(
        "l-00",
        prices=(price, unknown),
        transitions=(*steps, Transition(at=NOW + timedelta(minutes=10), state="gone")),
        outcome="torn_down",
        plan_json=plan.model_dump_json(),
    )
    here = launch("l-02", kind="local", transitions=steps, outcome="left_running", deadline=None)
    rows = [row(x, LATER) for x in (here, running, gone)]
    drawn = screens_launches.launches(rows, 3, LATER, terminal)
    assert max(map(len, drawn.splitlines())) <= terminal.width
    assert drawn == snapshot
