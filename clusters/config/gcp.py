"""Google Cloud: a Ray cluster document. Compute Engine itself deletes the machines at the deadline.

Ray makes a service account with wide rights at each start and gives it to the head, unless the node's
own ``serviceAccounts`` say otherwise (``ray/autoscaler/_private/gcp/config.py``): here they do.
"""

from __future__ import annotations

import csv
from datetime import timedelta
from functools import lru_cache
from importlib.resources import files

from clusters.config import guards, ray_yaml, versions
from clusters.config.choices import Choices
from clusters.config.commands import commands, script_env
from clusters.config.nodes import Cluster
from clusters.config.ray_yaml import Document
from planner.types import Record

FILL_PROJECT, NETWORK = "fill-in-project", "plan"
_NETWORK_FILE = "data/gcp_network.csv"
_OWN_TIMER_AFTER = timedelta(minutes=5)


class Gpudirect(Record):
    """Interfaces of a machine type with GPUDirect: gVNICs (the first is the host's own) and RDMA ones."""

    kind: str
    num_nics: int
    num_rdma_nics: int
    env_script: str


@lru_cache(maxsize=1)
def _gpudirect() -> dict[str, Gpudirect]:
    text = files("clusters.config").joinpath(_NETWORK_FILE).read_text(encoding="utf-8")
    return {
        row["prefix"]: Gpudirect(
            kind=row["gpudirect"],
            num_nics=int(row["num_nics"]),
            num_rdma_nics=int(row["num_rdma_nics"]),
            env_script=row["env_script"],
        )
        for row in csv.DictReader(text.splitlines())
    }


def gpudirect(cluster: Cluster) -> Gpudirect | None:
    """GPUDirect of a cluster: only where several nodes talk to each other and the type has it."""
    return _gpudirect().get(cluster.instance_type) if cluster.num_nodes > 1 else None


def document(cluster: Cluster, choices: Choices) -> Document:
    """Return the Ray cluster document of a plan on Google Cloud."""
    direct = gpudirect(cluster)
    run = commands(cluster, choices, "gcp", script_env(direct.env_script) if direct else "")
    gpu_head = _node_config(cluster, choices, gpu_node=True, head=True)
    return ray_yaml.document(
        cluster,
        choices,
        {
            "type": "gcp",
            "region": cluster.region,
            "availability_zone": zone_of(cluster),
            "project_id": choices.project or FILL_PROJECT,
            "cache_stopped_nodes": False,
        },
        _auth(choices),
        ray_yaml.node_types(
            cluster,
            _node_config(cluster, choices, gpu_node=False, head=True) if cluster.separate_head else gpu_head,
            _node_config(cluster, choices, gpu_node=True, head=False),
        ),
        run,
    )


def zone_of(cluster: Cluster) -> str:
    """One zone: the plan's or the user's, else the region's ``-b``, to be looked up before use."""
    return cluster.zone or f"{cluster.region}-b"


def _auth(choices: Choices) -> Document:
    key: Document = {"ssh_private_key": choices.ssh_key} if choices.ssh_public_key else {}
    return {"ssh_user": "ubuntu", **key}


def _node_config(cluster: Cluster, choices: Choices, gpu_node: bool, head: bool) -> Document:
    """Body of ``instances.insert`` for one kind of machine."""
    image = versions.image("gcp", cluster.gpu if gpu_node else None)
    config: Document = {
        "machineType": cluster.instance_type if gpu_node else cluster.head_type,
        "disks": [_disk(choices.image or image.parameter, choices.disk_gib, cluster, choices)],
        "networkInterfaces": _interfaces(cluster, choices, gpu_node, head),
        "scheduling": _scheduling(cluster, choices, gpu_node),
        "labels": guards.label_tags(cluster, choices),
        "tags": {"items": ["plan"]},
        "metadata": {"items": _metadata(choices)},
        "shieldedInstanceConfig": {"enableVtpm": True, "enableIntegrityMonitoring": True},
        # an empty list is what keeps a machine without credentials of the project
        "serviceAccounts": _service_accounts(choices, head),
    }
    if gpu_node and choices.reservation:
        config["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [choices.reservation],
        }
    return config


def _disk(image: str, gib: int, cluster: Cluster, choices: Choices) -> Document:
    start = {"sourceImage": image, "diskSizeGb": gib, "labels": guards.label_tags(cluster, choices)}
    return {"boot": True, "autoDelete": True, "type": "PERSISTENT", "initializeParams": start}


def _interfaces(cluster: Cluster, choices: Choices, gpu_node: bool, head: bool) -> list[Document]:
    """Return the host's own interface; GPU nodes with GPUDirect have one more for each network of theirs."""
    region = f"projects/{choices.project or FILL_PROJECT}/regions/{cluster.region}/subnetworks/"
    own: Document = {"subnetwork": region + (choices.subnet or NETWORK), "nicType": "GVNIC"}
    # every machine needs a way out for its setup; the firewall of the network lets nobody but the caller in
    own["accessConfigs"] = [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]
    direct = gpudirect(cluster) if gpu_node else None
    if direct is None:
        return [own]
    more: list[Document] = [
        {"subnetwork": f"{region}{NETWORK}-gpu-{i}", "nicType": "GVNIC"} for i in range(direct.num_nics - 1)
    ]
    rdma: list[Document] = [
        {"subnetwork": f"{region}{NETWORK}-rdma-{i}", "nicType": "MRDMA"} for i in range(direct.num_rdma_nics)
    ]
    return [own, *more, *rdma]


def _scheduling(cluster: Cluster, choices: Choices, gpu_node: bool) -> Document:
    """How a machine is bought, and when it is deleted."""
    spot = gpu_node and cluster.market == "spot"
    return {
        "provisioningModel": "SPOT" if spot else "STANDARD",
        "instanceTerminationAction": "DELETE",
        "terminationTime": choices.deadline_utc(),
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
    }


def _metadata(choices: Choices) -> list[Document]:
    # a machine that has stopped itself is not deleted any more: its own timer comes after Compute Engine's
    later = choices.model_copy(update={"deadline": choices.deadline + _OWN_TIMER_AFTER})
    items: list[Document] = [
        {"key": "user-data", "value": guards.cloud_init(later)},
        {"key": "block-project-ssh-keys", "value": "TRUE" if choices.ssh_public_key else "FALSE"},
    ]
    if choices.ssh_public_key:
        items.append({"key": "ssh-keys", "value": f"ubuntu:{choices.ssh_public_key}"})
    return items


def _service_accounts(choices: Choices, head: bool) -> list[Document]:
    if not head:
        return []
    email = f"plan-head@{choices.project or FILL_PROJECT}.iam.gserviceaccount.com"
    return [{"email": email, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}]
