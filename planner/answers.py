"""Columns -> records: the estimates that are shown, with their bands, for a handful of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np

from planner import memory, speed
from planner.columns import Array, MachineColumns, MemoryColumns, SpeedColumns
from planner.hardware.links import machine_columns
from planner.layouts import layout_columns
from planner.model import model_columns
from planner.results import MemoryEstimate, MemoryParts, SpeedEstimate, SpeedParts
from planner.training.execution import execution_columns
from planner.training.numerics import training_columns
from planner.trust import nearness
from planner.trust.features import Features, features
from planner.trust.nearness import Residuals, Spreads
from planner.types import Band, Layout, MemoryKind, PeakAt, Run, Shape

PEAKS: tuple[PeakAt, ...] = get_args(PeakAt)
MEMORY_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
AXES = ("dp", "tp", "pp", "cp", "ep")


def evaluate(
    runs: Sequence[Run], known: Residuals | None = None
) -> list[tuple[MemoryEstimate, SpeedEstimate]]:
    """Estimate any number of runs at once, through the columns that the search uses.

    ``known``: the measured runs that bands rest on.

    Raises ``UserError`` for a GPU that cannot compute in the precision of its run.
    """
    if not runs:
        return []
    trainings, shapes = [r.training for r in runs], [r.shape for r in runs]
    layouts, kinds = [r.layout for r in runs], [features(r) for r in runs]
    known = known or nearness.shipped()
    model, training = model_columns([r.model for r in runs]), training_columns(trainings)
    layout = layout_columns(layouts)
    machine = machine_columns(shapes, [t.precision for t in trainings])
    in_memory = memory.estimate(model, training, layout, machine)
    in_time = speed.estimate(model, training, execution_columns(trainings), layout, machine)
    return list(
        zip(
            memory_estimates(in_memory, machine, kinds, known),
            speed_estimates(in_time, machine, shapes, layouts, nearness.spreads("step", kinds, known)),
            strict=True,
        )
    )


def memory_estimates(
    found: MemoryColumns, machine: MachineColumns, kinds: Sequence[Features], known: Residuals
) -> list[MemoryEstimate]:
    """Make the records of memory, one for each run.

    What the user's own runs correct is corrected in all parts alike.
    """
    n = len(kinds)
    parts = {name: _spread_out(getattr(found, name), n) for name in MemoryParts.model_fields}
    total = {name: _spread_out(getattr(found, name), n) for name in MEMORY_KINDS}
    around = {name: nearness.spreads(name, kinds, known) for name in MEMORY_KINDS}
    host, load = _spread_out(found.host, n), _spread_out(found.load, n)
    peak_at = np.broadcast_to(found.peak_at, (n,))
    usable = _spread_out(machine.usable_memory_bytes, n)
    answers = []
    for i in range(n):
        band = {name: _band(float(total[name][i]), around[name], i) for name in MEMORY_KINDS}
        middle = float(around["device"].middle[i])
        context = float(parts["context"][i]) * middle
        answers.append(
            MemoryEstimate.model_construct(
                parts_bytes=MemoryParts(**{k: float(v[i]) * middle for k, v in parts.items()}),
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
    around: Spreads,
) -> list[SpeedEstimate]:
    """Make the records of speed, one for each shape and layout."""
    n = len(shapes)
    parts = {name: _spread_out(getattr(found, name), n) for name in SpeedParts.model_fields}
    step, tokens = _spread_out(found.step_s, n), _spread_out(found.tokens_per_step, n)
    peak = _spread_out(machine.peak_flops_per_s, n)
    model, hardware = _spread_out(found.model_flops, n), _spread_out(found.hardware_flops, n)
    waits = np.array([_spread_out(getattr(found, f"{axis}_s"), n) for axis in AXES])
    answers = []
    for i, (shape, layout) in enumerate(zip(shapes, layouts, strict=True)):
        gpus = shape.num_gpus
        step_s, middle = _band(float(step[i]), around, i), float(around.middle[i])
        link, share = _limiting_link(shape, layout, waits[:, i], float(step[i]))
        rate = float(tokens[i]) / gpus
        answers.append(
            SpeedEstimate.model_construct(
                parts_s=SpeedParts(**{k: float(v[i]) * middle for k, v in parts.items()}),
                step_s=step_s,
                tokens_per_s_per_gpu=Band.model_construct(
                    low=rate / step_s.high, mid=rate / step_s.mid, high=rate / step_s.low
                ),
                mfu=float(model[i] / (step_s.mid * peak[i])),
                hfu=float(hardware[i] / (step_s.mid * peak[i])),
                limiting_link=link,
                limiting_link_share=share,
            )
        )
    return answers


def _band(predicted: float, around: Spreads, i: int) -> Band:
    """Put the 80 % interval of run ``i`` around what the formulas predict."""
    return Band.model_construct(
        low=predicted * float(around.low[i]),
        mid=predicted * float(around.middle[i]),
        high=predicted * float(around.high[i]),
    )


def _spread_out(column: Array, n: int) -> Array:
    """Repeat a column of shape () n times."""
    return np.broadcast_to(np.asarray(column), (n,))


def _limiting_link(shape: Shape, layout: Layout, waits: Array, step_s: float) -> tuple[str | None, float]:
    """Id of the link that the GPUs wait for longest, and the share of the step that they wait for it."""
    if shape.num_gpus == 1 or waits.max() <= 0:
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
