"""What can be looked at in a subscription of Azure before anything bills. The unknown does not pass."""

from __future__ import annotations

import fnmatch
import importlib.util
import ipaddress
import shutil
import socket
from collections.abc import Callable, Iterator

from clusters.clouds import azure_found
from clusters.clouds.azure_api import AUTHORIZATION, COMPUTE, SKUS, SUBSCRIPTIONS, Api
from clusters.clouds.base import Order, PreflightCheck
from clusters.clouds.rest import Document
from clusters.config import versions
from clusters.config.aws_ground import checked_range
from clusters.config.azure import urn
from clusters.config.nodes import Cluster
from clusters.faults import CloudFault
from planner.errors import UserError

_SPOT_CORES = "lowPriorityCores"  # one quota for all Spot machines of a region
_ALL_CORES = "cores"
_LIBRARIES = (
    "azure.identity",
    "azure.mgmt.compute",
    "azure.mgmt.network",
    "azure.mgmt.resource",
    "azure.common",
)
_ACTIONS = (
    "Microsoft.Resources/subscriptions/resourceGroups/write",
    "Microsoft.Resources/subscriptions/resourceGroups/delete",
    "Microsoft.Resources/deployments/write",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Network/virtualNetworks/write",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.ManagedIdentity/userAssignedIdentities/write",
    "Microsoft.Authorization/roleAssignments/write",
)
Look = tuple[bool, str]


def checks(api: Api, order: Order, cluster: Cluster) -> tuple[PreflightCheck, ...]:
    """All checks, in the order in which they are worth reading; without credentials only the first."""
    who = _checked("credentials", "az login", lambda: _who(api))
    if not who.passed:
        return (who,)
    libraries = " ".join(versions.head_packages("azure"))
    looks: tuple[tuple[str, str, Callable[[], Look]], ...] = (
        ("ray", f"pip install {libraries}; az login", _ray),
        ("offered", "plan launch PLAN --zone 1", lambda: _offered(api, cluster)),
        ("quota", "portal, Quotas, Compute: ask for more", lambda: _quota(api, cluster)),
        ("image", "plan launch PLAN --image publisher:offer:sku:version",
         lambda: _image(api, order, cluster)),
        ("way in", "plan launch PLAN --ssh-from 10.1.0.0/16   from a machine in that network, which is peered"
         " with the launch's", lambda: _way_in(order)),
        ("permissions", "ask for Contributor and User Access Administrator", lambda: _permissions(api)),
        ("no such launch", "plan ls", lambda: _none_there(api, order, cluster)),
    )  # fmt: skip
    return (who, *(_checked(name, hint, look) for name, hint, look in looks))


def _checked(name: str, hint: str, look: Callable[[], Look]) -> PreflightCheck:
    """Make one check; a look that fails is a check that did not pass."""
    try:
        passed, detail = look()
    except CloudFault as fault:
        detail = f"unknown: {fault}"
        return PreflightCheck(
            name=name, passed=False, detail=detail, hint=fault.hint or hint, fault=fault.kind
        )
    except UserError as error:
        return PreflightCheck(name=name, passed=False, detail=str(error), hint=error.hint, fault="parameter")
    return PreflightCheck(name=name, passed=passed, detail=detail, hint="" if passed else hint)


def _who(api: Api) -> Look:
    found = api.ask("GET", "", SUBSCRIPTIONS)
    state = str(found.get("state", "unknown"))
    return state == "Enabled", f"subscription {found.get('displayName', api.subscription)}: {state}"


def _ray() -> Look:
    """Ray asks Azure by libraries of its own, and always as the user of ``az``."""
    missing = [name for name in _LIBRARIES if not _is_there(name)]
    if missing:
        return False, f"Ray's provider needs {', '.join(missing)}, which are not installed here"
    return shutil.which("az") is not None, "the libraries of Ray's provider, and az"


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that holds it
        return False


# ---------------------------------------------------------------------------------------- size and quota


def size_of(api: Api, cluster: Cluster, size: str) -> Document | None:
    """What the subscription is told of a size in the region, ``None`` where it is not offered at all."""
    for one in api.listed("providers/Microsoft.Compute/skus", SKUS, f"location eq '{cluster.region}'"):
        if one.get("resourceType") == "virtualMachines" and one["name"] == size:
            return one
    return None


def zones_of(size: Document) -> tuple[str, ...]:
    """Zones in which the subscription may have the size."""
    there = {z for info in size.get("locationInfo", ()) for z in info.get("zones", ())}
    barred = {
        z
        for one in size.get("restrictions", ())
        if one.get("type") == "Zone"
        for z in one.get("restrictionInfo", {}).get("zones", ())
    }
    return tuple(sorted(there - barred))


