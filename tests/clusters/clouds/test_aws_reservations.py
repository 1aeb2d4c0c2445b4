"""Reservations and capacity blocks by id, on moto: machines start inside them or not at all."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from clusters.clouds.aws import AwsCloud
from clusters.clouds.base import Order, Place, PreflightCheck
from clusters.faults import CloudFault
from clusters.launch import machine
from planner.results import Plan
from tests.clusters import tools
from tests.clusters.clouds import moto_more
from tests.clusters.clouds.stand_in import RayWithoutSsh
from tests.clusters.launch.hands import Proving, hands, request

pytestmark = pytest.mark.filterwarnings("ignore")  # moto's own
REGION, HELD = "us-east-1", "cr-0123456789abcdef0"


@pytest.fixture
def ec2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """An account with one active block of two machines until tomorrow noon or so."""
    for name in ("AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
    moto_more.install()
    moto_more.QUOTAS.clear()
    moto_more.RESERVATIONS.clear()
    hold()
    with mock_aws():
        client = boto3.client("ec2", region_name=REGION)
        client.register_image(Name="deep learning")
        yield client
    moto_more.RESERVATIONS.clear()


def hold(**more: object) -> None:
    """What EC2 says of the block."""
    moto_more.RESERVATIONS[HELD] = {
        "CapacityReservationId": HELD,
        "ReservationType": "capacity-block",
        "State": "active",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1b",
        "TotalInstanceCount": 2,
        "AvailableInstanceCount": 2,
        "StartDate": tools.NOW - timedelta(hours=1),
        "EndDate": tools.NOW + timedelta(hours=49),
        **more,
    }


def order(tmp_path: Path, plan: Plan | None = None, **more: object) -> Order:
    plan = plan or tools.big(2, "capacity-block")
    fields = {"reservation": HELD, "subnet": None, "security_group": None, "ssh_key": "-", **more}
    return Order(
        plan=plan,
        choices=tools.choices(**fields),
        launch_id="l-01",
        place=Place(region=REGION),
        directory=str(tmp_path),
        num_nodes=plan.candidate.num_nodes,
        create_timeout_s=60,
    )


def looked(ec2: object, wanted: Order) -> PreflightCheck:
    found = {c.name: c for c in AwsCloud([REGION], backend=RayWithoutSsh(ec2)).preflight(wanted, None)}
    return found["reservation"]


def test_a_block_that_holds_all_nodes_until_the_deadline_passes(ec2: object, tmp_path: Path):
    check = looked(ec2, order(tmp_path))
    assert check.passed
    assert check.detail == (
        f"capacity block {HELD}: 2 of 2 × p5.48xlarge free in us-east-1b, usable until 2026-12-03T09:30:00Z"
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"AvailableInstanceCount": 1}, "1 of 2 slots are free, the plan needs 2; the rest is not bought"),
        ({"InstanceType": "p5e.48xlarge"}, "it holds p5e.48xlarge, the plan needs p5.48xlarge"),
        ({"State": "expired"}, f"{HELD} is expired"),
        (
            {"State": "scheduled", "StartDate": datetime(2099, 1, 1, tzinfo=UTC)},
            "is scheduled, it starts 2099-01-01T00:00:00Z",
        ),
        ({"EndDate": tools.NOW + timedelta(hours=48)}, "its machines are ended at 2026-12-03T08:30:00Z"),
        ({"ReservationType": "default"}, "is no capacity block, and the plan is capacity-block"),
    ],
)
def test_what_does_not_fit_is_named_with_its_count(
    ec2: object, tmp_path: Path, said: dict[str, object], why: str
):
    hold(**said)
    check = looked(ec2, order(tmp_path))
    assert not check.passed
    assert why in check.detail


def test_another_zone_is_named(ec2: object, tmp_path: Path):
    assert "it is in us-east-1b, not in us-east-1a" in looked(ec2, order(tmp_path, zone="us-east-1a")).detail


def test_a_reservation_that_is_not_there_does_not_pass(ec2: object, tmp_path: Path):
    moto_more.RESERVATIONS.clear()
    check = looked(ec2, order(tmp_path))
    assert not check.passed
    assert f"there is no reservation {HELD}" in check.detail


def test_a_reservation_on_demand_has_no_market_of_its_own(ec2: object, tmp_path: Path):
    hold(ReservationType="default", EndDate=None)
    assert looked(ec2, order(tmp_path, tools.big(2))).detail.endswith("without an end")


def test_its_machines_stand_in_its_zone_alone(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    assert cloud.places(order(tmp_path)) == (Place(region=REGION, zone="us-east-1b"),)


@pytest.mark.parametrize("market", ["capacity-block", "on-demand"])
def test_every_gpu_machine_names_the_reservation_and_so_never_starts_beside_it(
    ec2: object, tmp_path: Path, market: str
):
    ray = RayWithoutSsh(ec2)
    cloud = AwsCloud([REGION], backend=ray)
    image = ec2.describe_images()["Images"][0]["ImageId"]  # type: ignore[attr-defined]
    cloud.create(cloud.prepare(order(tmp_path, tools.big(2, market), image=image)), lambda line: None)
    gpus = [asked for asked in ray.started if asked["InstanceType"] == "p5.48xlarge"]
    assert len(gpus) == 2
    for asked in gpus:
        target = asked["CapacityReservationSpecification"]["CapacityReservationTarget"]
        assert target == {"CapacityReservationId": HELD}
        bought = asked.get("InstanceMarketOptions")
        assert bought == ({"MarketType": "capacity-block"} if market == "capacity-block" else None)


def test_a_launch_without_enough_slots_starts_nothing_and_no_other_candidate(ec2: object, tmp_path: Path):
    hold(AvailableInstanceCount=1)
    other = tools.big(2)
    h = hands(
        tmp_path,
        AwsCloud([REGION], backend=(ray := RayWithoutSsh(ec2))),  # type: ignore[arg-type]
        proving=Proving(),
        next_plans=lambda plan: [other],
    )
    choices = order(tmp_path).choices
    asked = request(tmp_path, plan=tools.big(2, "capacity-block"), choices=choices, budget_usd=100_000)
    finished = machine.launch(asked, h)
    assert (finished.outcome, finished.exit_code) == ("torn_down", 1)
    assert ray.started == []
    assert len(h.ledger.launches()) == 1


def test_a_capacity_error_is_no_reason_for_another_place(tmp_path: Path):
    from tests.clusters.launch.cloud import FileCloud

    cloud = FileCloud(tmp_path)
    cloud.faults["create"] = [CloudFault("capacity", "ReservationCapacityExceeded")]
    h = hands(tmp_path, cloud, next_plans=lambda plan: [tools.plan(region="us-west-2")])
    asked = request(tmp_path, choices=tools.choices(reservation=HELD, zone=None, subnet=None))
    assert machine.launch(asked, h).exit_code == 1
    assert len(h.ledger.launches()) == 1
