"""The emitted AWS document through Ray's own launcher, on moto; then boto3 looks at what is there."""

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import yaml
from moto import mock_aws

from clusters.config import aws_ground, emit
from clusters.config.nodes import cluster_of
from planner.errors import UserError
from planner.results import Plan
from tests.clusters import tools

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's and moto's own
REGION = "us-east-1"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[boto3.Session]:
    """An empty account, a home directory of its own, and placement groups, which moto does not have."""
    for name in ("AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with mock_aws():
        made = boto3.Session(region_name=REGION)
        client = made.client
        groups: list[str] = []

        def with_groups(name: str, **more: object) -> object:
            found = client(name, **more)
            if name == "ec2":
                found.create_placement_group = lambda **asked: groups.append(asked["GroupName"]) or {}
            return found

        monkeypatch.setattr(made, "client", with_groups)
        made.placement_groups = groups
        yield made


def emitted(plan: Plan, session: boto3.Session, tmp_path: Path, **more: object) -> Path:
    """The file of a plan as ``plan cluster --prepare`` writes it."""
    choices = tools.choices(subnet=None, security_group=None, **more)
    ground = aws_ground.prepare(cluster_of(plan, choices, "aws"), choices, session)
    choices = choices.model_copy(update={"subnet": ground.subnet, "security_group": ground.security_group})
    files = {f.name: f.text for f in emit.emit(plan, choices, "aws")}
    path = tmp_path / "cluster.yaml"
    path.write_text(files["cluster.yaml"])
    return path


def bootstrapped(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    """What Ray makes of a file before it starts anything."""
    from ray.autoscaler._private.aws import config as ray_aws
    from ray.autoscaler._private.util import prepare_config, validate_config

    monkeypatch.setattr(ray_aws.time, "sleep", lambda s: None)
    ray_aws._get_subnets_or_die.cache_clear()
    document = prepare_config(yaml.safe_load(path.read_text()))
    validate_config(document)
    return ray_aws.bootstrap_aws(document)


def start_all(document: dict, session: boto3.Session) -> list[dict]:
    """Start every machine of a bootstrapped document with Ray's own node provider; what EC2 then shows."""
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    provider = AWSNodeProvider(document["provider"], document["cluster_name"])
    for name, node in document["available_node_types"].items():
        is_head = name == document["head_node_type"]
        tags = {
            "ray-node-type": "head" if is_head else "worker",
            "ray-launch-config": "x",
            "ray-node-name": f"ray-{name}",
            "ray-user-node-type": name,
        }
        for _ in range(1 if is_head else node["min_workers"]):  # moto starts MinCount of them
            provider.create_node(node["node_config"], tags, 1)
    answer = session.client("ec2").describe_instances()
    return [i for r in answer["Reservations"] for i in r["Instances"]]


def groups_of(config: dict) -> set[str]:
    return {g for interface in config["NetworkInterfaces"] for g in interface["Groups"]}


CASES = {
    "on-demand": (tools.plan(nodes=2), {}),
    "spot": (tools.plan(nodes=2, market="spot"), {}),
    "efa": (tools.big(2), {}),
    "session-manager": (tools.big(2), {"session_manager": True, "ssh_from": None}),
    "bucket": (tools.plan(nodes=2), {"storage": "s3://bucket/runs"}),
}


@pytest.mark.parametrize("name", CASES)
def test_machines_start_closed_tagged_and_with_their_profile(
    name: str, session: boto3.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plan, more = CASES[name]
    document = bootstrapped(emitted(plan, session, tmp_path, **more), monkeypatch)
    machines = start_all(document, session)
    ec2, cluster = session.client("ec2"), cluster_of(plan, tools.choices(**more), "aws")
    assert len(machines) == cluster.num_workers + 1

    asked = {g for t in document["available_node_types"].values() for g in groups_of(t["node_config"])}
    (group,) = ec2.describe_security_groups(GroupIds=list(asked))["SecurityGroups"]
    for machine in machines:  # moto adds the VPC's default group, which lets in nobody but itself
        held = {g["GroupId"] for i in machine["NetworkInterfaces"] for g in i["Groups"]}
        assert group["GroupId"] in held
    ranges = [r["CidrIp"] for rule in group["IpPermissions"] for r in rule["IpRanges"]]
    assert ranges == ([] if more.get("session_manager") else ["203.0.113.7/32"])
    own = [p["GroupId"] for rule in group["IpPermissions"] for p in rule["UserIdGroupPairs"]]
    assert own == [group["GroupId"]]
    assert not ec2.describe_security_groups(
        Filters=[{"Name": "ip-permission.cidr", "Values": ["0.0.0.0/0"]}]
    )["SecurityGroups"]

    assert len({m["SubnetId"] for m in machines}) == 1
    volumes = ec2.describe_volumes()["Volumes"]
    assert len(volumes) == len(machines)
    for thing in (*machines, *volumes):
        tags = {t["Key"]: t["Value"] for t in thing["Tags"]}
        assert tags["plan-id"] == plan.id
        assert tags["plan-deadline"] == "2026-12-03T09:00:00Z"
    assert all(v["Encrypted"] and v["Size"] == 200 for v in volumes)

    profiles = {m.get("IamInstanceProfile", {}).get("Arn", "/none").split("/")[-1] for m in machines}
    assert profiles == {"plan-l-01-head", "plan-l-01-node" if name == "bucket" else "none"}
    for machine in machines:
        kept = ec2.describe_instance_attribute(
            InstanceId=machine["InstanceId"], Attribute="instanceInitiatedShutdownBehavior"
        )
        assert kept["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"


def test_ray_up_sets_the_head_up_and_ray_down_terminates_it(
    session: boto3.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Ray's whole launcher, in process; only SSH is replaced, by a record of what would have been run."""
    from ray.autoscaler import sdk
    from ray.autoscaler._private import command_runner
    from ray.autoscaler._private.aws import config as ray_aws

    said: list[str] = []

    def record(self: object, cmd: str | None = None, *more: object, **named: object) -> str:
        said.append(str(cmd))
        return ""

    for name in ("run_rsync_up", "run_rsync_down"):
        monkeypatch.setattr(command_runner.SSHCommandRunner, name, lambda *a, **k: None)
    monkeypatch.setattr(command_runner.SSHCommandRunner, "run", record)
    ray_aws._get_subnets_or_die.cache_clear()
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("0" * 64)
    path = emitted(tools.plan(), session, tmp_path)

    sdk.create_or_update_cluster(str(path), no_config_cache=True)
    written = yaml.safe_load(path.read_text())
    order = [
        next(i for i, s in enumerate(said) if wanted in s)
        for wanted in ("uptime", *written["initialization_commands"], *written["setup_commands"])
    ]
    assert order == sorted(order)
    assert "ray start --head" in said[-1]
    (machine,) = session.client("ec2").describe_instances()["Reservations"][0]["Instances"]
    assert machine["InstanceType"] == "g6e.12xlarge"

    sdk.teardown_cluster(str(path))
    (machine,) = session.client("ec2").describe_instances()["Reservations"][0]["Instances"]
    assert machine["State"]["Name"] in ("shutting-down", "terminated")
    assert not session.client("ec2").describe_volumes()["Volumes"]


def test_roles_hold_the_rights_of_the_plan_and_no_policy_of_amazon(session: boto3.Session, tmp_path: Path):
    emitted(tools.plan(nodes=2), session, tmp_path)
    iam = session.client("iam")
    assert {r["RoleName"] for r in iam.list_roles()["Roles"]} == {"plan-l-01-head"}
    assert not iam.list_attached_role_policies(RoleName="plan-l-01-head")["AttachedPolicies"]
    (name,) = iam.list_role_policies(RoleName="plan-l-01-head")["PolicyNames"]
    policy = iam.get_role_policy(RoleName="plan-l-01-head", PolicyName=name)["PolicyDocument"]
    assert "ec2:RunInstances" in json.dumps(policy)


def test_without_a_group_ray_stops_and_opens_nothing(
    session: boto3.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    choices = tools.choices(subnet=None, security_group=None)
    path = tmp_path / "cluster.yaml"
    path.write_text(next(f.text for f in emit.emit(tools.plan(), choices, "aws") if f.name == "cluster.yaml"))
    with pytest.raises(AssertionError):
        bootstrapped(path, monkeypatch)
    ec2 = session.client("ec2")
    assert not ec2.describe_instances()["Reservations"]
    assert {g["GroupName"] for g in ec2.describe_security_groups()["SecurityGroups"]} == {"default"}


def test_preparing_twice_makes_nothing_twice(session: boto3.Session):
    choices = tools.choices(subnet=None, security_group=None)
    cluster = cluster_of(tools.plan(nodes=2), choices, "aws")
    first, second = (aws_ground.prepare(cluster, choices, session) for _ in range(2))
    assert first.security_group == second.security_group
    assert any(m.startswith("security group") for m in first.made)
    assert second.made == (f"placement group {cluster.name}",)  # the stand-in for moto forgets


def test_a_group_that_lets_the_internet_in_is_refused(session: boto3.Session):
    choices = tools.choices(subnet=None, security_group=None)
    cluster = cluster_of(tools.plan(), choices, "aws")
    ground = aws_ground.prepare(cluster, choices, session)
    session.client("ec2").authorize_security_group_ingress(
        GroupId=ground.security_group, IpProtocol="tcp", FromPort=8265, ToPort=8265, CidrIp="0.0.0.0/0"
    )
    with pytest.raises(UserError, match="lets the whole internet in"):
        aws_ground.prepare(cluster, choices, session)


@pytest.mark.parametrize("wrong", ["0.0.0.0/0", "10.0.0.0/8", "::/0", "my house", ""])
def test_a_range_that_is_no_ones_own_is_refused(wrong: str):
    with pytest.raises(UserError, match="--ssh-from"):
        aws_ground.checked_range(wrong)


def test_without_an_address_no_port_is_opened_by_chance(session: boto3.Session):
    choices = tools.choices(subnet=None, security_group=None, ssh_from=None)
    with pytest.raises(UserError, match="who may reach port 22"):
        aws_ground.prepare(cluster_of(tools.plan(), choices, "aws"), choices, session)