def _offered(api: Api, cluster: Cluster) -> Look:
    size = size_of(api, cluster, cluster.instance_type)
    if size is None:
        return False, f"{cluster.instance_type} is not offered in {cluster.region}"
    barred = [str(r.get("reasonCode")) for r in size.get("restrictions", ()) if r.get("type") == "Location"]
    if barred:
        return False, f"{cluster.instance_type} in {cluster.region}: {', '.join(barred)}"
    zones = zones_of(size)
    said = f"{cluster.instance_type} in {cluster.region}, zones {', '.join(zones) or 'none'}"
    return cluster.zone is None or cluster.zone in zones, said


def _quota(api: Api, cluster: Cluster) -> Look:
    """Cores of the size's family and of the region, or of all Spot machines; what is not named is unknown."""
    size = size_of(api, cluster, cluster.instance_type)
    cores = None if size is None else _cores(size)
    if size is None or cores is None:
        return False, f"unknown: Azure does not say the cores of {cluster.instance_type}"
    usages = list(api.listed(f"providers/Microsoft.Compute/locations/{cluster.region}/usages", COMPUTE))
    spot = cluster.market == "spot"
    names = (_SPOT_CORES,) if spot else (str(size.get("family", "")), _ALL_CORES)
    found = [_fits(usages, name, cores * cluster.num_nodes) for name in names]
    return all(ok for ok, _ in found), "; ".join(said for _, said in found)


def _cores(size: Document) -> int | None:
    said = [c["value"] for c in size.get("capabilities", ()) if c.get("name") == "vCPUs"]
    return int(said[0]) if said and str(said[0]).isdigit() else None


def _fits(usages: list[Document], name: str, needed: int) -> Look:
    for one in usages:
        if str(one["name"]["value"]).casefold() == name.casefold():
            limit, used = int(one["limit"]), int(one["currentValue"])
            return used + needed <= limit, f"{needed} vCPU needed, {used} in use, of {limit} ({name})"
    return False, f"unknown: no usage named {name or 'of the family'}"


def _image(api: Api, order: Order, cluster: Cluster) -> Look:
    text = order.choices.image or versions.image("azure", cluster.gpu).parameter
    publisher, offer, sku, version = urn(text)
    below = (
        f"providers/Microsoft.Compute/locations/{cluster.region}/publishers/{publisher}"
        f"/artifacttypes/vmimage/offers/{offer}/skus/{sku}/versions"
    )
    found = list(api.listed(below, COMPUTE))
    named = [str(one["name"]) for one in found]
    there = bool(named) if version == "latest" else version in named
    return there, f"{text}" + ("" if there else f" is not in {cluster.region}")


# ---------------------------------------------------------------------------------------- network and rights


def _way_in(order: Order) -> Look:
    """Machines have private addresses only, so this one must stand in a private network beside theirs.

    Whether that network is peered with the launch's cannot be known before the launch's is made.
    """
    if order.choices.ssh_from is None:
        return False, "machines get no public address; the private network of this machine was not said"
    network = ipaddress.ip_network(checked_range(order.choices.ssh_from))
    if not network.is_private:
        return (
            False,
            f"{network} is public, and Ray's template opens port 22 to everyone: no public addresses",
        )
    own = own_address(str(network[1] if network.num_addresses > 2 else network[0]))
    if own is None or ipaddress.ip_address(own) not in network:
        return False, f"this machine has no address in {network}"
    return True, f"from {own}; its network must be peered with the launch's while the head starts"


def own_address(towards: str) -> str | None:
    """Own address on the way to another one; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
            held.connect((towards, 9))
            return str(held.getsockname()[0])
    except OSError:
        return None


def _permissions(api: Api) -> Look:
    granted = list(api.listed("providers/Microsoft.Authorization/permissions", AUTHORIZATION))
    lacking = [action for action in _ACTIONS if not any(_grants(one, action) for one in granted)]
    return (
        not lacking,
        f"not allowed: {', '.join(lacking)}" if lacking else f"all {len(_ACTIONS)} that are needed",
    )


def _grants(permission: Document, action: str) -> bool:
    def listed(key: str) -> bool:
        return any(fnmatch.fnmatch(action.lower(), str(p).lower()) for p in permission.get(key, ()))

    return listed("actions") and not listed("notActions")


def _none_there(api: Api, order: Order, cluster: Cluster) -> Look:
    """Nothing of this launch, nor a group of another one of the same plan."""
    found = [str(group["name"]) for group in azure_found.groups(api, order.launch_id)]
    found += list(_groups_of_plan(api, cluster))
    return (
        not found,
        f"resource group {', '.join(dict.fromkeys(found))}" if found else "no group of this plan",
    )


def _groups_of_plan(api: Api, cluster: Cluster) -> Iterator[str]:
    for group in azure_found.groups(api, None):
        if group["tags"].get("plan-id") == cluster.plan_id:
            yield str(group["name"])
