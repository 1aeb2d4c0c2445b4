"""Hosts that exist already, over SSH: own machines, and rented ones that Ray cannot start itself."""

from __future__ import annotations

from clusters.config import ray_yaml
from clusters.config.choices import Choices
from clusters.config.commands import commands
from clusters.config.nodes import Cluster
from clusters.config.ray_yaml import Document
from planner.errors import UserError


def document(cluster: Cluster, choices: Choices) -> Document:
    """Return the Ray cluster document of a plan on given hosts: the first is the head.

    Raises:
        UserError: if hosts and the plan's nodes differ in number, or a host is named twice.

    """
    hosts, wanted = choices.hosts, cluster.num_workers + 1
    if len(hosts) != wanted or len(set(hosts)) != wanted:
        head = "a head without GPU and " if cluster.separate_head else ""
        raise UserError(
            f"--hosts names {len(set(hosts))} hosts; {cluster.plan_id} needs {wanted} ({head}"
            f"{cluster.num_nodes} × {cluster.gpus_per_node} {cluster.gpu.id})",
            f"plan cluster {cluster.plan_id} --hosts {','.join(f'10.0.0.{i + 2}' for i in range(wanted))}",
        )
    run = commands(cluster, choices, "local")
    return {
        "cluster_name": cluster.name,
        "min_workers": cluster.num_workers,
        "max_workers": cluster.num_workers,
        "idle_timeout_minutes": choices.idle_minutes,
        "provider": {"type": "local", "head_ip": hosts[0], "worker_ips": list(hosts[1:])},
        "auth": {"ssh_user": choices.ssh_user, "ssh_private_key": choices.ssh_key},
        **ray_yaml.shared(choices, run),
        "metadata": ray_yaml.metadata(cluster, choices),
    }
