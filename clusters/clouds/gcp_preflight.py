"""What can be looked at in a project of Google Cloud before anything bills. The unknown does not pass."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from clusters.clouds import codes, gcp_found
from clusters.clouds.base import Order, PreflightCheck
from clusters.clouds.gcp_api import Api
from clusters.clouds.rest import Document
from clusters.config import check, emit, gcp, versions
from clusters.config.aws_ground import checked_range
from clusters.config.choices import Choices
from clusters.config.nodes import Cluster
from clusters.faults import CloudFault
from planner.errors import UserError

NETWORK_TAG = "plan"  # of every machine of ours: firewall rules name it
_ANYONE = ("0.0.0.0/0", "::/0")
_HEAD_ACCOUNT = "plan-head"
_OURS = (
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.firewalls.list",
)
# What Ray's own start does, whether or not its account is used (ray/autoscaler/_private/gcp/config.py).
_RAYS = (
    "resourcemanager.projects.get",
    "resourcemanager.projects.getIamPolicy",
    "resourcemanager.projects.setIamPolicy",
    "iam.serviceAccounts.create",
    "iam.serviceAccounts.get",
)
_ACT_AS = ("iam.serviceAccounts.actAs",)
Look = tuple[bool, str]


def checks(
    api: Api, order: Order, cluster: Cluster, environment: Mapping[str, str] = os.environ
) -> tuple[PreflightCheck, ...]:
    """All checks, in the order in which they are worth reading; without credentials only the first."""
    who = _checked("credentials", "gcloud auth login", lambda: _who(api))
    if not who.passed:
        return (who,)
    image = order.choices.image or versions.image("gcp", cluster.gpu).parameter
    rule = f"gcloud compute firewall-rules create plan-ssh --network {gcp.NETWORK}"
    looks: tuple[tuple[str, str, Callable[[], Look]], ...] = (
        ("ray", "pip install google-api-python-client; gcloud auth application-default login",
         lambda: _ray(environment)),
        ("region", "plan suggest   with another region", lambda: _region(api, cluster)),
        ("offered", "plan launch PLAN --zone ZONE", lambda: _offered(api, cluster)),
        ("quota", "console of IAM & Admin, Quotas: ask for more", lambda: _quota(api, cluster)),
        ("image", "plan launch PLAN --image projects/PROJECT/global/images/NAME", lambda: _image(api, image)),
        ("subnet", f"gcloud compute networks subnets create {gcp.NETWORK} --network {gcp.NETWORK} --region"
         f" {cluster.region} --range 10.10.0.0/16", lambda: _subnets(api, order, cluster)),
        ("ssh", f"{rule} --allow tcp:22 --source-ranges ADDRESS/32 --target-tags {NETWORK_TAG}; plan launch"
         " PLAN --ssh-from ADDRESS/32", lambda: _ssh(api, order, cluster)),
        ("head account", f"gcloud iam service-accounts create {_HEAD_ACCOUNT}   rights: plan cluster"
         f" {cluster.plan_id} --iam", lambda: _head_account(api)),
        ("permissions", "ask the owner of the project for the roles that hold them",
         lambda: _permissions(api)),
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
    """The project answers to the caller; its token alone does not say who that is."""
    found = api.compute.ask("GET", f"projects/{api.project}")
    return True, f"project {found.get('name', api.project)}"


def _ray(environment: Mapping[str, str]) -> Look:
    """Ray asks Google by a library and credentials of its own, which are not those of ``gcloud``."""
    if importlib.util.find_spec("googleapiclient") is None:
        return False, "Ray's provider needs google-api-python-client, which is not installed here"
    named = environment.get("GOOGLE_APPLICATION_CREDENTIALS")
    home = environment.get("CLOUDSDK_CONFIG") or "~/.config/gcloud"
    path = Path(named or f"{home}/application_default_credentials.json").expanduser()
    return path.is_file(), f"application default credentials in {path}" + ("" if path.is_file() else ": none")


def _region(api: Api, cluster: Cluster) -> Look:
    state = str(api.compute.ask("GET", api.path(f"regions/{cluster.region}")).get("status", "unknown"))
    return state == "UP", f"{cluster.region}: {state}"


def zones_that_offer(api: Api, cluster: Cluster) -> tuple[str, ...]:
    """Zones of the region in which a type is offered, sorted."""
    found = api.everywhere("machineTypes", f"name = {cluster.instance_type}")
    named = {zone for zone, one in found if one.get("name") == cluster.instance_type}
    return tuple(sorted(z for z in named if z.rpartition("-")[0] == cluster.region))


def _offered(api: Api, cluster: Cluster) -> Look:
    zones = zones_that_offer(api, cluster)
    said = f"{cluster.instance_type} in {', '.join(zones) or 'no zone of ' + cluster.region}"
    if cluster.zone is not None:
        return cluster.zone in zones, f"{said}; wanted in {cluster.zone}"
    return bool(zones), said


# ---------------------------------------------------------------------------------------------- quota


def metric_of(machine_type: str, market: str) -> str | None:
    """Quota metric that the GPUs of a machine type count against; ``None`` = not known."""
    for row in codes.rows("gcp_quotas.csv"):
        if machine_type.startswith(f"{row['prefix']}-"):
            return f"PREEMPTIBLE_{row['metric']}" if market == "spot" else row["metric"]
    return None


def _quota(api: Api, cluster: Cluster) -> Look:
    """GPUs of the family in the region; where the region does not name the family, nobody can tell."""
    metric = metric_of(cluster.instance_type, cluster.market)
    if metric is None:
        return False, f"unknown: no quota metric is known for {cluster.instance_type}"
    region = api.compute.ask("GET", api.path(f"regions/{cluster.region}")).get("quotas", [])
    own = _fits(region, metric, cluster.num_gpus)
    if own is None:
        return False, f"unknown: {cluster.region} does not say {metric}"
    whole = api.compute.ask("GET", f"projects/{api.project}").get("quotas", [])
    both = _fits(whole, "GPUS_ALL_REGIONS", cluster.num_gpus)
    if both is None:
        return own
    return own[0] and both[0], f"{own[1]}; {both[1]}"


def _fits(quotas: list[Document], metric: str, needed: int) -> Look | None:
    for quota in quotas:
        if quota.get("metric") == metric:
            limit, used = float(quota["limit"]), float(quota.get("usage", 0))
            return (
                used + needed <= limit,
                f"{needed} GPUs needed, {used:.0f} in use, of {limit:.0f} ({metric})",
            )
    return None


def _image(api: Api, image: str) -> Look:
    found = api.compute.found(image)
    if found is None:
        return False, f"{image} is not there, or not for this project"
    state = str(found.get("status", "READY"))
    return state == "READY", f"{found.get('name', image)}: {state}"


# ---------------------------------------------------------------------------------------------- network


def _wanted_subnets(order: Order, cluster: Cluster, project: str) -> list[str]:
    """Every subnet that a machine of the document has an interface in, the host's own first."""
    choices = order.choices.model_copy(update={"project": project})
    document = emit.documents(cluster, choices, "gcp")["cluster.yaml"]
    named = [
        str(interface["subnetwork"])
        for config in check.node_configs(document).values()
        for interface in cast(list[dict[str, Any]], config["networkInterfaces"])
    ]
    return list(dict.fromkeys(named))


