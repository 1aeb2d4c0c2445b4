"""AWS on moto: what preflight sees, what a launch makes, that all of it is found and goes."""

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import boto3
import botocore.exceptions
import pytest
from moto import mock_aws

from clusters.clouds.aws import AwsCloud
from clusters.clouds.base import Created, Order, Place
from clusters.faults import CloudFault
from planner.launched import Resource
from planner.results import Plan
from tests.clusters import tools
from tests.clusters.clouds import moto_more
from tests.clusters.clouds.stand_in import RayWithoutSsh

pytestmark = pytest.mark.filterwarnings("ignore")  # moto's own
REGION, LAUNCH = "us-east-1", "l-4f2a"
IMAGE = "ami-0123456789abcdef0"


@pytest.fixture
def ec2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """An empty account, and a client that looks at it from outside."""
    for name in ("AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # 1,301 images of 2017
    moto_more.install()
    moto_more.QUOTAS.clear()
    with mock_aws():
        client = boto3.client("ec2", region_name=REGION)
        client.register_image(Name="deep learning")
        monkeypatch.setitem(globals(), "IMAGE", client.describe_images()["Images"][0]["ImageId"])
        yield client


def order(tmp_path: Path, plan: Plan | None = None, zone: str | None = None, **more: object) -> Order:
    plan = plan or tools.plan(nodes=2)
    directory = tmp_path / "launch"
    directory.mkdir(exist_ok=True)
    choices = tools.choices(
        subnet=None, security_group=None, image=IMAGE, launch_id=LAUNCH, ssh_key="-", **more
    )
    return Order(
        plan=plan,
        choices=choices,
        launch_id=LAUNCH,
        place=Place(region=REGION, zone=zone),
        directory=str(directory),
        num_nodes=plan.candidate.num_nodes,
        create_timeout_s=60,
    )


def launched(cloud: AwsCloud, wanted: Order) -> tuple[Order, Created]:
    ready = cloud.prepare(wanted)
    return ready, cloud.create(ready, lambda line: None)


def clear(cloud: AwsCloud, looks: int = 3) -> tuple[Resource, ...]:
    """Delete what is found until nothing is; what is left after so many looks."""
    for _ in range(looks):
        for resource in cloud.find(LAUNCH):
            with suppress(CloudFault):  # something else still uses it
                cloud.delete(resource)
    return cloud.find(LAUNCH)


def test_everything_that_a_launch_makes_is_found_by_its_tag_and_goes(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    _, created = launched(cloud, order(tmp_path))
    assert (created.num_nodes, created.num_gpus) == (2, 8)
    kinds = [r.kind for r in cloud.find(LAUNCH)]
    assert kinds.count("instance") == 2
    assert kinds.count("volume") == 2
    assert {"network-interface", "placement-group", "security-group", "key-pair"} <= set(kinds)
    assert kinds[-2:] == ["instance-profile", "role"]
    assert clear(cloud) == ()
    states = {i["State"]["Name"] for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]}
    assert states == {"terminated"}
    assert not ec2.describe_volumes()["Volumes"]
    assert {g["GroupName"] for g in ec2.describe_security_groups()["SecurityGroups"]} == {"default"}
    assert not boto3.client("iam").list_roles()["Roles"]


def test_another_launch_of_the_account_is_not_touched(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    other = order(tmp_path).model_copy(update={"launch_id": "l-other"})
    launched(cloud, other)
    before = {r.id for r in cloud.find("l-other")}
    launched(cloud, order(tmp_path))
    assert clear(cloud) == ()
    assert {r.id for r in cloud.find("l-other")} == before
    assert {r.launch_id for r in cloud.find(None)} == {"l-other"}


def test_what_bills_says_so_and_how_it_is_deleted_by_hand(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    launched(cloud, order(tmp_path))
    for found in cloud.find(LAUNCH):
        assert found.bills == (found.kind in ("instance", "volume", "address"))
        assert found.launch_id == LAUNCH
        assert found.id in found.hint
        assert found.hint.startswith(("aws ec2 ", "aws iam "))
        assert cloud.by_hand(found) == found.hint


def test_an_address_and_a_volume_that_outlive_their_machine_go_too(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    launched(cloud, order(tmp_path))
    tags = [{"Key": "plan-launch", "Value": LAUNCH}]
    ec2.allocate_address(Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": tags}])
    ec2.create_volume(
        AvailabilityZone="us-east-1a", Size=1, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}]
    )
    assert {"address", "volume"} <= {r.kind for r in cloud.find(LAUNCH)}
    assert clear(cloud) == ()
    assert not ec2.describe_addresses()["Addresses"]


def test_a_stopped_machine_is_found_and_deleted(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    launched(cloud, order(tmp_path))
    ids = [r.id for r in cloud.find(LAUNCH) if r.kind == "instance"]
    ec2.stop_instances(InstanceIds=ids)
    stopped = [r for r in cloud.find(LAUNCH) if r.kind == "instance"]
    assert {(r.state, r.bills) for r in stopped} == {("stopped", False)}
    assert clear(cloud) == ()


def test_deleting_what_is_gone_is_no_error(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    launched(cloud, order(tmp_path))
    found = cloud.find(LAUNCH)
    clear(cloud)
    for resource in found:
        cloud.delete(resource)


def test_the_head_is_asked_for_with_a_client_token_of_the_attempt_and_workers_without(
    ec2: object, tmp_path: Path
):
    backend = RayWithoutSsh(ec2)
    wanted = order(tmp_path).model_copy(update={"attempt": 3})
    launched(AwsCloud([REGION], backend=backend), wanted)
    assert [s.get("ClientToken") for s in backend.started] == [f"{LAUNCH}-3", None]


def test_machines_have_the_launchs_own_key_whose_private_half_never_leaves(ec2: object, tmp_path: Path):
    backend = RayWithoutSsh(ec2)
    launched(AwsCloud([REGION], backend=backend), order(tmp_path))
    assert {s["KeyName"] for s in backend.started} == {f"plan-{LAUNCH}"}
    private = tmp_path / "launch/key"
    assert private.stat().st_mode & 0o077 == 0
    assert not list((tmp_path / ".ssh").glob("*")) if (tmp_path / ".ssh").exists() else True


def test_preparing_twice_makes_nothing_twice(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    first = cloud.prepare(order(tmp_path))
    before = {r.id for r in cloud.find(LAUNCH)}
    assert cloud.prepare(order(tmp_path)) == first
    assert {r.id for r in cloud.find(LAUNCH)} == before


def test_an_extended_launch_moves_timers_and_tag(ec2: object, tmp_path: Path):
    backend = RayWithoutSsh(ec2)
    cloud = AwsCloud([REGION], backend=backend)
    ready, _ = launched(cloud, order(tmp_path))
    later = ready.choices.deadline + timedelta(hours=6)
    cloud.extend(ready, later)
    assert backend.limits[-1].deadline_s == later.timestamp()
    tags = {t["Key"]: t["Value"] for t in _machines(ec2)[0]["Tags"]}
    assert tags["plan-deadline"] == later.strftime("%Y-%m-%dT%H:%M:%SZ")


def _machines(ec2: object) -> list[dict]:
    return [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]


# ---------------------------------------------------------------------------------------- before


def checks(cloud: AwsCloud, wanted: Order) -> dict[str, tuple[bool, str]]:
    return {c.name: (c.passed, c.detail) for c in cloud.preflight(wanted, None)}


def test_an_account_that_can_do_it_passes_every_check(ec2: object, tmp_path: Path):
    found = checks(AwsCloud([REGION]), order(tmp_path))
    assert list(found) == [
        "credentials", "clock", "region", "offered", "quota", "image", "subnet", "ssh", "permissions",
        "no such launch",
    ]  # fmt: skip
    assert all(passed for passed, _ in found.values()), found
    assert found["quota"][1] == "96 vCPU needed, 0 in use, of 384 (g-vt, L-DB2E81BA)"


def test_machines_of_the_same_family_count_against_the_quota(ec2: object, tmp_path: Path):
    ec2.run_instances(ImageId=IMAGE, InstanceType="g5.12xlarge", MinCount=1, MaxCount=1)
    ec2.run_instances(ImageId=IMAGE, InstanceType="m5.large", MinCount=1, MaxCount=1)
    moto_more.QUOTAS["L-DB2E81BA"] = 100.0
    passed, detail = checks(AwsCloud([REGION]), order(tmp_path))["quota"]
    assert not passed
    assert detail == "96 vCPU needed, 48 in use, of 100 (g-vt, L-DB2E81BA)"


@pytest.mark.parametrize(
    ("instance_type", "market", "code"),
    [
        ("g6e.12xlarge", "on-demand", "L-DB2E81BA"),
        ("gr6.4xlarge", "spot", "L-3819A6DF"),
        ("p5.48xlarge", "on-demand", "L-417A185B"),
        ("p5en.48xlarge", "spot", "L-C4BD4855"),
        ("p4d.24xlarge", "spot", "L-7212CCBC"),
        ("m7i.xlarge", "on-demand", "L-1216C47A"),
        ("p6-b200.48xlarge", "spot", None),
        ("u7i-12tb.224xlarge", "on-demand", None),
    ],
)
def test_a_type_counts_against_the_quota_of_its_family_and_market(
    instance_type: str, market: str, code: str | None
):
    from clusters.clouds.aws_preflight import quota_of

    found = quota_of(instance_type, market)
    assert (found[1] if found else None) == code


def test_what_nobody_can_tell_does_not_pass(ec2: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from moto.servicequotas.models import ServiceQuotasBackend

    refuse(monkeypatch, ServiceQuotasBackend, "get_service_quota", "AccessDeniedException")
    passed, detail = checks(AwsCloud([REGION]), order(tmp_path))["quota"]
    assert not passed
    assert detail.startswith("unknown: quota")


def refuse(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, code: str) -> None:
    def no(*args: object, **named: object) -> None:
        raise botocore.exceptions.ClientError({"Error": {"Code": code, "Message": "no"}}, name)

    monkeypatch.setattr(owner, name, no)


def test_a_zone_that_does_not_offer_the_type_is_told_with_those_that_do(ec2: object, tmp_path: Path):
    passed, detail = checks(AwsCloud([REGION]), order(tmp_path, zone="us-east-1e"))["offered"]
    assert not passed
    assert "us-east-1a" in detail
    assert detail.endswith("wanted in us-east-1e")


def test_an_unknown_image_does_not_pass(ec2: object, tmp_path: Path):
    wanted = order(tmp_path)
    wrong = wanted.choices.model_copy(update={"image": "ami-00000000000000001"})
    passed, _ = checks(AwsCloud([REGION]), wanted.model_copy(update={"choices": wrong}))["image"]
    assert not passed


def test_a_machine_of_the_same_plan_is_named(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    launched(cloud, order(tmp_path).model_copy(update={"launch_id": "l-other"}))
    passed, detail = checks(cloud, order(tmp_path))["no such launch"]
    assert not passed
    assert detail.startswith("i-")


def test_without_credentials_that_alone_is_said(ec2: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (only,) = AwsCloud([REGION]).preflight(order(tmp_path), None)
    assert (only.name, only.passed) == ("credentials", False)
    assert "aws configure" in only.hint


def test_zones_are_the_ones_that_offer_the_type_the_wanted_one_first(ec2: object, tmp_path: Path):
    places = AwsCloud([REGION]).places(order(tmp_path, zone="us-east-1b"))
    assert places[0] == Place(region=REGION, zone="us-east-1b")
    assert len(places) > 1
    assert Place(region=REGION, zone="us-east-1e") not in places


# ---------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", "capacity"),
        ("VcpuLimitExceeded", "quota"),
        ("MaxSpotInstanceCountExceeded", "quota"),
        ("UnauthorizedOperation", "permission"),
        ("AuthFailure", "credentials"),
        ("InvalidAMIID.NotFound", "image"),
        ("RequestLimitExceeded", "throttling"),
        ("SomethingNobodyHasSeen", "parameter"),
    ],
)
def test_an_error_code_is_sorted(code: str, kind: str):
    from clusters.clouds.aws_errors import sorted_faults

    error = botocore.exceptions.ClientError({"Error": {"Code": code, "Message": "why"}}, "RunInstances")
    with pytest.raises(CloudFault, match="why") as caught, sorted_faults("starting"):
        raise error
    assert caught.value.kind == kind


def test_half_an_answer_is_a_broken_connection():
    from botocore.parsers import ResponseParserError

    from clusters.clouds.aws_errors import sorted_faults

    with pytest.raises(CloudFault) as caught, sorted_faults("starting"):
        raise ResponseParserError("truncated")
    assert caught.value.kind == "connection"


def test_after_a_fault_midway_what_was_started_is_found_and_goes(ec2: object, tmp_path: Path):
    fault = CloudFault("capacity", "no more")
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2, fault, after=1))
    ready = cloud.prepare(order(tmp_path))
    with pytest.raises(CloudFault, match="no more"):
        cloud.create(ready, lambda line: None)
    assert [r.kind for r in cloud.find(LAUNCH)].count("instance") == 1
    assert clear(cloud) == ()


def test_a_dead_endpoint_is_a_connection_fault_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(CloudFault):
        AwsCloud([REGION]).find(LAUNCH)
    assert time.monotonic() - began < 60


def test_tags_say_whose_launch_it_is_until_when_and_since_when(ec2: object, tmp_path: Path):
    cloud = AwsCloud([REGION], backend=RayWithoutSsh(ec2))
    wanted = order(tmp_path)
    launched(cloud, wanted)
    (marks,) = cloud.marks(None)
    assert cloud.marks(LAUNCH) == (marks,)
    assert cloud.marks("l-other") == ()
    assert (marks.launch_id, marks.plan_id, marks.owner) == (LAUNCH, wanted.plan.id, "ada")
    assert (marks.deadline, marks.region) == (wanted.choices.deadline, REGION)
    assert (marks.machine_type, marks.market) == ("g6e.12xlarge", "on-demand")
    assert len(marks.machines) == 2
    assert marks.since is not None
    for resource in cloud.find(LAUNCH):
        if resource.kind == "instance":
            cloud.delete(resource)
    (left,) = cloud.marks(None)
    assert (left.owner, left.machines, left.since) == ("ada", (), None)
