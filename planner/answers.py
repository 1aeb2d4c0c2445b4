"""Columns -> records: the estimates that are shown, with their bands, for a handful of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np

from planner import bands, memory, speed
from planner.columns import Array, MachineColumns, MemoryColumns, SpeedColumns
from planner.execution import execution_columns
from planner.layouts import layout_columns
from planner.links import machine_columns
from planner.model import model_columns
from planner.numerics import training_columns
from planner.types import (
    Band,
    Layout,
    MemoryEstimate,
    MemoryParts,
    Method,
    PeakAt,
    Run,
    Shape,
    SpeedEstimate,
    SpeedParts,
)

PEAKS: tuple[PeakAt, ...] = get_args(PeakAt)
AXES = ("dp", "tp", "pp", "cp", "ep")


def evaluate(runs: Sequence[Run]) -> list[tuple[MemoryEstimate, SpeedEstimate]]:
    """Estimate any number of runs at once, through the columns that the search uses.

    Raises ``UserError`` for a GPU that cannot compute in the precision of its run.
    """
    if not runs:
        return []
    trainings, shapes = [r.training for r in runs], [r.shape for r in runs]
    layouts, methods = [r.layout for r in runs], [r.training.method for r in runs]
    model, training = model_columns([r.model for r in runs]), training_columns(trainings)
    layout = layout_columns(layouts)
    machine = machine_columns(shapes, [t.precision for t in trainings])
    in_memory = memory.estimate(model, training, layout, machine)
    in_time = speed.estimate(model, training, execution_columns(trainings), layout, machine)
    return list(
        zip(
            memory_estimates(in_memory, machine, shapes, methods),
            speed_estimates(in_time, machine, shapes, layouts, methods),
            strict=True,
        )
    )


def memory_estimates(
    found: MemoryColumns, machine: MachineColumns, shapes: Sequence[Shape], methods: Sequence[Method]
) -> list[MemoryEstimate]:
    """Make the records of memory, one for each shape."""
    n = len(shapes)
    parts = {name: _spread_out(getattr(found, name), n) for name in MemoryParts.model_fields}
    total = {name: _spread_out(getattr(found, name), n) for name in ("allocated", "reserved", "device")}
    host, load = _spread_out(found.host, n), _spread_out(found.load, n)
    peak_at = np.broadcast_to(found.peak_at, (n,))
    usable = _spread_out(machine.usable_memory_bytes, n)
    answers = []
    for i, (shape, method) in enumerate(zip(shapes, methods, strict=True)):
        scale = bands.scale_of(shape.gpus_per_node * shape.num_nodes, shape.num_nodes)
        band = {
            name: bands.band(float(column[i]), bands.spread("memory", shape.gpu, method, scale))
            for name, column in total.items()
        }
        context = float(parts["context"][i])
        answers.append(
            MemoryEstimate.model_construct(
                parts_bytes=MemoryParts(**{k: float(v[i]) for k, v in parts.items()}),
                allocated_bytes=band["allocated"],
                reserved_bytes=band["reserved"],
                device_bytes=band["device"],
                peak_at=PEAKS[int(peak_at[i])],
                usable_bytes=float(usable[i]),
                fits=bool(band["allocated"].mid + context <= usable[i]),
                safe=bool(band["device"].high <= usable[i]),
                host_bytes=float(host[i]),
                load_bytes=float(load[i]),
            )
        )
    return answers


def speed_estimates(
    found: SpeedColumns,
    machine: MachineColumns,
    shapes: Sequence[Shape],
    layouts: Sequence[Layout],
    methods: Sequence[Method],
) -> list[SpeedEstimate]:
    """Make the records of speed, one for each shape and layout."""
    n = len(shapes)
    parts = {name: _spread_out(getattr(found, name), n) for name in SpeedParts.model_fields}
    step, tokens = _spread_out(found.step_s, n), _spread_out(found.tokens_per_step, n)
    peak = _spread_out(machine.peak_flops_per_s, n)
    model, hardware = _spread_out(found.model_flops, n), _spread_out(found.hardware_flops, n)
    waits = np.array([_spread_out(getattr(found, f"{axis}_s"), n) for axis in AXES])
    answers = []
    for i, (shape, layout, method) in enumerate(zip(shapes, layouts, methods, strict=True)):
        gpus = shape.gpus_per_node * shape.num_nodes
        step_s = step_band(float(step[i]), shape, method)
        link, share = _limiting_link(shape, layout, waits[:, i], float(step[i]))
        rate = float(tokens[i]) / gpus
        answers.append(
            SpeedEstimate.model_construct(
                parts_s=SpeedParts(**{k: float(v[i]) for k, v in parts.items()}),
                step_s=step_s,
                tokens_per_s_per_gpu=Band.model_construct(
                    low=rate / step_s.high, mid=rate / step_s.mid, high=rate / step_s.low
                ),
                mfu=float(model[i] / (step[i] * peak[i])),
                hfu=float(hardware[i] / (step[i] * peak[i])),
                limiting_link=link,
                limiting_link_share=share,
            )
        )
    return answers


def step_band(step_s: float, shape: Shape, method: Method) -> Band:
    """Band of a step's seconds on this shape."""
    scale = bands.scale_of(shape.gpus_per_node * shape.num_nodes, shape.num_nodes)
    return bands.band(step_s, bands.spread("step", shape.gpu, method, scale))


def _spread_out(column: Array, n: int) -> Array:
    """Repeat a column of shape () n times."""
    return np.broadcast_to(np.asarray(column), (n,))


def _limiting_link(shape: Shape, layout: Layout, waits: Array, step_s: float) -> tuple[str | None, float]:
    """Id of the link that the GPUs wait for longest, and the share of the step that they wait for it."""
    if shape.gpus_per_node * shape.num_nodes == 1 or waits.max() <= 0:
        return None, 0.0
    inside = sum(w for w, axis in zip(waits, AXES, strict=True) if not _crosses_nodes(axis, layout, shape))
    between = float(waits.sum() - inside)
    if between >= inside:
        return shape.links.inter, between / step_s
    return shape.links.intra, float(inside) / step_s


def _crosses_nodes(axis: str, layout: Layout, shape: Shape) -> bool:
    """Whether the groups of an axis leave the node; ranks are laid out tp, cp, dp, pp from the inside."""
    if shape.num_nodes == 1:
        return False
    span = {
        "tp": layout.tp,
        "cp": layout.tp * layout.cp,
        "ep": layout.ep * (layout.etp or 1),
        "dp": layout.tp * layout.cp * layout.dp,
        "pp": layout.tp * layout.cp * layout.dp * layout.pp,
    }
    return span[axis] > shape.gpus_per_node
