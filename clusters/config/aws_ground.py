"""What an AWS cluster stands on: security group, placement group, roles. Free, made once, found again.

Ray would make its own, open to the world; so these are made first and named in the document. Each step
may be repeated: what is there is kept, and a rule that lets the internet in is refused.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from clusters.config import aws, guards, iam
from clusters.config.choices import BY_HAND, Choices
from clusters.config.nodes import Cluster
from planner.errors import UserError
from planner.types import Record

Answer = dict[str, Any]  # what AWS sends
_ANYWHERE = ("0.0.0.0/0", "::/0")


class Client(Protocol):
    """A boto3 client: every method takes keywords and answers with a dictionary."""

    def __getattr__(self, name: str) -> Callable[..., Answer]:
        """Return the method of an operation."""


class Session(Protocol):
    """A boto3 session with the user's credentials."""

    def client(self, name: str, region_name: str | None = None) -> Client:
        """Return the client of a service."""


class Ground(Record):
    """Ids to write into the document, and what was made now (to be deleted with the cluster)."""

    subnet: str
    security_group: str
    made: tuple[str, ...]


def checked_range(text: str) -> str:
    """Address range that may reach port 22: ``203.0.113.7`` or ``203.0.113.0/24``.

    Raises:
        UserError: if it is none, or so wide that it is no one's own (IPv4 under /16).

    """
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise UserError(f"--ssh-from {text!r:.60} is no address range", "--ssh-from 203.0.113.7/32") from None
    if network.version != 4 or network.prefixlen < 16:
        raise UserError(f"--ssh-from {network}: give your own IPv4 address", "--ssh-from 203.0.113.7/32")
    return str(network)


def prepare(cluster: Cluster, choices: Choices, session: Session) -> Ground:
    """Make or find everything that the document names.

    Args:
        cluster: the machines.
        choices: of the user; a subnet that is given is used, else a default one of the zone.
        session: of boto3, with the user's credentials.

    Raises:
        UserError: no subnet in the zone, no ``--ssh-from``, or a group that lets the internet in.

    """
    ec2 = session.client("ec2", region_name=cluster.region)
    found = subnet_of(ec2, cluster, choices)
    subnet, vpc = str(found["SubnetId"]), str(found["VpcId"])
    group, made = _security_group(ec2, cluster, choices, vpc)
    if aws.uses_placement_group(cluster):
        made += _placement_group(ec2, cluster, choices)
    made += _roles(session.client("iam"), cluster, choices)
    return Ground(subnet=subnet, security_group=group, made=tuple(made))


def subnet_of(ec2: Client, cluster: Cluster, choices: Choices) -> Answer:
    """Subnet of the cluster: the one that was named, else a default one of the zone or region.

    Raises ``UserError`` where there is none.
    """
    if choices.subnet:
        found = ec2.describe_subnets(SubnetIds=[choices.subnet])["Subnets"]
    else:
        filters = [{"Name": "default-for-az", "Values": ["true"]}]
        if cluster.zone:
            filters.append({"Name": "availability-zone", "Values": [cluster.zone]})
        found = ec2.describe_subnets(Filters=filters)["Subnets"]
    if not found:
        raise UserError(
            f"no default subnet in {cluster.zone or cluster.region}",
            f"plan cluster {cluster.plan_id} --subnet ID",
        )
    return min(found, key=lambda s: str(s["AvailabilityZone"]))


def _security_group(ec2: Client, cluster: Cluster, choices: Choices, vpc: str) -> tuple[str, list[str]]:
    """Group whose members talk freely, and that one address range may reach on port 22."""
    filters = [{"Name": "group-name", "Values": [cluster.name]}, {"Name": "vpc-id", "Values": [vpc]}]
    found = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
    made: list[str] = []
    if found:
        group = found[0]
    else:
        answer = ec2.create_security_group(
            GroupName=cluster.name,
            Description=f"Cluster of plan {cluster.plan_id}",
            VpcId=vpc,
            TagSpecifications=_tagged("security-group", cluster, choices),
        )
        made.append(f"security group {answer['GroupId']}")
        group = ec2.describe_security_groups(GroupIds=[answer["GroupId"]])["SecurityGroups"][0]
    _refuse_open(group)
    _add_rules(ec2, group, cluster, choices)
    return str(group["GroupId"]), made