def _subnets(api: Api, order: Order, cluster: Cluster) -> Look:
    wanted = _wanted_subnets(order, cluster, api.project)
    missing = [s.rpartition("/")[2] for s in wanted if api.compute.found(s) is None]
    if missing:
        return False, f"no subnet {', '.join(missing)} in {cluster.region}"
    return True, f"{', '.join(s.rpartition('/')[2] for s in wanted)} in {cluster.region}"


def _ssh(api: Api, order: Order, cluster: Cluster) -> Look:
    """Port 22 is open to the caller, everything among our machines, and nothing to everyone."""
    if order.choices.ssh_from is None:
        return False, "who may reach port 22 was not said"
    mine = ipaddress.ip_network(checked_range(order.choices.ssh_from))
    subnet = api.compute.found(_wanted_subnets(order, cluster, api.project)[0])
    if subnet is None:
        return False, "unknown: the subnet is not there"
    rules = [rule for rule in api.listed(api.path("global/firewalls")) if _applies(rule, subnet["network"])]
    open_to_all = [str(r["name"]) for r in rules if set(r.get("sourceRanges", ())) & set(_ANYONE)]
    if open_to_all:
        return False, f"open to everyone by {', '.join(open_to_all)}"
    if not any(_lets(rule, 22) and _within(mine, rule) for rule in rules):
        return False, f"no firewall rule lets {mine} reach port 22"
    inside = ipaddress.ip_network(subnet["ipCidrRange"])
    several = cluster.num_workers > 0
    if several and not any(_lets(r, None) and (_from_ours(r) or _within(inside, r)) for r in rules):
        return False, "no firewall rule lets the machines talk to each other on every port"
    return True, f"port 22 from {mine} alone"


