"""``plan cluster``: a plan as the files of a Ray cluster, checked before anyone runs them."""

from __future__ import annotations

import getpass
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import typer

from clusters.config import emit as emission
from clusters.config import iam
from clusters.config.aws_ground import checked_range, prepare
from clusters.config.choices import MOST_DISK_GIB, Choices, Format, format_of
from clusters.config.nodes import cluster_of
from clusters.config.trainers import train_config
from planner import units
from planner.cli import store
from planner.cli.launch.inputs import storage
from planner.cli.request import Options
from planner.cost import disk_gib
from planner.errors import MissingCredentialsError, UserError
from planner.results import Plan
from planner.search.candidates import work_of_run

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PAIR = re.compile(r"[A-Za-z0-9][\w./-]{0,300}=[\w.-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}")
_ONLY_FOR: dict[str, tuple[Format, ...]] = {
    "prepare": ("aws",),
    "session_manager": ("aws",),
    "security_group": ("aws",),
    "subnet": ("aws", "gcp"),
    "zone": ("aws", "gcp", "azure"),
    "reservation": ("aws", "gcp"),
    "max_spot_price": ("aws", "azure"),
    "image": ("aws", "gcp", "azure", "kuberay"),
    "project": ("gcp",),
    "subscription": ("azure",),
    "hosts": ("local",),
    "ssh_user": ("local",),
    "preinstalled": ("local",),
    "ssh_key": ("gcp", "azure", "local"),
    "namespace": ("kuberay",),
    "node_selector": ("kuberay",),
}
_NO_RIGHTS = {
    "local": "machines that you have, over SSH",
    "kuberay": "pods of your own cluster; you need rights over RayJobs, pods and secrets in the namespace",
}
_SLOWER_THAN_PLANNED, _START_AND_PROBE_S = 1.2, 3600.0


def run(options: Options) -> int:
    """Write the files and print their paths; with ``--iam`` print the rights only."""
    plan = store.find(options["plan"])
    kind = format_of(plan, options["format"])
    _check_options(options, plan, kind)
    choices = choices_of(options, plan, datetime.now(UTC))
    library = _for_library(options["train_config"], plan)
    if options["iam"]:
        _print_rights(iam.rights(cluster_of(plan, choices, kind), choices, kind), kind)
        return 0
    if options["prepare"]:
        choices = _prepared(plan, choices, kind)
    _write(plan, (*emission.emit(plan, choices, kind), *library), options)
    return 0


def _check_options(options: Options, plan: Plan, kind: Format) -> None:
    """Refuse an option that this format would not heed: nothing that the user says is left out in silence."""
    for name, formats in _ONLY_FOR.items():
        if options.get(name) and kind not in formats:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{flag} is for {', '.join(formats)}; {plan.id} is written for {kind}", _hint(plan, kind)
            )
    if options["max_spot_price"] and plan.candidate.offer.market != "spot":
        raise UserError(f"--max-spot-price: {plan.id} is {plan.candidate.offer.market}", _hint(plan, kind))


def _hint(plan: Plan, kind: str) -> str:
    return f"plan cluster {plan.id}{' --hosts 10.0.0.2' if kind == 'local' else ''}"


def deadline_s(plan: Plan) -> float:
    """Longest that a plan's machines may live, seconds: its slow case, a fifth more, and an hour to start."""
    return plan.candidate.hours.high * 3600 * _SLOWER_THAN_PLANNED + _START_AND_PROBE_S


def choices_of(options: Options, plan: Plan, now: datetime) -> Choices:
    """Read the options; what is not given keeps the default of ``Choices``."""
    wanted = options["deadline"]
    ends_after = deadline_s(plan) if wanted is None else units.parse_duration(wanted, "--deadline")
    cap, key = options["max_spot_price"], options["ssh_key"]
    default = Choices(made=now, deadline=now, owner="-")
    return Choices(
        made=now.replace(microsecond=0),
        deadline=(now + timedelta(seconds=min(ends_after, 3.15e9))).replace(microsecond=0),
        owner=(options["owner"] or getpass.getuser())[:60],
        cpu_head=options["cpu_head"],
        session_manager=options["session_manager"],
        ssh_from=checked_range(options["ssh_from"]) if options["ssh_from"] else None,
        zone=options["zone"],
        subnet=options["subnet"],
        security_group=options["security_group"],
        spot_cap_usd_per_hour=None if cap is None else units.parse_usd(cap, "--max-spot-price"),
        reservation=options["reservation"],
        image=options["image"],
        project=options["project"],
        subscription=options["subscription"],
        hosts=_hosts(options["hosts"]),
        ssh_user=options["ssh_user"] or default.ssh_user,
        ssh_key=key or default.ssh_key,
        ssh_public_key=_public_key(key) if key else None,
        preinstalled=options["preinstalled"],
        disk_gib=_disk_gib(plan),
        storage=storage(options["storage"]),
        kubeconfig=options.get("kubeconfig"),
        kube_context=options.get("kube_context"),
        namespace=_namespace(options.get("namespace")),
        node_selector=_selector(options.get("node_selector") or ""),
    )


