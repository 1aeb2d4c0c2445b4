"""A launch from its plan to its end, over a cloud in a file."""

from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest

from clusters.clouds.base import PreflightCheck
from clusters.faults import CloudFault
from clusters.launch import down, machine, teardown
from clusters.launch.interrupts import Interrupted
from clusters.launch.machine import RefusedError
from planner.errors import UserError
from planner.launched import ResourceKind
from planner.results import Plan
from planner.spend import spent
from tests.clusters import tools
from tests.clusters.launch.cloud import FileCloud
from tests.clusters.launch.hands import Clock, Proving, Screen, hands, request


@pytest.fixture
def cloud(tmp_path: Path) -> FileCloud:
    return FileCloud(tmp_path)


def states(h) -> list[str]:
    launch = h.ledger.launches()[-1]
    return [t.state for t in launch.transitions]


def other(region: str = "us-west-2", price: str = "9.00", **more: object) -> Plan:
    plan = tools.plan(region=region, usd_per_hour=Decimal(price), **more)
    candidate = plan.candidate.model_copy(update={"id": f"p-{region.replace('-', '')}"})
    return plan.model_copy(update={"id": candidate.id, "candidate": candidate})


def test_a_plan_that_passes_is_committed_and_its_job_runs(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud, screen=(screen := Screen()), proving=(proving := Proving()))
    finished = machine.launch(request(tmp_path, then="python train.py"), h)
    assert (finished.outcome, finished.exit_code) == ("committed", 0)
    assert states(h) == [
        *("planned", "preflight", "confirmed", "creating", "up", "probing", "verdict", "committed")
    ]
    assert proving.jobs == [finished.launch_id]
    assert "step 1" in screen.said
    assert finished.hint == "plan down l-01"
    launch = h.ledger.launch("l-01")
    assert (launch.job_id, launch.address) == ("l-01", "http://127.0.0.1:8265")
    assert launch.verdict is not None


def test_every_event_says_what_has_been_spent(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud, screen=(screen := Screen()))
    machine.launch(request(tmp_path), h)
    said = {e.state: e.spent_usd for e in screen.events}
    assert said["confirmed"] == 0
    assert said["committed"] is not None
    assert said["committed"] > Decimal("0.66")  # four minutes of probe at 10 USD an hour
    assert screen.events[-1].outcome == "committed"


def test_down_leaves_nothing_and_may_be_repeated(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud)
    machine.launch(request(tmp_path), h)
    assert cloud.resources()
    for _ in range(2):
        finished = down.down("l-01", h)
        assert (finished.exit_code, finished.outcome) == (0, "torn_down")
        assert not cloud.resources()
        assert states(h)[-1] == "gone"


def test_no_at_the_question_starts_nothing(tmp_path: Path, cloud: FileCloud):
    asked: list[str] = []
    h = hands(tmp_path, cloud, screen=(screen := Screen()), ask=lambda q: bool(asked.append(q)))
    finished = machine.launch(request(tmp_path, yes=False), h)
    assert (finished.outcome, finished.exit_code) == ("declined", 1)
    assert cloud.creates == []
    assert asked == ["Start the cluster and the probe for at most $7.02?"]
    shown = screen.confirmations[0]
    assert {i.item: i.usd_per_hour is not None for i in shown.items} == {
        "node": True,
        "disk": True,
        "address": True,
    }
    assert screen.events[-1].outcome == "declined"


def test_without_terminal_and_yes_nothing_is_even_written(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud)
    with pytest.raises(RefusedError) as refused:
        machine.launch(request(tmp_path, yes=False), h)
    assert refused.value.exit_code == 2
    assert "--yes" in refused.value.hint
    assert h.ledger.launches() == ()
    assert cloud.calls == []


