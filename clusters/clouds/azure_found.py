"""Everything at Azure that belongs to a launch: its resource group, and what bills in it.

Ray's provider puts all that it makes into one group, which is the launch's own and carries its tag. Whatever
costs nothing by itself (interfaces, the network, its security group, the identity) goes with the group.
"""

from __future__ import annotations

from collections.abc import Iterator

from clusters.clouds.azure_api import COMPUTE, NETWORK, RESOURCES, Api
from clusters.clouds.marks import Marks, merged, moment
from clusters.clouds.rest import Document
from clusters.config.guards import LAUNCH_TAG
from planner.launched import Resource, ResourceKind

GROUPS = "resourcegroups"
KINDS: dict[str, ResourceKind] = {
    "microsoft.compute/virtualmachines": "instance",
    "microsoft.compute/disks": "volume",
    "microsoft.network/publicipaddresses": "address",
}
_TYPES: dict[ResourceKind, tuple[str, str]] = {
    "instance": ("Microsoft.Compute/virtualMachines", COMPUTE),
    "volume": ("Microsoft.Compute/disks", "2024-03-02"),
    "address": ("Microsoft.Network/publicIPAddresses", NETWORK),
}
_COMMANDS: dict[ResourceKind, str] = {
    "instance": "vm delete --force-deletion true --yes",
    "volume": "disk delete --yes",
    "address": "network public-ip delete",
}
_DEALLOCATED = "deallocated"  # a machine that is only stopped bills on


def groups(api: Api, launch_id: str | None) -> list[Document]:
    """Resource groups of a launch, or of any launch."""
    only = f"tagName eq '{LAUNCH_TAG}'" + ("" if launch_id is None else f" and tagValue eq '{launch_id}'")
    return list(api.listed(GROUPS, RESOURCES, only))


def everything(api: Api, launch_id: str | None) -> Iterator[Resource]:
    """What bills in each group of the launch, then the group itself."""
    for group in groups(api, launch_id):
        name, launch = str(group["name"]), group["tags"][LAUNCH_TAG]
        for one in inside(api, name):
            kind = KINDS.get(str(one["type"]).lower())
            if kind is not None:
                state = state_of(api, name, one["name"]) if kind == "instance" else "there"
                if state is not None:
                    bills = kind != "instance" or state != _DEALLOCATED
                    yield _made(kind, str(one["name"]), state, name, bills, launch)
        state = str(group.get("properties", {}).get("provisioningState", "there"))
        yield _made("resource-group", name, state, str(group["location"]), False, launch)


def inside(api: Api, group: str) -> list[Document]:
    """All resources of a group; none where the group goes away while it is asked."""
    if api.found(f"{GROUPS}/{group}", RESOURCES) is None:
        return []
    return list(api.listed(f"resourceGroups/{group}/resources", RESOURCES))


def state_of(api: Api, group: str, machine: str) -> str | None:
    """Power state of a machine, ``unknown`` where Azure says none; ``None``: it is gone."""
    view = api.found(f"{_below(group, 'instance', machine)}/instanceView", COMPUTE)
    if view is None:
        return None
    said = [str(s["code"]) for s in view.get("statuses", ())]
    power = [code.partition("/")[2] for code in said if code.startswith("PowerState/")]
    return power[0] if power else "unknown"


def _below(group: str, kind: ResourceKind, name: str) -> str:
    return f"resourceGroups/{group}/providers/{_TYPES[kind][0]}/{name}"


def delete(api: Api, resource: Resource) -> None:
    """Ask for one thing to go; Azure answers at once and does it on its own."""
    if resource.kind == "resource-group":
        api.ask("DELETE", f"{GROUPS}/{resource.id}", RESOURCES)
        return
    more = {"forceDeletion": "true"} if resource.kind == "instance" else {}
    below = _below(resource.place, resource.kind, resource.id)
    api.ask("DELETE", below, _TYPES[resource.kind][1], more=more)


def by_hand(resource: Resource, subscription: str) -> str:
    """Command of Azure's own client that deletes a thing."""
    whose = f"--subscription {subscription}"
    if resource.kind == "resource-group":
        return f"az group delete --name {resource.id} --yes {whose}"
    command = f"az {_COMMANDS[resource.kind]} --name {resource.id}"
    return f"{command} --resource-group {resource.place} {whose}"


def _made(kind: ResourceKind, name: str, state: str, place: str, bills: bool, launch: str) -> Resource:
    return Resource(kind=kind, id=name, state=state, place=place, bills=bills, launch_id=launch)


def machines(api: Api, group: str) -> Iterator[Document]:
    """Machines of a group, whole."""
    for one in inside(api, group):
        if KINDS.get(str(one["type"]).lower()) == "instance":
            found = api.found(_below(group, "instance", one["name"]), COMPUTE)
            if found is not None:
                yield found


def head_address(api: Api, group: str) -> str | None:
    """Private address of the head, ``None`` where none runs."""
    for machine in machines(api, group):
        if machine.get("tags", {}).get("ray-node-type") != "head":
            continue
        if state_of(api, group, str(machine["name"])) != "running":
            continue
        interface = machine["properties"]["networkProfile"]["networkInterfaces"][0]["id"]
        name = str(interface).rpartition("/")[2]
        found = api.found(
            f"resourceGroups/{group}/providers/Microsoft.Network/networkInterfaces/{name}", NETWORK
        )
        if found is not None:
            return str(found["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"])
    return None


def marks(api: Api, launch_id: str | None) -> tuple[Marks, ...]:
    """What the tags of launches say, and their machines."""
    found = []
    for group in groups(api, launch_id):
        tags = group["tags"]
        known = Marks(
            launch_id=tags[LAUNCH_TAG],
            plan_id=tags.get("plan-id"),
            owner=tags.get("plan-owner"),
            deadline=moment(tags.get("plan-deadline")),
            region=str(group["location"]),
        )
        found.append(known)
        found += [_of_machine(known, one) for one in machines(api, str(group["name"]))]
    return merged(found)


def _of_machine(known: Marks, machine: Document) -> Marks:
    properties = machine["properties"]
    return known.model_copy(
        update={
            "zone": next(iter(machine.get("zones", ())), None),
            "market": "spot" if properties.get("priority") == "Spot" else "on-demand",
            "machine_type": properties.get("hardwareProfile", {}).get("vmSize"),
            "machines": (str(machine["name"]),),
            "since": moment(properties.get("timeCreated")),
        }
    )
