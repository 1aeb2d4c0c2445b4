"""Everything at AWS that carries a launch's tag, in the order in which it lets go of each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clusters.clouds.aws_errors import code_of
from clusters.config.aws_ground import Answer, Client
from planner.launched import Resource, ResourceKind

TAG = "plan-launch"
_GONE_STATES = ("terminated", "deleted")
BILLED_INSTANCE = ("pending", "running")


def in_region(ec2: Client, region: str, launch_id: str | None) -> Iterator[Resource]:
    """Things of EC2 in a region: instances in any state but terminated, and all that may outlive them."""
    filters = filters_of(launch_id)
    for page in pages(ec2, "describe_instances", filters):
        for found in (i for r in page["Reservations"] for i in r["Instances"]):
            state = found["State"]["Name"]
            if state not in _GONE_STATES:
                yield _made("instance", found["InstanceId"], state, region, state in BILLED_INSTANCE, found)
    for found in _listed(ec2, "describe_addresses", "Addresses", filters):
        yield _made("address", found["AllocationId"], "allocated", region, True, found)
    for found in _listed(ec2, "describe_volumes", "Volumes", filters):
        if found["State"] not in _GONE_STATES:
            yield _made("volume", found["VolumeId"], found["State"], region, True, found)
    groups = _listed(ec2, "describe_security_groups", "SecurityGroups", filters)
    yield from _interfaces(ec2, region, filters, groups)
    for found in _listed(ec2, "describe_placement_groups", "PlacementGroups", filters):
        if found["State"] not in _GONE_STATES:
            yield _made("placement-group", found["GroupName"], found["State"], region, False, found)
    for found in groups:
        yield _made("security-group", found["GroupId"], "there", region, False, found)
    for found in _listed(ec2, "describe_key_pairs", "KeyPairs", filters):
        yield _made("key-pair", found["KeyName"], "there", region, False, found)


def _interfaces(ec2: Client, region: str, filters: list[Answer], groups: list[Answer]) -> Iterator[Resource]:
    """Network interfaces with the tag, and any that stands in a group of the launch and so keeps it."""
    found = {
        i["NetworkInterfaceId"]: i
        for i in _listed(ec2, "describe_network_interfaces", "NetworkInterfaces", filters)
    }
    for group in groups:
        inside = [{"Name": "group-id", "Values": [group["GroupId"]]}]
        for one in _listed(ec2, "describe_network_interfaces", "NetworkInterfaces", inside):
            found.setdefault(one["NetworkInterfaceId"], {**one, "TagSet": group.get("Tags", [])})
    for name, one in sorted(found.items()):
        yield _made("network-interface", name, one["Status"], region, False, {"Tags": one.get("TagSet", [])})


def in_iam(iam: Client, names: tuple[str, ...] | None) -> Iterator[Resource]:
    """Instance profiles and roles: of these names, or (``None``) all that carry the tag of a launch."""
    if names is None:
        wanted = [r["RoleName"] for page in pages(iam, "list_roles", None) for r in page["Roles"]]
        names = tuple(name for name in wanted if name.startswith("plan-"))
    for name in names:
        tags = _tags_of_role(iam, name)
        if tags is None:
            continue
        launch = tags.get(TAG)
        if launch is None:
            continue
        if _there(iam, name):
            yield _resource("instance-profile", name, "there", "global", False, launch)
        yield _resource("role", name, "there", "global", False, launch)


def _tags_of_role(iam: Client, name: str) -> dict[str, str] | None:
    """Tags of a role, ``None`` where there is no such role."""
    try:
        return {t["Key"]: t["Value"] for t in iam.list_role_tags(RoleName=name)["Tags"]}
    except _client_error() as error:
        if code_of(error) != "NoSuchEntity":
            raise
        return None


def _there(iam: Client, name: str) -> bool:
    try:
        iam.get_instance_profile(InstanceProfileName=name)
    except _client_error() as error:
        if code_of(error) != "NoSuchEntity":
            raise
        return False
    return True


def _client_error() -> type[Exception]:
    import botocore.exceptions  # type: ignore[import-untyped]

    found: type[Exception] = botocore.exceptions.ClientError
    return found


def filters_of(launch_id: str | None) -> list[Answer]:
    """Filters of a describe call: the tag of a launch, or of any launch."""
    if launch_id is None:
        return [{"Name": "tag-key", "Values": [TAG]}]
    return [{"Name": f"tag:{TAG}", "Values": [launch_id]}]


def pages(client: Client, operation: str, filters: list[Answer] | None) -> Iterator[Answer]:
    """Every page of an answer."""
    more: dict[str, Any] = {} if filters is None else {"Filters": filters}
    paginator: Any = client.get_paginator(operation)
    yield from paginator.paginate(**more)


def _listed(ec2: Client, operation: str, key: str, filters: list[Answer]) -> list[Answer]:
    """All things of one kind; addresses, placement groups and key pairs come on one page."""
    if operation in ("describe_addresses", "describe_placement_groups", "describe_key_pairs"):
        return list(getattr(ec2, operation)(Filters=filters)[key])
    return [found for page in pages(ec2, operation, filters) for found in page[key]]


def _made(kind: ResourceKind, name: str, state: str, region: str, bills: bool, found: Answer) -> Resource:
    launch = next((t["Value"] for t in found.get("Tags", []) if t["Key"] == TAG), None)
    return _resource(kind, name, state, region, bills, launch)


def _resource(
    kind: ResourceKind, name: str, state: str, place: str, bills: bool, launch: str | None
) -> Resource:
    made = Resource(kind=kind, id=name, state=state, place=place, bills=bills, launch_id=launch)
    return made.model_copy(update={"hint": by_hand(made)})


_COMMANDS: dict[ResourceKind, str] = {
    "instance": "ec2 terminate-instances --instance-ids {id}",
    "address": "ec2 release-address --allocation-id {id}",
    "volume": "ec2 delete-volume --volume-id {id}",
    "network-interface": "ec2 delete-network-interface --network-interface-id {id}",
    "placement-group": "ec2 delete-placement-group --group-name {id}",
    "security-group": "ec2 delete-security-group --group-id {id}",
    "key-pair": "ec2 delete-key-pair --key-name {id}",
    "instance-profile": "iam delete-instance-profile --instance-profile-name {id}",
    "role": "iam delete-role --role-name {id}",
}


def by_hand(resource: Resource) -> str:
    """Command of AWS's own client that deletes a thing."""
    where = "" if resource.place == "global" else f" --region {resource.place}"
    return f"aws {_COMMANDS[resource.kind].format(id=resource.id)}{where}"