@pytest.mark.parametrize(("now", "accept", "code"), [("10.40", False, 0), ("11", False, 1), ("11", True, 0)])
def test_a_dearer_price_needs_to_be_accepted(
    tmp_path: Path, cloud: FileCloud, now: str, accept: bool, code: int
):
    h = hands(tmp_path, cloud, price_now=lambda offer: Decimal(now))
    finished = machine.launch(request(tmp_path, accept_price=accept), h)
    assert finished.exit_code == code
    if code:
        assert "--accept-price" in finished.hint
        assert cloud.creates == []
    else:
        assert h.ledger.launch("l-01").prices[0].usd_per_hour == Decimal(now)


def test_a_budget_that_does_not_hold_the_first_hour_is_refused(tmp_path: Path, cloud: FileCloud):
    finished = machine.launch(request(tmp_path, budget_usd=Decimal(15)), hands(tmp_path, cloud))
    assert finished.exit_code == 1
    assert "budget" in finished.message
    assert finished.hint == "--budget 18"
    assert cloud.creates == []


def test_missing_credentials_exit_with_four(tmp_path: Path, cloud: FileCloud):
    cloud.faults["preflight"] = [CloudFault("credentials", "no credentials", "aws configure")]
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud))
    assert (finished.exit_code, finished.hint) == (4, "aws configure")
    cloud.failed_checks = (PreflightCheck(name="credentials", passed=False, detail="none", hint="x"),)
    assert machine.launch(request(tmp_path), hands(tmp_path, cloud, ids=["l-50"])).exit_code == 4


def test_what_failed_before_any_create_is_told_as_nothing_created(tmp_path: Path, cloud: FileCloud):
    cloud.failed_checks = (PreflightCheck(name="image", passed=False, detail="is not there", hint="x"),)
    h = hands(tmp_path, cloud)
    finished = machine.launch(request(tmp_path), h)
    assert (finished.exit_code, finished.nothing_created) == (1, True)
    row = h.ledger.launch("l-01")
    assert row.transitions[-1].detail == "image: is not there; nothing was created"
    assert "tearing_down" not in states(h)
    assert row.prices == ()


def test_a_host_that_the_probe_lost_is_named_at_the_end(tmp_path: Path, cloud: FileCloud):
    proving = Proving()
    proving.failure, proving.failed_on = "worker-lost", "10.0.0.3"
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud, proving=proving))
    assert finished.exit_code == 5
    assert finished.message.endswith("; lost: 10.0.0.3")
    assert not finished.nothing_created


def test_a_verdict_that_fails_ends_the_cluster(tmp_path: Path, cloud: FileCloud):
    proving = Proving()
    proving.passes = False
    h = hands(tmp_path, cloud, proving=proving)
    finished = machine.launch(request(tmp_path), h)
    assert (finished.exit_code, finished.outcome) == (5, "torn_down")
    assert finished.hint == "--recompute full"
    assert not cloud.resources()
    assert states(h)[-2:] == ["tearing_down", "gone"]


def test_a_forecast_over_the_budget_ends_the_cluster(tmp_path: Path, cloud: FileCloud):
    proving = Proving()
    proving.cost_usd = 999.9  # within 1,000, but not with what the probe has cost
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud, proving=proving))
    assert finished.exit_code == 5
    assert not cloud.resources()


def test_keep_leaves_a_failed_cluster_running(tmp_path: Path, cloud: FileCloud):
    proving = Proving()
    proving.passes = False
    h = hands(tmp_path, cloud, proving=proving)
    finished = machine.launch(request(tmp_path, keep=True), h)
    assert (finished.exit_code, finished.outcome) == (7, "left_running")
    assert cloud.resources()
    assert "plan down l-01" in finished.hint
    assert h.ledger.launch("l-01").outcome == "left_running"


def test_no_capacity_goes_to_the_next_zone(tmp_path: Path, cloud: FileCloud):
    cloud.zones = ("us-east-1a", "us-east-1b")
    cloud.faults["create"] = [CloudFault("capacity", "no g6e.12xlarge")]
    h = hands(tmp_path, cloud)
    finished = machine.launch(request(tmp_path), h)
    assert finished.exit_code == 0
    assert [(p.zone, n) for p, n in cloud.creates] == [("us-east-1a", 1), ("us-east-1b", 2)]
    assert h.ledger.launch("l-01").zone == "us-east-1b"