def _refuse_open(group: Answer) -> None:
    """Refuse a group that lets the whole internet in, on any port."""
    for rule in group["IpPermissions"]:
        ranges = [r["CidrIp"] for r in rule.get("IpRanges", [])]
        ranges += [r["CidrIpv6"] for r in rule.get("Ipv6Ranges", [])]
        if set(ranges) & set(_ANYWHERE):
            raise UserError(
                f"security group {group['GroupId']} lets the whole internet in",
                f"aws ec2 delete-security-group --group-id {group['GroupId']}",
            )


def _add_rules(ec2: Client, group: Answer, cluster: Cluster, choices: Choices) -> None:
    """Add what is missing: in from itself, out to itself (EFA wants both said), port 22 from the caller."""
    own: list[Answer] = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group["GroupId"]}]}]
    wanted = list(own)
    if not choices.session_manager:
        if choices.ssh_from is None:
            raise UserError(
                "who may reach port 22? give your address, or use Session Manager",
                f"plan cluster {cluster.plan_id} --prepare --ssh-from 203.0.113.7/32",
            )
        only = [{"CidrIp": checked_range(choices.ssh_from), "Description": f"owner of {cluster.plan_id}"}]
        wanted.append({"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": only})
    _unless_there(ec2.authorize_security_group_ingress, group["GroupId"], wanted)
    _unless_there(ec2.authorize_security_group_egress, group["GroupId"], own)


def _unless_there(authorize: Callable[..., Answer], group_id: str, rules: Sequence[Answer]) -> None:
    """Add rules one by one; one that is there already is no error."""
    import botocore.exceptions  # type: ignore[import-untyped]

    for rule in rules:
        try:
            authorize(GroupId=group_id, IpPermissions=[rule])
        except botocore.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "InvalidPermission.Duplicate":
                raise


def _placement_group(ec2: Client, cluster: Cluster, choices: Choices) -> list[str]:
    """Cluster placement group, so that nodes stand close to each other."""
    import botocore.exceptions

    try:
        ec2.create_placement_group(
            GroupName=cluster.name,
            Strategy="cluster",
            TagSpecifications=_tagged("placement-group", cluster, choices),
        )
    except botocore.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "InvalidPlacementGroup.Duplicate":
            raise
        return []
    return [f"placement group {cluster.name}"]


def _roles(client: Client, cluster: Cluster, choices: Choices) -> list[str]:
    """Roles and instance profiles with only the rights that this cluster uses."""
    rights = iam.rights(cluster, choices, "aws")
    wanted = [(aws.profile(cluster, choices, head=True), rights["head"])]
    if rights["node"]:
        wanted.append((aws.profile(cluster, choices, head=False), rights["node"]))
    # a role that launches share belongs to none of them
    tags = [] if choices.launch_id == BY_HAND else _tags(cluster, choices)
    made: list[str] = []
    for name, policies in wanted:
        made += _role(client, name, rights["trust"][0], tags)
        for number, policy in enumerate(policies):
            client.put_role_policy(
                RoleName=name, PolicyName=f"{cluster.name}-{number}", PolicyDocument=json.dumps(policy)
            )
    return made


def _role(client: Client, name: str, trust: Answer, tags: list[dict[str, str]]) -> list[str]:
    """A role and the instance profile of the same name."""
    made = []
    if not _there(client.get_role, RoleName=name):
        client.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust), Tags=tags)
        made.append(f"role {name}")
    if not _there(client.get_instance_profile, InstanceProfileName=name):
        client.create_instance_profile(InstanceProfileName=name, Tags=tags)
        made.append(f"instance profile {name}")
    if not client.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]:
        client.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    return made


def _there(look: Callable[..., Answer], **name: str) -> bool:
    """Say whether a thing of IAM exists."""
    import botocore.exceptions

    try:
        look(**name)
    except botocore.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchEntity":
            raise
        return False
    return True


def import_key(ec2: Client, cluster: Cluster, choices: Choices, public_key: str) -> str:
    """Make the public half of a key known to EC2, under the cluster's name; its private half never leaves."""
    import botocore.exceptions

    try:
        ec2.import_key_pair(
            KeyName=cluster.name,
            PublicKeyMaterial=public_key.encode(),
            TagSpecifications=_tagged("key-pair", cluster, choices),
        )
    except botocore.exceptions.ClientError as error:
        if error.response["Error"]["Code"] != "InvalidKeyPair.Duplicate":
            raise
    return cluster.name


def _tagged(kind: str, cluster: Cluster, choices: Choices) -> list[dict[str, object]]:
    return [{"ResourceType": kind, "Tags": _tags(cluster, choices)}]


def _tags(cluster: Cluster, choices: Choices) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in guards.tags(cluster, choices).items()]
