"""What a probe is asked: the run that it shall prove, and what the planner takes its machines to be."""

from __future__ import annotations

from typing import Literal

from clusters.config import versions
from clusters.probe.request import Expected, PlanCollective, ProbeRequest
from planner.hardware.expected import expected_busbw_bytes_per_s
from planner.hardware.gpus import gpu
from planner.model.count import count_params
from planner.types import Record, Run, Shape
from planner.verdict import cpu
from planner.verdict.limits import limit, upper
from planner.verdict.own import own_collectives
from planner.verdict.subject import Subject

LARGEST_BYTES = 2**30


class Wishes(Record):
    """How the user wants the probe to be. ``scale``: ``none``, ``auto``, or a number of layers."""

    scale: str = "none"
    repeat: int = 1
    num_steps: int | None = None
    check_precision: bool = False
    entrypoint: str | None = None
    probe_timeout_s: float = 600.0
    memory_limit_bytes: float | None = None
    own_software: bool = False  # whether the nodes were set up by us, with the pinned versions


def request_of(subject: Subject, wishes: Wishes, plan_id: str | None = None) -> ProbeRequest:
    """The request of one probe. Raises ``ValueError`` for wishes that make no sense, naming the field."""
    run = subject.run
    default = ProbeRequest(plan={}, use_gpu=False, num_workers=1)
    memory = subject.predicted.memory
    return ProbeRequest(
        plan={"plan_id": plan_id, "run": run.model_dump(mode="json")},
        num_params=round(count_params(run.model).total),
        phases=subject.phases,
        use_gpu=not subject.on_cpu,
        num_workers=subject.num_ranks,
        collectives=tuple(
            PlanCollective(op=own.op, bytes=own.bytes, purpose=own.purpose) for own in own_collectives(run)
        ),
        min_busbw_bytes_per_s=_least_busbw(run),
        expected=_expected(run.shape, own_software=wishes.own_software),
        predicted_bytes=None if memory is None else upper(memory.reserved_bytes),
        memory_limit_bytes=wishes.memory_limit_bytes,
        scale=wishes.scale,
        num_steps=wishes.num_steps or default.num_steps,
        repeat=wishes.repeat,
        check_precision=wishes.check_precision,
        entrypoint=wishes.entrypoint,
        probe_timeout_s=wishes.probe_timeout_s,
    )


def _least_busbw(run: Run) -> float | None:
    """Bus bandwidth of a large AllReduce below which pairs are looked at one by one."""
    shape = run.shape
    ranks = shape.num_gpus
    found = expected_busbw_bytes_per_s(
        "all_reduce", LARGEST_BYTES, ranks, shape.gpus_per_node, shape.links, shape.gpus_per_node
    )
    return None if found is None else found * limit("busbw_share")


def _expected(shape: Shape, *, own_software: bool) -> Expected:
    """What every node and rank should be; nothing is expected of what nobody states."""
    pinned = versions.software()
    told = {"ray": pinned.ray, "torch": pinned.torch, "python": pinned.python} if own_software else {}
    if shape.gpu == cpu.CPU:
        return Expected(
            gpus_per_node=0,
            num_nodes=shape.num_nodes,
            transport="gloo",
            nic_gbit_per_s=shape.links.inter_gbit_per_s,
            versions=told,
        )
    card, intra = gpu(shape.gpu), shape.links.intra
    known = not intra.startswith("unknown")
    nvlink = intra.startswith("nvlink")
    several = shape.gpus_per_node > 1
    peers = (nvlink or intra.endswith("p2p")) and not intra.endswith("host")  # bridges join some pairs only
    over_pcie = several and intra.startswith("pcie")  # "pcie4-p2p": the slots that the plan counts on
    return Expected(
        gpu=card.id,
        gpu_names=(card.id, *card.aliases),
        gpus_per_node=shape.gpus_per_node,
        num_nodes=shape.num_nodes,
        usable_memory_bytes=float(card.usable_memory_bytes),
        ecc=card.ecc if card.gpu_class == "datacenter" else None,  # others come with ECC off
        pcie_gen=min(card.pcie_gen, float(intra[4])) if over_pcie else None,
        pcie_lanes=card.pcie_lanes if over_pcie else None,
        link=intra,
        nvlink=nvlink if several and known else None,
        peer_to_peer=peers if several and known else None,
        transport=_transport(shape),
        nic_gbit_per_s=shape.links.inter_gbit_per_s,
        versions=told,
    )


def _transport(shape: Shape) -> Literal["efa", "ib", "socket"] | None:
    """How NCCL should cross nodes; ``None`` on one node, and where a cloud's own plug-in names itself."""
    inter = shape.links.inter
    if shape.num_nodes == 1:
        return None
    if inter.startswith("efa"):
        return "efa"
    if inter.startswith(("ib-", "roce")):
        return "ib"
    return "socket" if inter in ("ethernet", "internet") else None
