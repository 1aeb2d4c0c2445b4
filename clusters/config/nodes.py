"""How many machines of which kind: the fixed size of a cluster, from a plan and the user's choices."""

from __future__ import annotations

from decimal import Decimal

from clusters.config import versions
from clusters.config.choices import BY_HAND, Choices, Format
from planner.errors import UserError
from planner.hardware.gpus import gpu
from planner.results import Plan
from planner.types import Gpu, Layout, Market, Record


class Cluster(Record):
    """Machines of a cluster. ``separate_head``: a machine without GPU is the head, all GPU nodes are workers.

    ``vcpus`` of a GPU node are ``None`` where nobody says them. ``usd_per_hour`` of everything, ``None`` if
    the node has no price.
    """

    name: str
    plan_id: str
    provider: str
    instance_type: str
    region: str
    zone: str | None
    market: Market
    gpu: Gpu
    gpus_per_node: int
    num_nodes: int
    vcpus: int | None
    separate_head: bool
    head_type: str | None
    head_vcpus: int | None
    node_usd_per_hour: Decimal | None
    head_usd_per_hour: Decimal | None
    hours: float

    @property
    def num_gpus(self) -> int:
        """GPUs of the whole cluster: the plan's, no more and no less."""
        return self.num_nodes * self.gpus_per_node

    @property
    def num_workers(self) -> int:
        """Ray workers: all GPU nodes but the head."""
        return self.num_nodes if self.separate_head else self.num_nodes - 1

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Price of an hour of all machines, without disks, addresses and traffic."""
        if self.node_usd_per_hour is None:
            return None
        return self.node_usd_per_hour * self.num_nodes + (self.head_usd_per_hour or Decimal(0))

    def resources(self) -> dict[str, int]:
        """Ray resources of one GPU node."""
        cpus = {} if self.vcpus is None else {"CPU": self.vcpus}
        return {**cpus, "GPU": self.gpus_per_node, f"accelerator_type:{self.gpu.ray_accelerator_type}": 1}

    def head_resources(self) -> dict[str, int]:
        """Ray resources of the head."""
        return {"CPU": self.head_vcpus or 1, "GPU": 0} if self.separate_head else self.resources()


def cluster_name(plan_id: str, launch_id: str) -> str:
    """Name of a cluster and of what is made for it: a launch's own, so that two of one plan never meet."""
    return f"plan-{plan_id.removeprefix('p-') if launch_id == BY_HAND else launch_id}"


def cluster_of(plan: Plan, choices: Choices, kind: Format) -> Cluster:
    """Work out the machines of a plan.

    Raises:
        UserError: where the plan's layout does not fill its nodes exactly.

    """
    candidate = plan.candidate
    offer, per_node = candidate.offer, candidate.run.shape.gpus_per_node
    if _num_gpus(candidate.run.layout) != candidate.num_nodes * per_node or per_node != offer.gpus_per_node:
        raise UserError(
            f"{plan.id}: its layout and its nodes differ in GPUs", "plan suggest (make the plan again)"
        )
    _check_zone(offer.region, choices.zone, kind)
    separate = choices.cpu_head or kind == "kuberay" or _needs_cpu_head(plan, choices, kind)
    head = versions.cpu_head(kind) if separate and kind in ("aws", "gcp", "azure") else None
    return Cluster(
        name=cluster_name(plan.id, choices.launch_id),
        plan_id=plan.id,
        provider=offer.provider,
        instance_type=offer.instance_type,
        region=offer.region,
        zone=choices.zone or offer.zone,
        market=offer.market,
        gpu=gpu(offer.gpu),
        gpus_per_node=per_node,
        num_nodes=candidate.num_nodes,
        vcpus=offer.vcpus,
        separate_head=separate,
        head_type=head.instance_type if head else None,
        head_vcpus=head.vcpus if head else (2 if separate else None),
        node_usd_per_hour=offer.usd_per_hour,
        head_usd_per_hour=head.usd_per_hour if head else None,
        hours=candidate.hours.mid,
    )


def _check_zone(region: str, zone: str | None, kind: Format) -> None:
    """Refuse a zone of another region, before a machine is asked for in it."""
    if zone is not None and kind in ("aws", "gcp") and not zone.startswith(region):
        raise UserError(
            f"--zone {zone!r:.40} is not in {region}", f"--zone {region}{'a' if kind == 'aws' else '-b'}"
        )


def _num_gpus(layout: Layout) -> int:
    return layout.dp * layout.tp * layout.pp * layout.cp


def _needs_cpu_head(plan: Plan, choices: Choices, kind: Format) -> bool:
    """Say whether a node with several network interfaces would be the head: it gets no public address."""
    from clusters.config.aws_network import efa_interfaces  # tables of one provider

    several = kind == "aws" and efa_interfaces(plan.candidate.offer.instance_type) > 1
    return several and plan.candidate.num_nodes > 1 and not choices.session_manager