def test_what_a_capacity_error_left_is_released_before_the_next_zone(tmp_path: Path, cloud: FileCloud):
    cloud.zones = ("us-east-1a", "us-east-1b")
    cloud.late = True
    cloud.faults["create"] = [CloudFault("capacity", "one of two")]
    h = hands(tmp_path, cloud)
    assert machine.launch(request(tmp_path), h).exit_code == 0
    first, second = (i for i, c in enumerate(cloud.calls) if c == "create")
    assert "delete" in cloud.calls[first:second]
    quantities = [p.quantity for p in h.ledger.launch("l-01").prices if p.item == "node"]
    assert quantities == [1, 0, 1]


def test_the_next_candidate_is_named_and_costs_no_more_than_confirmed(tmp_path: Path, cloud: FileCloud):
    cloud.faults["create"] = [CloudFault("capacity", "none")]
    h = hands(
        tmp_path, cloud, screen=(screen := Screen()), next_plans=lambda plan: [other(), other("eu-west-1")]
    )
    finished = machine.launch(request(tmp_path), h)
    assert (finished.exit_code, finished.launch_id) == (0, "l-02")
    named = "next candidate: p-uswest2, 1 × aws g6e.12xlarge in us-west-2, on-demand, $9.00 / h a node"
    assert named in screen.said
    assert [x.state for x in h.ledger.launches()] == ["gone", "committed"]


@pytest.mark.parametrize("answer", [True, False])
def test_a_dearer_candidate_is_asked_for(tmp_path: Path, cloud: FileCloud, answer: bool):
    cloud.faults["create"] = [CloudFault("capacity", "none")]
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return answer

    h = hands(tmp_path, cloud, ask=ask, next_plans=lambda plan: [other(price="12.00")])
    finished = machine.launch(request(tmp_path), h)
    assert len(asked) == 1
    assert (finished.exit_code, len(cloud.creates)) == ((0, 2) if answer else (1, 1))


def test_a_quota_of_the_region_skips_its_other_candidates(tmp_path: Path, cloud: FileCloud):
    cloud.zones = ("us-east-1a", "us-east-1b")
    cloud.faults["create"] = [CloudFault("quota", "48 vCPU over the limit")]
    plans = [other("us-east-1"), other("us-west-2")]
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud, next_plans=lambda plan: plans))
    assert finished.exit_code == 0
    assert [(p.region, n) for p, n in cloud.creates] == [("us-east-1", 1), ("us-west-2", 1)]


@pytest.mark.parametrize("kind", ["credentials", "permission", "image", "parameter", "setup", "not-joined"])
def test_what_no_other_place_would_help_stops_at_once(tmp_path: Path, cloud: FileCloud, kind: str):
    cloud.zones = ("us-east-1a", "us-east-1b")
    cloud.faults["create"] = [CloudFault(kind, "refused", "the fix")]  # type: ignore[arg-type]
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud, next_plans=lambda plan: [other()]))
    assert finished.exit_code == (4 if kind == "credentials" else 1)
    assert finished.hint == "the fix"
    assert len(cloud.creates) == 1
    assert not cloud.resources()


def test_throttling_is_waited_out_with_the_same_token(tmp_path: Path, cloud: FileCloud):
    cloud.faults["create"] = [CloudFault("throttling", "slow down"), CloudFault("connection", "reset")]
    clock = Clock()
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud, clock=clock))
    assert finished.exit_code == 0
    assert [n for _, n in cloud.creates] == [1, 1, 1]
    assert 1.5 in clock.slept
    assert 3.0 in clock.slept


def test_throttling_without_end_ends(tmp_path: Path, cloud: FileCloud):
    cloud.faults["create"] = [CloudFault("throttling", "slow down")] * 20
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud))
    assert finished.exit_code == 1
    assert len(cloud.creates) == 4


