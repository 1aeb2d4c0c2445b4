"""Pages about links: ``layers`` (from hardware to primitives) and ``interconnect`` (one run over each)."""

from __future__ import annotations

from planner import answers
from planner.guide.pages import Columns, Line, Page, Subject, grid, page
from planner.guide.states import states
from planner.guide.variants import changed, data_parallel, of_run, two_nodes
from planner.hardware.efficiency import bandwidth_bytes_per_s
from planner.hardware.gpus import gpu_index
from planner.hardware.links import link, machine_columns, pcie_bytes_per_s
from planner.types import Links, Run

_INSIDE = ("pcie5-p2p", "pcie4-p2p", "pcie4-host", "pcie3-host")
_BETWEEN = ("ib-ndr", "roce", "ethernet")


def layers(subject: Subject) -> Page:
    """Rate of every layer that a gradient passes through, and how long the model's gradients take there."""
    run = data_parallel(subject.answer.run)
    moved = states(changed(run, zero_stage=0)).gradients
    nodes, ethernet = two_nodes(run.shape), link("ethernet")
    machine = machine_columns([nodes], [run.training.precision]).links
    memory = float(bandwidth_bytes_per_s()[gpu_index(subject.gpu.id)])
    rows = (
        ("GPU memory", memory, "hardware: what kernels reach"),
        (link(nodes.links.intra).label, float(machine.ring_bytes_per_s), "hardware: in the node"),
        ("host memory", pcie_bytes_per_s(subject.gpu), "hardware: the slot; offloading, data loading"),
        (link(nodes.links.inter).label, float(machine.net_bytes_per_s_per_node), "network: a whole node"),
        (ethernet.label, ethernet.rate(), "network without RDMA: the CPU copies"),
    )
    lines = [Line(label=name, figures=(rate, moved / rate), note=note) for name, rate, note in rows]
    columns: Columns = (("RATE", "bytes/s"), ("GRADIENTS IN", "s"))
    of = f"{subject.gpu.id}; the gradients of the model once through it"
    return page("layers", (grid("LAYER", of, columns, lines),))


def interconnect(subject: Subject) -> Page:
    """Take the same run with its links exchanged: in the node, and between two nodes."""
    run = data_parallel(subject.answer.run)
    per_node, pair = run.shape.gpus_per_node, two_nodes(run.shape)
    one = run.model_copy(update={"shape": run.shape.model_copy(update={"num_nodes": 1})})
    single, double = changed(one, dp=per_node), run.model_copy(update={"shape": pair})
    double = changed(double, dp=2 * per_node)
    inside = [
        Links(intra=name, inter="one-node") for name in dict.fromkeys((run.shape.links.intra, *_INSIDE))
    ]
    between = [_fabric(pair.links, name) for name in dict.fromkeys((pair.links.inter, *_BETWEEN))]
    columns: Columns = (("STEP", "s"), ("WAITS", "share"), ("A GPU", "tokens/s"))
    return page(
        "interconnect",
        (
            grid("IN THE NODE", of_run(single), columns, [_row(single, x, x.intra) for x in inside]),
            grid("BETWEEN 2 NODES", of_run(double), columns, [_row(double, x, x.inter) for x in between]),
        ),
    )


def _fabric(own: Links, name: str) -> Links:
    """Own links with another fabric between the nodes, at its usual rate."""
    rate = own.inter_gbit_per_s if name == own.inter else None
    return Links(intra=own.intra, inter=name, inter_gbit_per_s=rate)


def _row(run: Run, links: Links, name: str) -> Line:
    """Speed of a run over links."""
    other = run.model_copy(update={"shape": run.shape.model_copy(update={"links": links})})
    ((_, speed),) = answers.evaluate([other])
    waits = speed.parts_s.exposed_communication / speed.step_s.mid
    return Line(label=link(name).label, figures=(speed.step_s.mid, waits, speed.tokens_per_s_per_gpu.mid))
