"""The parts that all Ray cluster documents share."""

from __future__ import annotations

from clusters.config import versions
from clusters.config.choices import Choices
from clusters.config.commands import Commands
from clusters.config.nodes import Cluster

Document = dict[str, object]


def metadata(cluster: Cluster, choices: Choices) -> Document:
    """Return what the cluster is for: Ray keeps ``metadata`` and does not look into it."""
    pinned, price = versions.software(), cluster.usd_per_hour
    return {
        "plan_id": cluster.plan_id,
        "launch_id": choices.launch_id,
        "owner": choices.owner,
        "deadline": choices.deadline_utc(),
        "num_gpus": cluster.num_gpus,
        "num_nodes": cluster.num_nodes,
        "gpu": cluster.gpu.id,
        "market": cluster.market,
        "usd_per_hour": None if price is None else str(price),
        "python": pinned.python,
        "ray": pinned.ray,
        "torch": pinned.torch,
    }


def node_types(cluster: Cluster, head_config: Document, gpu_config: Document) -> Document:
    """Return node types of fixed size: ``head``, and ``workers`` where there are any."""
    head: Document = {
        "min_workers": 0,
        "max_workers": 0,
        "resources": cluster.head_resources(),
        "node_config": head_config,
    }
    if not cluster.num_workers:
        return {"head": head}
    workers: Document = {
        "min_workers": cluster.num_workers,
        "max_workers": cluster.num_workers,
        "resources": cluster.resources(),
        "node_config": gpu_config,
    }
    return {"head": head, "workers": workers}


def document(
    cluster: Cluster,
    choices: Choices,
    provider: Document,
    auth: Document,
    types: Document,
    run: Commands,
) -> Document:
    """Put a Ray cluster document together; all commands are written, for Ray's own install nightlies."""
    return {
        "cluster_name": cluster.name,
        "max_workers": cluster.num_workers,
        "idle_timeout_minutes": choices.idle_minutes,
        "provider": provider,
        "auth": auth,
        "head_node_type": "head",
        "available_node_types": types,
        **shared(choices, run),
        "metadata": metadata(cluster, choices),
    }


def shared(choices: Choices, run: Commands) -> Document:
    """Return files and commands. The token is a file on both sides: the document holds only its path."""
    return {
        "file_mounts": {"~/.ray/auth_token": choices.auth_token},
        "initialization_commands": list(run.initialization),
        "setup_commands": list(run.setup),
        "head_setup_commands": list(run.head_setup),
        "worker_setup_commands": list(run.worker_setup),
        "head_start_ray_commands": list(run.head_start),
        "worker_start_ray_commands": list(run.worker_start),
    }