def test_an_answer_that_was_lost_never_makes_a_second_cluster(tmp_path: Path, cloud: FileCloud):
    cloud.late = True
    cloud.faults["create"] = [CloudFault("connection", "reset")]
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud))
    assert (finished.exit_code, len(cloud.creates)) == (1, 1)
    assert not cloud.resources()


def test_fewer_nodes_than_planned_are_released(tmp_path: Path, cloud: FileCloud):
    cloud.joined = 1
    finished = machine.launch(request(tmp_path, plan=tools.plan(nodes=2)), hands(tmp_path, cloud))
    assert finished.exit_code == 1
    assert "1 of 2 nodes" in finished.message
    assert not cloud.resources()


def test_something_that_stays_is_said_with_the_command_that_deletes_it(tmp_path: Path, cloud: FileCloud):
    cloud.stuck = ("vol-0",)
    proving = Proving()
    proving.passes = False
    h = hands(tmp_path, cloud, proving=proving)
    finished = machine.launch(request(tmp_path), h)
    assert (finished.exit_code, finished.outcome) == (6, "may_still_bill")
    assert [r.id for r in finished.left] == ["vol-0"]
    assert "aws ec2 delete-volume --id vol-0" in finished.hint
    assert h.ledger.launch("l-01").state == "tearing_down"
    cloud.stuck = ()
    assert down.down("l-01", h).exit_code == 0
    assert h.ledger.launch("l-01").outcome == "torn_down"


def test_a_free_thing_that_stays_is_named_but_costs_nothing(tmp_path: Path, cloud: FileCloud):
    cloud.stuck = ("sg-1",)
    h = hands(tmp_path, cloud, screen=(screen := Screen()))
    machine.launch(request(tmp_path), h)
    assert down.down("l-01", h).exit_code == 0
    assert any("left, free of charge: security-group sg-1" in line for line in screen.said)
    assert [r.id for r in h.ledger.launch("l-01").resources_left] == ["sg-1"]


def test_one_empty_look_is_not_believed(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud)
    machine.launch(request(tmp_path), h)
    cloud.hidden_looks = 1
    assert down.down("l-01", h).exit_code == 0
    assert not cloud.resources()


def test_a_cloud_that_does_not_answer_may_still_bill(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud)
    machine.launch(request(tmp_path), h)
    cloud.faults["find"] = [CloudFault("permission", "not yours")] * 100
    finished = down.down("l-01", h)
    assert finished.exit_code == 6
    assert "not known" in finished.message


def test_a_second_launch_of_a_live_plan_is_refused(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud)
    machine.launch(request(tmp_path), h)
    with pytest.raises(RefusedError, match="l-01") as refused:
        machine.launch(request(tmp_path), h)
    assert refused.value.exit_code == 1
    assert len(cloud.creates) == 1


@pytest.mark.parametrize("state", ["preflight", "creating", "up", "probing", "verdict", "committed"])
def test_an_interrupt_before_the_job_runs_leaves_nothing(tmp_path: Path, cloud: FileCloud, state: str):
    screen = Screen()

    def interrupt(event) -> None:
        if event.state == state and event.outcome is None:
            screen.on_event = lambda event: None
            raise Interrupted("SIGINT")

    screen.on_event = interrupt
    h = hands(tmp_path, cloud, screen=screen)
    finished = machine.launch(request(tmp_path, then="python train.py"), h)
    assert (finished.exit_code, finished.outcome) == (130, "torn_down")
    assert not cloud.resources()
    assert states(h)[-1] == "gone"


def test_an_interrupt_with_a_teardown_that_fails_exits_with_six(tmp_path: Path, cloud: FileCloud):
    screen = Screen()

    def interrupt(event) -> None:
        if event.state == "probing":
            raise Interrupted("SIGTERM")

    screen.on_event = interrupt
    cloud.stuck = ("i-0",)
    assert machine.launch(request(tmp_path), hands(tmp_path, cloud, screen=screen)).exit_code == 6