def _disk_gib(plan: Plan) -> int:
    """Size of each machine's disk: the one that the plan's cost line counts, at most what a disk may have."""
    work = work_of_run(plan.candidate.run)
    return min(MOST_DISK_GIB, int(disk_gib(work.data_bytes, work.num_nodes)))


def _hosts(text: str | None) -> tuple[str, ...]:
    """Read names or addresses of hosts, separated by commas. An empty list is no wish for other machines."""
    if text is None:
        return ()
    hosts = tuple(h.strip() for h in text.split(",") if h.strip())
    if not hosts:
        raise UserError(f"--hosts: {text!r:.60} names no host", "--hosts 10.0.0.2,10.0.0.3")
    wrong = [h for h in hosts if not _HOST.fullmatch(h)]
    if wrong:
        raise UserError(f"--hosts: {wrong[0]!r:.60} is no host name", "--hosts 10.0.0.2,10.0.0.3")
    return hosts


def _namespace(given: str | None) -> str:
    """Read a namespace of Kubernetes: an RFC 1123 label."""
    if given is not None and not _LABEL.fullmatch(given):
        raise UserError(f"--namespace: {given!r:.60} is no namespace", "--namespace ml")
    return given or "default"


def _selector(text: str) -> tuple[str, ...]:
    """Read labels of nodes, separated by commas."""
    pairs = tuple(p.strip() for p in text.split(",") if p.strip())
    wrong = [p for p in pairs if not _PAIR.fullmatch(p)]
    if wrong:
        raise UserError(
            f"--node-selector: {wrong[0]!r:.60} is not KEY=VALUE",
            "--node-selector nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3",
        )
    return pairs


def _public_key(private_key: str) -> str | None:
    """Read the public half of a key, if it lies beside the private one."""
    try:
        return Path(f"{private_key}.pub").expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _prepared(plan: Plan, choices: Choices, kind: Format) -> Choices:
    """Make what the cluster stands on, and return the choices with its ids."""
    import boto3.session  # type: ignore[import-untyped]
    import botocore.exceptions  # type: ignore[import-untyped]

    cluster = cluster_of(plan, choices, kind)
    try:
        ground = prepare(cluster, choices, boto3.session.Session(region_name=cluster.region))
    except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError):
        raise MissingCredentialsError("no credentials of AWS were found", "aws configure") from None
    except (botocore.exceptions.ClientError, botocore.exceptions.EndpointConnectionError) as error:
        raise UserError(f"AWS refused: {error}", f"plan cluster {plan.id} --iam") from None
    for made in ground.made:
        typer.echo(f"made {made}", err=True)
    return choices.model_copy(update={"subnet": ground.subnet, "security_group": ground.security_group})


def _print_rights(rights: dict[str, list[iam.Document]], kind: Format) -> None:
    """Print documents as JSON; who needs none is said in words, never left an empty list to guess from."""
    without = " and ".join(whose for whose, documents in rights.items() if not documents)
    if not any(rights.values()):
        typer.echo(f"{_NO_RIGHTS[kind]}: head and node need no rights of a cloud")
        return
    typer.echo(json.dumps(rights, indent=2))
    if without:
        typer.echo(f"{without}: no rights are needed", err=True)


def _for_library(name: str | None, plan: Plan) -> tuple[emission.EmittedFile, ...]:
    """Layout in the format of the library that ``--train-config`` names, before anything is written."""
    if name is None:
        return ()
    made = train_config(plan.candidate.run, name)
    return (emission.EmittedFile(name=made.name, text=made.text),)


def _write(plan: Plan, files: tuple[emission.EmittedFile, ...], options: Options) -> None:
    """Write the files of a plan and print their paths."""
    directory = Path(options["out"] or f".plan/{plan.id}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in files:
            (directory / file.name).write_text(file.text, encoding="utf-8")
            typer.echo(str(directory / file.name))
    except OSError as error:
        raise UserError(f"--out {directory}: {error.strerror}", f"plan cluster {plan.id} --out DIR") from None