def _applies(rule: Document, network: str) -> bool:
    """Whether a rule lets something in to our machines of a network; ``icmp`` opens no port."""
    targets = rule.get("targetTags", [])
    return (
        str(rule.get("network", "")).endswith("/" + network.rpartition("/")[2])
        and rule.get("direction", "INGRESS") == "INGRESS"
        and not rule.get("disabled")
        and not rule.get("targetServiceAccounts")
        and (not targets or NETWORK_TAG in targets)
        and any(a["IPProtocol"] != "icmp" for a in rule.get("allowed", ()))
    )


def _lets(rule: Document, port: int | None) -> bool:
    """Whether a rule opens a port of TCP; ``None``: all of them."""
    for allowed in rule.get("allowed", ()):
        if allowed["IPProtocol"] not in ("tcp", "all", "6"):
            continue
        ports = allowed.get("ports")
        if not ports or any(_covers(text, port) for text in ports):
            return True
    return False


def _covers(text: str, port: int | None) -> bool:
    low, _, high = text.partition("-")
    first, last = int(low), int(high or low)
    return (first <= 1 and last >= 65535) if port is None else first <= port <= last


def _within(inner: ipaddress.IPv4Network | ipaddress.IPv6Network, rule: Document) -> bool:
    """Whether one range of a rule holds all of a network."""
    outer = (ipaddress.ip_network(text) for text in rule.get("sourceRanges", ()))
    return any(
        o.version == inner.version and int(o.network_address) <= int(inner.network_address)
        and int(o.broadcast_address) >= int(inner.broadcast_address)
        for o in outer
    )  # fmt: skip


def _from_ours(rule: Document) -> bool:
    return NETWORK_TAG in rule.get("sourceTags", ())


# ---------------------------------------------------------------------------------------------- rights


def _head_account(api: Api) -> Look:
    email = f"{_HEAD_ACCOUNT}@{api.project}.iam.gserviceaccount.com"
    path = f"projects/{api.project}/serviceAccounts/{email}"
    if api.iam.found(path) is None:
        return False, f"no service account {email}"
    may = _ACT_AS[0] in api.allowed(api.iam, path, _ACT_AS)
    return may, f"{email}: {'may' if may else 'not allowed to'} be given to the head"


def _permissions(api: Api) -> Look:
    wanted = (*_OURS, *_RAYS)
    has = api.allowed(api.projects, f"projects/{api.project}", wanted)
    lacking = [name for name in wanted if name not in has]
    return (
        not lacking,
        f"not allowed: {', '.join(lacking)}" if lacking else f"all {len(wanted)} that are needed",
    )


def _none_there(api: Api, order: Order, cluster: Cluster) -> Look:
    """Nothing of this launch, nor a machine of another one of the same plan."""
    found = [f"{r.kind} {r.id}" for r in gcp_found.everything(api, order.launch_id)]
    found += list(_machines_of_plan(api, cluster))
    return not found, ", ".join(dict.fromkeys(found)) if found else "nothing of this launch or plan"


def _machines_of_plan(api: Api, cluster: Cluster) -> Iterator[str]:
    for zone, one in api.everywhere("instances", f"labels.plan-id = {cluster.plan_id}"):
        yield f"instance {one['name']} of {cluster.plan_id} in {zone}"


def choices_for(order: Order, project: str) -> Choices:
    """Choices of an order: its place decides the zone, its launch the labels, the account the project."""
    return order.choices.model_copy(
        update={
            "zone": order.place.zone or order.choices.zone,
            "launch_id": order.launch_id,
            "project": project,
        }
    )