def test_an_interrupt_while_the_job_runs_only_detaches(tmp_path: Path, cloud: FileCloud):
    proving = Proving()
    proving.follow_raises = Interrupted("SIGINT")
    finished = machine.launch(request(tmp_path, then="python x"), hands(tmp_path, cloud, proving=proving))
    assert (finished.exit_code, finished.outcome) == (0, "committed")
    assert "detached" in finished.message
    assert finished.hint == "plan down l-01"
    assert cloud.resources()


def test_an_error_of_ours_costs_nothing(tmp_path: Path, cloud: FileCloud):
    proving = Proving()
    proving.probe_faults = [ZeroDivisionError("a defect")]  # type: ignore[list-item]
    with pytest.raises(ZeroDivisionError):
        machine.launch(request(tmp_path), hands(tmp_path, cloud, proving=proving))
    assert not cloud.resources()


def test_a_launch_that_is_gone_has_nothing_to_resume(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud)
    machine.launch(request(tmp_path), h)
    down.down("l-01", h)
    assert machine.resume("l-01", h).exit_code == 0
    with pytest.raises(UserError, match="no launch"):
        machine.resume("l-77", h)


def test_what_was_spent_ends_with_the_launch(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud, clock=(clock := Clock()))
    machine.launch(request(tmp_path), h)
    down.down("l-01", h)
    at_the_end = spent(h.ledger.launch("l-01"), clock.now()).usd
    clock.sleep(3600)
    assert spent(h.ledger.launch("l-01"), clock.now()).usd == at_the_end > 0


def test_every_kind_of_thing_has_its_turn_in_a_teardown():
    assert sorted(teardown.ORDER) == sorted(get_args(ResourceKind))
    assert set(teardown.MACHINES) < set(teardown.ORDER)


def test_yes_covers_what_was_shown_and_no_dearer_candidate(tmp_path: Path, cloud: FileCloud):
    cloud.faults["create"] = [CloudFault("capacity", "none")]
    plans = [other(price="12.00"), other("eu-west-1")]
    finished = machine.launch(request(tmp_path), hands(tmp_path, cloud, next_plans=lambda plan: plans))
    assert finished.exit_code == 0
    assert [p.region for p, _ in cloud.creates] == ["us-east-1", "eu-west-1"]


def test_down_without_credentials_says_at_once_that_nobody_knows(tmp_path: Path, cloud: FileCloud):
    h = hands(tmp_path, cloud, screen=Screen())
    machine.launch(request(tmp_path), h)
    cloud.faults["find"] = [CloudFault("credentials", "no credentials") for _ in range(9)]
    finished = down.down("l-01", h)
    assert (finished.outcome, finished.exit_code) == ("may_still_bill", 6)
    assert len(cloud.faults["find"]) >= 6  # asked a few times, not until the time is over


def test_down_of_a_launch_that_created_nothing_needs_no_answer_of_the_cloud(tmp_path: Path, cloud: FileCloud):
    cloud.failed_checks = (PreflightCheck(name="quota", passed=False, detail="0 of 48"),)
    h = hands(tmp_path, cloud, screen=Screen())
    machine.launch(request(tmp_path), h)
    cloud.faults["find"] = [CloudFault("credentials", "no credentials") for _ in range(9)]
    assert down.down("l-01", h).exit_code == 0


def test_a_layout_that_our_step_refuses_is_never_started(tmp_path: Path, cloud: FileCloud):
    plan = tools.plan()
    run = plan.candidate.run
    run = run.model_copy(update={"layout": run.layout.model_copy(update={"zero_stage": 2})})
    refused = plan.model_copy(update={"candidate": plan.candidate.model_copy(update={"run": run})})
    finished = machine.launch(request(tmp_path, plan=refused), hands(tmp_path, cloud, screen=Screen()))
    assert finished.exit_code == 1
    assert "ZeRO stage 2" in finished.message
    assert cloud.creates == []
