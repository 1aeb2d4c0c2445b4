"""Commands that make a plan into a cluster: ``cluster``."""

from __future__ import annotations

import typer

from planner.cli.app import app, run_module
from planner.cli.options import cluster as c


@app.command()
def cluster(
    context: typer.Context,
    plan: c.PlanId,
    out: c.OutDir = None,
    format: c.Format = None,  # the option's name
    cpu_head: c.CpuHead = False,
    iam: c.Iam = False,
    prepare: c.Prepare = False,
    ssh_from: c.SshFrom = None,
    session_manager: c.SessionManager = False,
    zone: c.Zone = None,
    subnet: c.Subnet = None,
    security_group: c.SecurityGroup = None,
    max_spot_price: c.MaxSpotPrice = None,
    reservation: c.Reservation = None,
    image: c.Image = None,
    project: c.Project = None,
    subscription: c.Subscription = None,
    hosts: c.Hosts = None,
    ssh_user: c.SshUser = None,
    ssh_key: c.SshKey = None,
    preinstalled: c.Preinstalled = False,
    kubeconfig: c.Kubeconfig = None,
    kube_context: c.KubeContext = None,
    namespace: c.Namespace = None,
    node_selector: c.NodeSelector = None,
    storage: c.Storage = None,
    deadline: c.Deadline = None,
    owner: c.Owner = None,
    train_config: c.TrainConfig = None,
) -> None:
    """Write the Ray cluster files of a plan: checked, tagged, least rights, ending by themselves."""
    run_module("cluster", context)
