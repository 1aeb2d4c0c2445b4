"""Azure: a Ray cluster document with nodes on private addresses.

Ray's template writes a security group that lets the whole internet reach port 22
(``ray/autoscaler/_private/_azure/azure-config-template.json``), so no node gets a public
address: ``ray up`` is run from inside the virtual network. The template passes no user data either, so
the deadline is set over SSH as the first command, and deletes the whole resource group of the plan.
"""

from __future__ import annotations

import shlex

from clusters.config import guards, ray_yaml, versions
from clusters.config.choices import Choices
from clusters.config.commands import Commands, commands, infiniband_env
from clusters.config.nodes import Cluster
from clusters.config.ray_yaml import Document
from planner.errors import UserError

_END_FILE = "/usr/local/sbin/plan-end"
_TOKEN_URL = (
    "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
    "&resource=https%3A%2F%2Fmanagement.azure.com%2F"
)
_DELETE = """\
s=$(curl -s -H Metadata:true "http://169.254.169.254/metadata/instance/compute/subscriptionId?api-version=2021-02-01&format=text")
t=$(curl -s -H Metadata:true "{token}" | sed "s/.*access_token.:.\\([^\\"]*\\).*/\\1/")
curl -s -X DELETE -H "Authorization: Bearer $t" "https://management.azure.com/subscriptions/$s/resourceGroups/{group}?api-version=2021-04-01"
shutdown -P +5
"""


def document(cluster: Cluster, choices: Choices) -> Document:
    """Return the Ray cluster document of a plan on Azure."""
    env = infiniband_env() if cluster.num_nodes > 1 and has_infiniband(cluster) else ""
    run = commands(cluster, choices, "azure", env)
    gpu_config = _node_config(cluster, choices, gpu_node=True)
    head_config = _node_config(cluster, choices, gpu_node=False) if cluster.separate_head else gpu_config
    subscription: Document = {"subscription_id": choices.subscription} if choices.subscription else {}
    return ray_yaml.document(
        cluster,
        choices,
        {
            "type": "azure",
            "location": cluster.region,
            "resource_group": cluster.name,
            **subscription,
            "availability_zone": cluster.zone or "none",
            "cache_stopped_nodes": False,
            "use_internal_ips": True,
            "tags": guards.tags(cluster, choices),
        },
        _auth(choices),
        ray_yaml.node_types(cluster, head_config, gpu_config),
        Commands(
            initialization=(guard_command(cluster, choices), *run.initialization),
            setup=run.setup,
            head_setup=run.head_setup,
            worker_setup=run.worker_setup,
            head_start=run.head_start,
            worker_start=run.worker_start,
        ),
    )


def has_infiniband(cluster: Cluster) -> bool:
    """Say whether a size has InfiniBand: the ``r`` of ND sizes ("RDMA capable" in Azure's naming)."""
    size = cluster.instance_type.removeprefix("Standard_")
    return size.startswith("ND") and "r" in size.split("_")[0].lower().removeprefix("nd")


def guard_command(cluster: Cluster, choices: Choices) -> str:
    """Return the first command on each node: starts the guards once, as root."""
    end = _DELETE.format(token=_TOKEN_URL, group=cluster.name)
    script = f"cat > {_END_FILE} <<'END'\n#!/bin/bash\n{end}END\nchmod +x {_END_FILE}\n"
    script += guards.guard_script(choices, end=_END_FILE)
    return f"sudo /bin/bash -c {shlex.quote(script)}"


def _auth(choices: Choices) -> Document:
    if choices.ssh_public_key is None:
        return {"ssh_user": "ubuntu"}
    return {
        "ssh_user": "ubuntu",
        "ssh_private_key": choices.ssh_key,
        "ssh_public_key": f"{choices.ssh_key}.pub",
    }


def _node_config(cluster: Cluster, choices: Choices, gpu_node: bool) -> Document:
    """Parameters of Ray's ARM template for one kind of machine."""
    image = versions.image("azure", cluster.gpu if gpu_node else None)
    publisher, offer, sku, version = urn(choices.image or image.parameter)
    parameters: Document = {
        "vmSize": cluster.instance_type if gpu_node else cluster.head_type,
        "imagePublisher": publisher,
        "imageOffer": offer,
        "imageSku": sku,
        "imageVersion": version,
        "osDiskSize": choices.disk_gib,
        "enableAcceleratedNetworking": True,
    }
    if gpu_node and cluster.market == "spot":
        cap = choices.spot_cap_usd_per_hour
        parameters |= {
            "priority": "Spot",
            "evictionPolicy": "Delete",
            "billingProfile": {"maxPrice": -1 if cap is None else float(cap)},
        }
    return {"azure_arm_parameters": parameters}


def urn(text: str) -> tuple[str, str, str, str]:
    """Split ``publisher:offer:sku:version``."""
    parts = text.split(":")
    if len(parts) != 4:
        raise UserError(
            f"--image {text!r:.60}: Azure images are publisher:offer:sku:version",
            "--image microsoft-dsvm:ubuntu-hpc:2404:latest",
        )
    return parts[0], parts[1], parts[2], parts[3]
