"""``README.txt`` of a cluster: how to use it by hand, what it creates and costs, how to delete it."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

import jinja2

from clusters.config import aws, aws_network, azure, gcp, versions
from clusters.config.choices import MOST_DISK_GIB, NODE_PROVIDERS, Choices, Format
from clusters.config.nodes import Cluster
from planner import units
from planner.cost.tables import rate

_HOURS_IN_MONTH = Decimal(730)


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("clusters.config", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def text(cluster: Cluster, choices: Choices, kind: Format) -> str:
    """Return the text of a format."""
    direct = gcp.gpudirect(cluster) if kind == "gcp" else None
    return (
        _templates()
        .get_template(f"{kind}.txt.j2")
        .render(
            c=cluster,
            o=choices,
            software=versions.software(),
            deadline=choices.deadline_utc(),
            prices=_prices(cluster, choices, kind),
            warnings=warnings(cluster, choices, kind),
            direct=direct,
            zone=gcp.zone_of(cluster) if kind == "gcp" else cluster.zone,
            placement_group=kind == "aws" and aws.uses_placement_group(cluster),
            flags=flags(choices),
            fill_in=kind == "aws" and not (choices.subnet and choices.security_group),
            proxy=kind == "aws" and aws.workers_need_proxy(cluster, choices),
            head_profile=aws.profile(cluster, choices, head=True),
            node_profile=(
                aws.profile(cluster, choices, head=False) if aws.needs_storage_profile(choices) else None
            ),
        )
    )


def flags(choices: Choices) -> str:
    """Options of ``plan cluster`` that gave these choices, so that a second call writes the same cluster."""
    said = [
        "--cpu-head" if choices.cpu_head else "",
        "--session-manager" if choices.session_manager else "",
        f"--zone {choices.zone}" if choices.zone else "",
        f"--subnet {choices.subnet}" if choices.subnet else "",
        f"--reservation {choices.reservation}" if choices.reservation else "",
        f"--storage {choices.storage}" if choices.storage else "",
        f"--deadline {choices.seconds_left()}s",
    ]
    return " ".join(filter(None, said))


def _prices(cluster: Cluster, choices: Choices, kind: Format) -> list[str]:
    """Lines of cost: each thing that is paid by the hour; what has no price is named and not summed."""
    if kind == "kuberay":
        return ["pods are not priced here: your cluster's nodes are"]
    node = units.usd_per_hour(cluster.node_usd_per_hour)
    lines = [f"{cluster.num_nodes} × {cluster.instance_type} ({cluster.market}): {node} each"]
    if cluster.head_type:
        lines.append(f"1 × {cluster.head_type} (head): {units.usd_per_hour(cluster.head_usd_per_hour)}")
    if kind in NODE_PROVIDERS:
        lines += _extras(cluster, choices, kind)
    if cluster.usd_per_hour is not None:
        hours = Decimal(choices.seconds_left()) / 3600
        known = f"machines together: {units.usd_per_hour(cluster.usd_per_hour)}"
        until = f"{known}, {units.usd(cluster.usd_per_hour * hours)} until the deadline"
        cap = aws.spot_cap(cluster, choices) if kind == "aws" and cluster.market == "spot" else None
        if cap is not None:  # the price of a spot node moves up to what the request allows
            head = cluster.head_usd_per_hour or Decimal(0)
            most = (cap * cluster.num_nodes + head) * hours
            until = f"{until}, {units.usd(most)} at the highest spot price asked for"
        lines.append(until)
    lines.append("not counted: traffic, storage of checkpoints, and whatever you add")
    return lines


def _extras(cluster: Cluster, choices: Choices, kind: Format) -> list[str]:
    """Disks, and addresses where machines have public ones, at the rates that the plan's cost counts."""
    machines = cluster.num_workers + 1
    disk = rate("disk", kind)
    each = None if disk is None else disk.usd * choices.disk_gib * machines / _HOURS_IN_MONTH
    lines = [
        f"{units.counted(machines, 'disk')} of {choices.disk_gib} GiB: {units.usd_per_hour(each)} together"
    ]
    if kind != "aws":
        return lines
    address = rate("address", kind)
    public = 0 if choices.session_manager else 1 if aws.workers_need_proxy(cluster, choices) else machines
    if public and address is not None:
        lines.append(f"{public} public IPv4 addresses: {units.usd_per_hour(address.usd * public)} together")
    return lines


def warnings(cluster: Cluster, choices: Choices, kind: Format) -> list[str]:
    """What the user must know before starting: each is a limit that we could not remove."""
    found = list(versions.warnings_for(cluster.gpu.id))
    several = cluster.num_nodes > 1
    if kind == "aws" and several and not aws_network.known(cluster.instance_type):
        found.append(f"network cards of {cluster.instance_type} are not known here: no EFA is asked for")
    if kind == "azure":
        found.append("not tried on Azure itself: checked against Ray's schema and its template only")
        if several and azure.has_infiniband(cluster):
            found.append(
                "InfiniBand joins only machines of one scale set; Ray's Azure provider makes single machines,"
                " so nodes would talk over Ethernet. Make a scale set yourself and use --format local"
            )
    if kind == "gcp":
        found.append(
            "not tried on Google Cloud itself: checked against Ray's schema and Google's discovery document"
        )
    if kind in NODE_PROVIDERS and choices.disk_gib == MOST_DISK_GIB:
        found.append("the data does not fit on disks of that size: read it from storage while training")
    if kind == "local":
        found.append(
            "nothing here ends or deletes the hosts: they are yours. Rented ones bill until you delete them"
        )
    if several and choices.storage is None:
        found.append("several nodes need a storage path that all of them see: --storage s3://BUCKET/PREFIX")
    return found
