"""Commands about launches: ``launch``, ``down``, ``adopt``, ``extend``, ``doctor``, ``logs`` and the like."""

from __future__ import annotations

import typer

from planner.cli import options as o
from planner.cli.app import app, run_module
from planner.cli.options import cluster as c
from planner.cli.options import launch as la


@app.command()
def launch(
    context: typer.Context,
    plan: la.PlanId = None,
    budget: la.Budget = None,
    then: la.Then = None,
    working_dir: la.WorkingDir = None,
    keep: la.Keep = False,
    yes: la.Yes = False,
    accept_price: la.AcceptPrice = False,
    next_on_fail: la.NextOnFail = False,
    expire: la.Expire = None,
    resume: la.Resume = None,
    provider: la.Provider = None,
    project: la.Project = None,
    hosts: c.Hosts = None,
    ssh_user: c.SshUser = None,
    ssh_key: c.SshKey = None,
    preinstalled: c.Preinstalled = False,
    cpu_head: c.CpuHead = False,
    ssh_from: c.SshFrom = None,
    session_manager: c.SessionManager = False,
    zone: c.Zone = None,
    subnet: c.Subnet = None,
    security_group: c.SecurityGroup = None,
    max_spot_price: c.MaxSpotPrice = None,
    reservation: c.Reservation = None,
    reservation_usd: la.ReservationUsd = None,
    image: c.Image = None,
    gcp_project: la.GcpProject = None,
    subscription: c.Subscription = None,
    kubeconfig: c.Kubeconfig = None,
    kube_context: c.KubeContext = None,
    namespace: c.Namespace = None,
    node_selector: c.NodeSelector = None,
    storage: c.Storage = None,
    owner: c.Owner = None,
    create_timeout: la.CreateTimeout = None,
    probe_timeout: o.ProbeTimeout = None,
    no_calibration: o.NoCalibration = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Start a plan's cluster, prove it with a probe, then run, or tear everything down."""
    run_module("launch.run", context)


@app.command()
def down(
    context: typer.Context,
    launch: la.MaybeLaunchId = None,
    all: la.Everything = False,
    orphans: la.DownOrphans = False,
    region: la.Regions = None,
    yes: la.Yes = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Delete everything of a launch and look until it is gone; safe to repeat."""
    run_module("launch.down", context)


@app.command()
def adopt(
    context: typer.Context, launch: la.OrphanId, region: la.Regions = None, json: o.Json = False
) -> None:
    """Take over a launch that only its cloud knows, so that ls, down and report see it."""
    run_module("launch.adopt", context)


@app.command()
def extend(context: typer.Context, launch: la.LaunchId, longer: la.Longer, json: o.Json = False) -> None:
    """Let the machines of a launch live longer."""
    run_module("launch.extend", context)


@app.command()
def doctor(
    context: typer.Context,
    plan: la.PlanId = None,
    budget: la.Budget = None,
    provider: la.Provider = None,
    hosts: c.Hosts = None,
    ssh_user: c.SshUser = None,
    ssh_key: c.SshKey = None,
    preinstalled: c.Preinstalled = False,
    cpu_head: c.CpuHead = False,
    ssh_from: c.SshFrom = None,
    session_manager: c.SessionManager = False,
    zone: c.Zone = None,
    subnet: c.Subnet = None,
    security_group: c.SecurityGroup = None,
    max_spot_price: c.MaxSpotPrice = None,
    reservation: c.Reservation = None,
    reservation_usd: la.ReservationUsd = None,
    image: c.Image = None,
    gcp_project: la.GcpProject = None,
    subscription: c.Subscription = None,
    kubeconfig: c.Kubeconfig = None,
    kube_context: c.KubeContext = None,
    namespace: c.Namespace = None,
    node_selector: c.NodeSelector = None,
    storage: c.Storage = None,
    owner: c.Owner = None,
    json: o.Json = False,
) -> None:
    """Look at everything that a launch needs, and start nothing: rights, quota, image, price, budget."""
    run_module("launch.doctor", context)


@app.command()
def logs(context: typer.Context, launch: la.LaunchId, follow: la.Follow = False) -> None:
    """Print the log of a launch's full run; with -f until it ends, and its exit code becomes ours."""
    run_module("launch.logs", context)


@app.command()
def ssh(context: typer.Context, launch: la.LaunchId) -> None:
    """Open a shell on the head of a launch."""
    run_module("launch.ssh", context)


@app.command()
def dashboard(context: typer.Context, launch: la.LaunchId) -> None:
    """Open a way to Ray's dashboard of a launch, until Ctrl-C."""
    run_module("launch.dashboard", context)
