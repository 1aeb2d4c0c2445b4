"""Hours and cost of the one run that is shown, line by line: ``cost``'s formulas on arrays of shape ()."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from planner.columns import Array
from planner.cost import (
    GB,
    HOUR_S,
    PartColumns,
    Spread,
    TimeColumns,
    Work,
    disk_gib,
    evaluations,
    known_sum,
    offer_columns,
    spread,
)
from planner.cost.tables import Item, overheads, rate
from planner.results import CostLine, WholeRun
from planner.types import Band, Offer


@dataclass(frozen=True, slots=True)
class Cost:
    """Hours and cost of one run, with its lines. ``usd`` is ``None`` where the node has no price."""

    hours: Band
    usd: Band | None
    is_complete: bool
    lines: tuple[CostLine, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """A line to be: how much of what, at which price, and which part of ``PartColumns`` it is."""

    name: str
    part: str
    quantity: float
    unit: str
    usd_per_unit: Decimal | None
    note: str = ""


def spread_of(band: Band) -> Spread:
    """Band of one run as columns of shape ()."""
    return Spread(np.asarray(band.low), np.asarray(band.mid), np.asarray(band.high))


def _node_lines(time: TimeColumns, nodes: float, price: Decimal | None, spot: bool) -> list[_Line]:
    """Lines that are node-hours at the price of the node."""

    def hours(seconds: Array) -> float:
        return float(seconds) * nodes / HOUR_S

    redo = "taken away or failed" if spot else "failed GPUs and machines"
    if nodes > 1:
        redo += ", stalls"
    started = hours(time.setup + time.billed - time.total)
    return [
        _Line("compute", "compute", hours(time.train), "node-hour", price),
        _Line("writing checkpoints", "checkpoint", hours(time.checkpoint), "node-hour", price),
        _Line("work done again", "redo", hours(time.redo), "node-hour", price, redo),
        _Line("set-up", "setup", started, "node-hour", price, "nodes, image, rounding up of the bill"),
        _Line("probe", "probe", hours(time.probe), "node-hour", price),
    ]


def _rated(item: Item, offer: Offer, name: str, part: str, quantity: float, unit: str) -> _Line:
    """Line at a provider's rate; its note says what that is, or that nobody says it."""
    found = rate(item, offer.provider)
    if found is None:
        return _Line(name, part, quantity, unit, None, f"{offer.provider} rate not known")
    return _Line(name, part, quantity, unit, found.usd, found.note)


def _extra_lines(work: Work, offer: Offer, time: TimeColumns) -> list[_Line]:
    """Lines that are not node-hours."""
    nodes, billed_h = float(work.num_nodes), float(time.billed) / HOUR_S
    months = billed_h / overheads()["month_h"].mid
    disks_gib = float(disk_gib(work.data_bytes, nodes)) * nodes
    kept_gb = overheads()["checkpoints_kept"].mid * float(work.checkpoint_bytes) / GB
    lines = []
    if offer.market == "spot":
        lines.append(_rated("head", offer, "head node, on demand", "head", billed_h, "hour"))
    if rate("address", offer.provider):
        lines.append(_rated("address", offer, "public address", "address", billed_h * nodes, "hour"))
    return [
        *lines,
        _rated("disk", offer, "disk", "disk", disks_gib * months, "GiB-month"),
        _rated("checkpoints", offer, "checkpoint storage", "storage", kept_gb * months, "GB-month"),
        _rated("upload", offer, "data upload", "upload", float(work.data_bytes) / GB, "GB"),
        _rated("download", offer, "download of the result", "download", float(work.result_bytes) / GB, "GB"),
    ]


def _band(parts: list[PartColumns], name: str) -> Band | None:
    """Interval of one part; ``None`` where it is not known."""
    values = [np.asarray(getattr(p, name)) for p in parts]
    return None if np.isnan(values[0]) else spread(values).at(0)


def cost_lines(step_s: Band, work: Work, offer: Offer) -> Cost:
    """Hours and cost of one run on ``offer``, line by line.

    ``step_s``: seconds of an optimizer step; ``work``: of that run, shape (). The mids of the lines add up to
    ``usd.mid``; a line of unknown price has ``usd`` None, and ``is_complete`` is False then. Same formulas,
    and so the same figures, as ``cost.cost_columns``.
    """
    found = evaluations(spread_of(step_s), work, offer_columns([offer]))
    times, parts = [t for t, _ in found], [p for _, p in found]
    sums = [known_sum(p) for p in parts]
    nodes = float(work.num_nodes)
    drafts = [
        *_node_lines(times[0], nodes, offer.usd_per_hour, offer.market == "spot"),
        *_extra_lines(work, offer, times[0]),
    ]
    return Cost(
        hours=spread([t.total / HOUR_S for t in times]).at(0),
        usd=None if offer.usd_per_hour is None else spread([s for s, _ in sums]).at(0),
        is_complete=bool(sums[0][1]),
        lines=tuple(
            CostLine(
                name=d.name,
                quantity=d.quantity,
                unit=d.unit,
                usd_per_unit=d.usd_per_unit,
                usd=_band(parts, d.part),
                note=d.note,
            )
            for d in drafts
        ),
    )


def whole_run(step_s: Band, work: Work, usd_per_gpu_hour: Decimal | None, *, spot: bool = False) -> WholeRun:
    """Hours, GPU-hours and cost of a training on GPUs that are there: no set-up, probe or billing rules.

    Checkpoints and work done again are in it. ``cost_usd``: GPU-hours at the price, ``None`` without one.
    """
    gpus = float(work.num_nodes * work.gpus_per_node)
    price = None if usd_per_gpu_hour is None else usd_per_gpu_hour * int(work.gpus_per_node)
    offer = Offer.model_construct(
        provider="", market="spot" if spot else "on-demand", gpu="", usd_per_hour=price, source=""
    )
    found = evaluations(spread_of(step_s), work, offer_columns([offer]))
    hours = spread([(t.train + t.checkpoint + t.redo) / HOUR_S for t, _ in found]).at(0)
    gpu_hours = hours.times(gpus)
    cost = None if usd_per_gpu_hour is None else gpu_hours.times(float(usd_per_gpu_hour))
    return WholeRun(hours=hours, gpu_hours=gpu_hours, cost_usd=cost)
