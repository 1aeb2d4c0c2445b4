"""AWS: machines through Ray's launcher, everything else through boto3; all of it found again by its tag.

A launch has a name of its own (``plan-<launch>``), and so have its group, key, placement group and roles:
two launches, also of two laptops with one account, share nothing that one of them could take away.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

from clusters.backend import ssh
from clusters.backend.shell import Log
from clusters.clouds import aws_found, aws_gone, aws_marks, aws_preflight, aws_reservations, behind_ray
from clusters.clouds.aws_errors import sorted_faults
from clusters.clouds.base import Created, Order, Place, PreflightCheck
from clusters.clouds.marks import Marks, merged
from clusters.config import aws as aws_documents
from clusters.config import aws_ground, check, emit
from clusters.config.aws_ground import Client, Session
from clusters.config.choices import Choices, utc
from clusters.config.nodes import Cluster, cluster_name, cluster_of
from clusters.config.ray_yaml import Document
from clusters.faults import CloudFault
from planner.launched import CloudKind, Resource

_PROFILE_WAIT_S, _LOOK_EVERY_S = 60.0, 3.0
_CONNECT_S, _READ_S, _TRIES = 10, 30, 4


class AwsCloud:
    """Regions of AWS, as a cloud."""

    kind: CloudKind = "aws"
    tried = False  # on moto, with namespaces as instances; never on the real thing

    def __init__(
        self,
        regions: Sequence[str],
        session: Session | None = None,
        backend: behind_ray.Backend | None = None,
    ) -> None:
        self.regions = tuple(dict.fromkeys(regions))
        self._session = session
        self._backend = backend or behind_ray.RAY

    def client(self, service: str, region: str | None = None) -> Client:
        """Client of a service, bounded in time; credentials as the user's environment has them."""
        if self._session is None:
            import boto3.session  # type: ignore[import-untyped]
            import botocore.config  # type: ignore[import-untyped]
            import botocore.session  # type: ignore[import-untyped]

            with sorted_faults("looking for credentials of AWS"):
                core = botocore.session.Session()
                core.set_default_client_config(
                    botocore.config.Config(
                        connect_timeout=_CONNECT_S,
                        read_timeout=_READ_S,
                        retries={"mode": "standard", "max_attempts": _TRIES},
                    )
                )
                self._session = cast(Session, boto3.session.Session(botocore_session=core))
        with sorted_faults(f"client of {service}"):
            return self._session.client(service, region_name=region or self.regions[0])

    # ------------------------------------------------------------------------------------ before

    def preflight(self, order: Order, budget_usd: Decimal | None) -> tuple[PreflightCheck, ...]:
        """Who asks, what may be done, where the type is offered, quota, image, subnet, clock."""
        cluster = cluster_of(order.plan, _choices(order), "aws")
        return aws_preflight.checks(self.client, order, cluster)

    def places(self, order: Order) -> Sequence[Place]:
        """Zones of the region that offer the type and have a subnet for it, the order's own first."""
        cluster = cluster_of(order.plan, order.choices, "aws")
        region = order.place.region
        with sorted_faults(f"zones of {region}"):
            ec2 = self.client("ec2", region)
            if order.choices.reservation is not None:  # it stands in one zone, and so do its machines
                held = aws_reservations.read(ec2, order.choices.reservation)
                return (Place(region=region, zone=held.zone),)
            offered = aws_preflight.zones_that_offer(ec2, cluster.instance_type)
            named = [{"Name": "default-for-az", "Values": ["true"]}]
            subnets = (
                ec2.describe_subnets(SubnetIds=[order.choices.subnet])
                if order.choices.subnet
                else ec2.describe_subnets(Filters=named)
            )["Subnets"]
        usable = sorted({str(s["AvailabilityZone"]) for s in subnets} & set(offered))
        own = [order.place.zone] if order.place.zone else []
        return tuple(Place(region=region, zone=zone) for zone in dict.fromkeys([*own, *usable]))

    def prepare(self, order: Order) -> Order:
        """Make key, token, group, placement group and roles; nothing of it bills. Repeatable."""
        choices = behind_ray.with_keys(order, _choices(order))
        cluster, region = cluster_of(order.plan, choices, "aws"), order.place.region
        with sorted_faults("preparing the account"):
            ground = aws_ground.prepare(cluster, choices, _Clients(self))
            ec2 = self.client("ec2", region)
            aws_ground.import_key(ec2, cluster, choices, choices.ssh_public_key or "")
        ready = choices.model_copy(update={"subnet": ground.subnet, "security_group": ground.security_group})
        self._wait_for_profile(ec2, cluster, ready)
        return order.model_copy(update={"choices": ready})

    def _wait_for_profile(self, ec2: Client, cluster: Cluster, choices: Choices) -> None:
        """A profile is known to EC2 some seconds after it was made: a dry run tells."""
        config = _head_config(_document(cluster, choices))
        until = time.monotonic() + _PROFILE_WAIT_S
        while True:
            code, said = aws_preflight.dry_run(ec2, config)
            if code == aws_preflight.WOULD_SUCCEED or "iamInstanceProfile" not in said:
                return  # whatever else is wrong is sorted when the head is created
            if time.monotonic() > until:
                raise CloudFault("timeout", f"EC2 does not know the new instance profile yet: {said}")
            time.sleep(_LOOK_EVERY_S)

    # ------------------------------------------------------------------------------------ up

    def create(self, order: Order, log: Log) -> Created:
        """Run ``ray up``: the head by one call with a client token, its workers by the head itself."""
        choices = _choices(order)
        cluster = cluster_of(order.plan, choices, "aws")
        document = _document(cluster, choices)
        _head_config(document)["ClientToken"] = f"{order.launch_id}-{order.attempt}"[:64]
        wrong = [*check.ray_problems(document), *check.aws_problems(document)]
        if wrong:
            raise CloudFault("parameter", wrong[0])
        joined = behind_ray.up(
            self._backend, behind_ray.launcher_of(order), order, cluster, document,
            behind_ray.limits_of(order, "aws"), log,
        )  # fmt: skip
        return behind_ray.created(order, self._head_address(order), joined)

    def reach(self, order: Order) -> AbstractContextManager[Created]:
        """Open a tunnel to the head's loopback, where job submission listens."""
        cluster = cluster_of(order.plan, _choices(order), "aws")
        return behind_ray.reached(order, cluster, self._way(order), self._head_address(order))

    def shell(self, order: Order) -> tuple[str, ...]:
        """SSH to the head, with the launch's own key."""
        return tuple(self._way(order).to(self._head_address(order)))

    def _way(self, order: Order) -> ssh.Way:
        proxy = aws_documents.session_proxy(order.place.region) if order.choices.session_manager else ""
        return behind_ray.way(order, proxy)

    def _head_address(self, order: Order) -> str:
        """Address of the head, or its id where Session Manager is the way."""
        filters = [
            {"Name": f"tag:{aws_found.TAG}", "Values": [order.launch_id]},
            {"Name": "tag:ray-node-type", "Values": ["head"]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        with sorted_faults("looking for the head"):
            answer = self.client("ec2", order.place.region).describe_instances(Filters=filters)
        heads = [i for r in answer["Reservations"] for i in r["Instances"]]
        if not heads:
            raise CloudFault("unreachable", f"no head of {order.launch_id} runs in {order.place.region}")
        if order.choices.session_manager:
            return str(heads[0]["InstanceId"])
        return str(heads[0].get("PublicIpAddress") or heads[0]["PrivateIpAddress"])

    def extend(self, order: Order, deadline: datetime) -> None:
        """Move the timers on every node, and the tag by which others see when it ends."""
        machines = behind_ray.move_deadline(
            self._backend, behind_ray.launcher_of(order), order, deadline,
            lambda: [r.id for r in self.find(order.launch_id) if r.kind == "instance"],
        )  # fmt: skip
        with sorted_faults("moving the tag of the deadline"):
            self.client("ec2", order.place.region).create_tags(
                Resources=machines, Tags=[{"Key": "plan-deadline", "Value": utc(deadline)}]
            )

    # ------------------------------------------------------------------------------------ down

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        """Everything with the tag, in our regions and in IAM."""
        found: list[Resource] = []
        for region in self.regions:
            with sorted_faults(f"looking in {region}"):
                found += aws_found.in_region(self.client("ec2", region), region, launch_id)
        name = None if launch_id is None else cluster_name("", launch_id)
        with sorted_faults("looking in IAM"):
            roles = None if name is None else (f"{name}-head", f"{name}-node")
            found += aws_found.in_iam(self.client("iam"), roles)
        return tuple(found)

    def marks(self, launch_id: str | None) -> tuple[Marks, ...]:
        """What the tags of launches say, in our regions."""
        found: list[Marks] = []
        for region in self.regions:
            with sorted_faults(f"looking in {region}"):
                found += aws_marks.in_region(self.client("ec2", region), region, launch_id)
        return merged(found)

    def delete(self, resource: Resource) -> None:
        """Ask for one thing to go."""
        in_iam = resource.kind in ("instance-profile", "role")
        client = self.client("iam") if in_iam else self.client("ec2", resource.place)
        aws_gone.delete(client, resource)

    def stop_cluster(self, order: Order, log: Log) -> None:
        """Run ``ray down``: the head's autoscaler ends first, so that it starts nothing anew."""
        self._backend.down(behind_ray.launcher_of(order), log)

    def by_hand(self, resource: Resource) -> str:
        """Command of AWS's own client."""
        return aws_found.by_hand(resource)


class _Clients:
    """A session whose clients are ours: bounded in time."""

    def __init__(self, cloud: AwsCloud) -> None:
        self._cloud = cloud

    def client(self, name: str, region_name: str | None = None) -> Client:
        return self._cloud.client(name, region_name)


def _choices(order: Order) -> Choices:
    """Choices of an order: its place decides the zone, its launch the tags."""
    return order.choices.model_copy(
        update={"zone": order.place.zone or order.choices.zone, "launch_id": order.launch_id}
    )


def _document(cluster: Cluster, choices: Choices) -> Document:
    """The emitted document, with the launch's own key instead of one that Ray would make and keep."""
    document: dict[str, Any] = emit.documents(cluster, choices, "aws")["cluster.yaml"]
    document["provider"].pop("key_pair")
    document["auth"]["ssh_private_key"] = choices.ssh_key
    for node in document["available_node_types"].values():
        node["node_config"]["KeyName"] = cluster.name
    return document


def _head_config(document: Document) -> dict[str, Any]:
    types = cast(dict[str, dict[str, Any]], document["available_node_types"])
    config: dict[str, Any] = types["head"]["node_config"]
    return config
