"""What AWS says in the tags of launches: plan, owner, deadline, and the machines that carry them."""

from __future__ import annotations

from typing import Any

from clusters.clouds import aws_found
from clusters.clouds.marks import Marks, merged, moment
from clusters.config.aws_ground import Answer, Client

_GONE = ("terminated", "shutting-down")


def in_region(ec2: Client, region: str, launch_id: str | None) -> tuple[Marks, ...]:
    """Marks of launches in a region, from instances, volumes and security groups."""
    filters = aws_found.filters_of(launch_id)
    found = []
    for page in aws_found.pages(ec2, "describe_instances", filters):
        for instance in (i for r in page["Reservations"] for i in r["Instances"]):
            if instance["State"]["Name"] not in _GONE:
                found.append(_of_instance(instance, region))
    for operation, key in (
        ("describe_volumes", "Volumes"),
        ("describe_security_groups", "SecurityGroups"),
    ):
        for page in aws_found.pages(ec2, operation, filters):
            found += [_of_tags(one, region) for one in page[key]]
    return merged(found)


def _of_tags(found: Answer, region: str) -> Marks:
    tags = {t["Key"]: t["Value"] for t in found.get("Tags", [])}
    return Marks(
        launch_id=tags[aws_found.TAG],
        plan_id=tags.get("plan-id"),
        owner=tags.get("plan-owner"),
        deadline=moment(tags.get("plan-deadline")),
        region=region,
    )


def _of_instance(instance: dict[str, Any], region: str) -> Marks:
    bills = instance["State"]["Name"] in aws_found.BILLED_INSTANCE
    return _of_tags(instance, region).model_copy(
        update={
            "zone": instance["Placement"]["AvailabilityZone"],
            "market": instance.get("InstanceLifecycle", "on-demand"),
            "machine_type": instance["InstanceType"],
            "machines": (instance["InstanceId"],) if bills else (),
            "since": instance["LaunchTime"],
        }
    )
