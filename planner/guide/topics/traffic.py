"""The page about collectives: what each moves, when training uses it, and over which link it hurts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import MachineColumns
from planner.guide.pages import Line, Page, Subject, grid, page
from planner.guide.states import states
from planner.guide.variants import changed, data_parallel, two_nodes
from planner.hardware.collectives import SECONDS, bus_factor
from planner.hardware.links import link, machine_columns
from planner.training.formats import COMPUTE_BYTES, numerics_of
from planner.training.frameworks import match
from planner.types import Run, Shape


@dataclass(frozen=True, slots=True)
class Use:
    """A collective, the buffer that a training hands to it, and when."""

    op: str
    name: str
    buffer_bytes: float
    when: str


def uses(run: Run) -> tuple[Use, ...]:
    """Every collective with its buffer: gradients, weights, or activations of a micro-batch."""
    plain, training = states(changed(run, zero_stage=0)), run.training
    formats = numerics_of(training, match(training.framework).memory, sharded=True)
    element = float(COMPUTE_BYTES[formats])
    gathered = plain.weights * element / (2.0 if formats == "bf16-all" else 4.0)
    block = float(run.layout.micro_batch * training.seq_len) * run.model.hidden_size * element
    moe = run.model.moe
    copies = moe.experts_per_token if moe is not None else 1
    routed = "experts: tokens there and back, in every block"
    routed += "" if moe is not None else " (this model has none: as if one a token)"
    return (
        Use("all_reduce", "AllReduce", plain.gradients, "DDP: gradients, once a step, behind backward"),
        Use("reduce_scatter", "ReduceScatter", plain.gradients, "FSDP, ZeRO-2: to each rank its share"),
        Use("all_gather", "AllGather", gathered, "FSDP: weights, before forward and before backward"),
        Use("broadcast", "Broadcast", plain.weights, "at the start: weights of rank 0 to all"),
        Use("scatter", "Scatter", plain.weights, "loading through one rank"),
        Use("gather", "Gather", plain.weights, "saving through one rank; sharded checkpoints need none"),
        Use("all_to_all", "All-to-all", block * copies, routed),
        Use("send_recv", "Send/receive", block, "pipeline: to the next stage, each micro-batch"),
    )


def seconds(use: Use, shape: Shape, machine: MachineColumns) -> float:
    """Seconds of one call over all GPUs of ``shape``; of send/receive, of the slowest hop."""
    pair = use.op == "send_recv"
    ranks = 2 if pair else shape.num_gpus
    inside = (2 if shape.num_nodes == 1 else 1) if pair else shape.gpus_per_node
    sizes = (np.asarray(use.buffer_bytes), np.asarray(float(ranks)), np.asarray(float(inside)))
    return float(SECONDS[use.op](*sizes, machine))


def collectives(subject: Subject) -> Page:
    """Bytes and seconds of every collective, in the node and between two of them."""
    run = data_parallel(subject.answer.run)
    inside, between = run.shape.model_copy(update={"num_nodes": 1}), two_nodes(run.shape)
    ethernet = between.links.model_copy(update={"inter": "ethernet", "inter_gbit_per_s": None})
    shapes = (inside, between, two_nodes(run.shape, ethernet))
    machines = [machine_columns([s], [run.training.precision]) for s in shapes]
    ranks = np.asarray(float(inside.gpus_per_node))
    lines = []
    for use in uses(run):
        sent = use.buffer_bytes * float(bus_factor(use.op, ranks))
        times = [seconds(use, s, m) for s, m in zip(shapes, machines, strict=True)]
        lines.append(Line(label=use.name, figures=(use.buffer_bytes, sent, *times), note=use.when))
    _, _, node, nodes, slow = (f or 0.0 for f in lines[0].figures)
    return page(
        "collectives",
        (
            grid(
                "COLLECTIVE",
                f"{run.shape.gpu}, one call with the whole buffer",
                (
                    ("BUFFER", "bytes"),
                    ("A GPU SENDS", "bytes"),
                    ("IN NODE", "s"),
                    ("2 NODES", "s"),
                    ("ETHERNET", "s"),
                ),
                lines,
            ),
        ),
        {
            "ranks": str(inside.gpus_per_node),
            "intra": link(inside.links.intra).label,
            "inter": link(between.links.inter).label,
            "ethernet": link("ethernet").label,
            "times_nodes": f"{nodes / node:.1f}",
            "times_ethernet": f"{slow / node:.0f}",
        },
    )
