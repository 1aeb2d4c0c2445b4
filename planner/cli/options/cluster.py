"""Options of ``plan cluster``, once each."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli import complete
from planner.cli.options import PLAN_HELP, Text

PlanId = Annotated[
    str,
    typer.Argument(metavar="PLAN", autocompletion=complete.plan_ids, help=PLAN_HELP),
]
OutDir = Annotated[
    Text, typer.Option("--out", metavar="DIR", help="Where to write; .plan/PLAN if not given.")
]
Format = Annotated[
    Text,
    typer.Option(
        "--format", metavar="NAME", help="aws, gcp, azure, local or kuberay; the provider's own if not given."
    ),
]
CpuHead = Annotated[
    bool, typer.Option("--cpu-head", help="Head on a small machine without GPU, not on the first GPU node.")
]
Iam = Annotated[
    bool, typer.Option("--iam", help="Print the rights that the machines need, and write nothing.")
]
Prepare = Annotated[
    bool,
    typer.Option(
        "--prepare", help="AWS: make security group, placement group and roles (free), with your credentials."
    ),
]
SshFrom = Annotated[
    Text,
    typer.Option("--ssh-from", metavar="CIDR", help="The one address range that may reach port 22."),
]
SessionManager = Annotated[
    bool, typer.Option("--session-manager", help="AWS: no open port and no public address at all.")
]
Zone = Annotated[Text, typer.Option("--zone", metavar="NAME", help="The one zone of all machines.")]
Subnet = Annotated[Text, typer.Option("--subnet", metavar="ID", help="The one subnet of all machines.")]
SecurityGroup = Annotated[
    Text, typer.Option("--security-group", metavar="ID", help="AWS: a security group of yours.")
]
MaxSpotPrice = Annotated[
    Text, typer.Option("--max-spot-price", metavar="USD", help="Most that one spot node may cost in an hour.")
]
Reservation = Annotated[
    Text, typer.Option("--reservation", metavar="ID", help="A capacity reservation or capacity block.")
]
Image = Annotated[Text, typer.Option("--image", metavar="NAME", help="A machine image of yours.")]
Project = Annotated[Text, typer.Option("--project", metavar="ID", help="Google Cloud project.")]
Subscription = Annotated[Text, typer.Option("--subscription", metavar="ID", help="Azure subscription.")]
Hosts = Annotated[
    Text, typer.Option("--hosts", metavar="A,B,...", help="Hosts of a local cluster; the first is the head.")
]
SshUser = Annotated[Text, typer.Option("--ssh-user", metavar="NAME", help="User on the hosts (ubuntu).")]
SshKey = Annotated[Text, typer.Option("--ssh-key", metavar="FILE", help="Your private key for the hosts.")]
Preinstalled = Annotated[
    bool, typer.Option("--preinstalled", help="Hosts have Ray and torch: check the version, install nothing.")
]
Kubeconfig = Annotated[
    Text, typer.Option("--kubeconfig", metavar="FILE", help="Kubernetes: kubeconfig in place of your own.")
]
KubeContext = Annotated[Text, typer.Option("--kube-context", metavar="NAME", help="Kubernetes: context.")]
Namespace = Annotated[
    Text, typer.Option("--namespace", metavar="NAME", help="Kubernetes: namespace (default).")
]
NodeSelector = Annotated[
    Text,
    typer.Option("--node-selector", metavar="KEY=VALUE,...", help="Kubernetes: nodes that may be used."),
]
Storage = Annotated[
    Text, typer.Option("--storage", metavar="PATH", help="Where checkpoints go: s3://..., gs://..., a path.")
]
Deadline = Annotated[
    Text,
    typer.Option(
        "--deadline",
        metavar="48h",
        help="When the machines end themselves; after the plan's time if not given.",
    ),
]
Owner = Annotated[Text, typer.Option("--owner", metavar="NAME", help="Owner in the tags; your login name.")]
TrainConfig = Annotated[
    Text,
    typer.Option(
        "--train-config",
        metavar="NAME",
        help="Write the layout for torchtitan, deepspeed or accelerate too.",
    ),
]
