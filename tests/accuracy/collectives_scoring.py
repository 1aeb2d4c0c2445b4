"""Measured collectives against predicted: rows, errors, and a refit that leaves one source out.

``allreduce.csv`` holds measured bus bandwidths in GB/s as nccl-tests prints them, all operations. ``group``
is the repository, issue or post: rows of one group never help to predict each other when it is left out.
Rows with ``scored`` other than "yes" say why they are not counted. A row without ``bytes`` is a peak: 4 GiB
is assumed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import numpy as np

from planner.hardware import collectives, links
from planner.hardware.links import Link
from planner.types import Links

ROWS = Path(__file__).parent / "allreduce.csv"
PEAK_BYTES = 4 * 2**30
LEAST_TO_FIT = 4


@dataclass(frozen=True)
class Measured:
    """One measured collective."""

    op: str
    gpu: str
    gpus_per_node: int
    num_nodes: int
    links: Links
    bytes_: float | None
    busbw_gb_per_s: float
    source: str
    group: str
    scored: str

    @property
    def link_class(self) -> str:
        """Link that rules: inside the node, or between nodes."""
        return self.links.intra if self.num_nodes == 1 else self.links.inter


def measured() -> tuple[Measured, ...]:
    """All rows of ``allreduce.csv``."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        return tuple(_row(r) for r in csv.DictReader(file))


def _row(r: Mapping[str, str]) -> Measured:
    gbit = float(r["inter_gbit_per_s"]) if r["inter_gbit_per_s"] else None
    return Measured(
        op=r["op"],
        gpu=r["gpu"],
        gpus_per_node=int(r["gpus_per_node"]),
        num_nodes=int(r["num_nodes"]),
        links=Links(intra=r["intra"], inter=r["inter"], inter_gbit_per_s=gbit),
        bytes_=float(r["bytes"]) if r["bytes"] else None,
        busbw_gb_per_s=float(r["busbw_gb_per_s"]),
        source=r["source"],
        group=r["group"],
        scored=r["scored"],
    )


def predicted_gb_per_s(rows: Sequence[Measured]) -> np.ndarray:
    """Bus bandwidth that ``planner.hardware.collectives`` expects of each row."""
    per_node = np.array([float(r.gpus_per_node) for r in rows])
    columns = links.link_columns([r.links for r in rows], [r.gpus_per_node for r in rows])
    machine = SimpleNamespace(links=columns, gpus_per_node=per_node)
    ranks = per_node * np.array([r.num_nodes for r in rows])
    bytes_ = np.array([r.bytes_ or PEAK_BYTES for r in rows])
    result = np.zeros(len(rows))
    for op, seconds in collectives.SECONDS.items():
        mine = np.array([r.op == op for r in rows])
        time = seconds(bytes_, ranks, per_node, machine)
        result = np.where(mine, collectives.bus_bytes_per_s(op, bytes_, time, ranks) / 1e9, result)
    return result


def errors(rows: Sequence[Measured]) -> np.ndarray:
    """Relative errors of the prediction, signed."""
    return predicted_gb_per_s(rows) / np.array([r.busbw_gb_per_s for r in rows]) - 1


def by(rows: Sequence[Measured], key: Callable[[Measured], str]) -> dict[str, list[Measured]]:
    """Group rows."""
    groups: dict[str, list[Measured]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return dict(sorted(groups.items()))


# ------------------------------------------------------------------------------- leave one source out

FITTED_INSIDE = (
    "share",
    "few_ranks_loss",
    "in_network_bytes_per_s",
    "step_s",
    "base_s",
    "all_to_all_share",
)
FITTED_BETWEEN = ("share", "step_s", "tree_s", "base_s")
_FACTORS = (0.7, 0.85, 0.93, 0.97, 1.03, 1.08, 1.18, 1.4)
_SLOW = ("ethernet", "efa")


def prior(each: Link) -> Link:
    """What one would assume of a link without any measurement of it: the same figures for all of a kind."""
    if each.scope == "inter":
        share = 0.65 if each.id in _SLOW or each.id.startswith("unknown") else 0.9
        return replace(
            each,
            share=share,
            cap_bytes_per_s=math.inf,
            group_cap_bytes_per_s=math.inf,
            step_s=10e-6,
            tree_s=40e-6,
            base_s=10e-6,
        )
    share = 0.6 if each.id.startswith(("pcie", "unknown")) else 0.75
    switch = 0.6 * each.wire_bytes_per_s if each.in_network_bytes_per_s else 0.0
    loss = 0.2 if each.few_ranks_loss > 0 else 0.0
    return replace(
        each,
        share=share,
        few_ranks_loss=loss,
        in_network_bytes_per_s=switch,
        step_s=2e-6,
        base_s=8e-6,
        all_to_all_share=0.9,
    )


@contextmanager
def table_of(each: Sequence[Link]) -> Iterator[list[Link]]:
    """Let the collectives use this table of links instead of the shipped one."""
    table, shipped = list(each), links.links
    links.links = lambda: table  # type: ignore[assignment]
    try:
        yield table
    finally:
        links.links = shipped


def _loss(rows: Sequence[Measured], weights: np.ndarray) -> float:
    off = np.abs(np.log(1 + errors(rows)))
    return float(np.sum(weights * np.minimum(off, 1.5)) / np.sum(weights))


def fit_class(table: list[Link], index: int, rows: Sequence[Measured]) -> None:
    """Fit one link class by coordinate search; every source weighs as the root of its rows."""
    counts = {name: len(group) for name, group in by(rows, lambda r: r.group).items()}
    weights = np.array([counts[r.group] ** -0.5 for r in rows])
    best = _loss(rows, weights)
    names = FITTED_INSIDE if table[index].scope == "intra" else FITTED_BETWEEN
    for name in names * 2:
        for factor in _FACTORS:
            before = table[index]
            value = getattr(before, name)
            moved = value + 0.3 * (factor - 1) if name == "few_ranks_loss" else value * factor
            table[index] = replace(before, **{name: min(moved, 0.99) if name == "share" else moved})
            loss = _loss(rows, weights)
            if loss < best - 1e-5:
                best = loss
            else:
                table[index] = before


def leave_one_source_out(rows: Sequence[Measured]) -> dict[str, np.ndarray]:
    """Errors of each group, predicted with constants fitted to the other groups only."""
    shipped = links.links()
    index = {each.id: i for i, each in enumerate(shipped)}
    result = {}
    for group, own in by(rows, lambda r: r.group).items():
        others = [r for r in rows if r.group != group]
        needed = {name for r in own for name in (r.links.intra, r.links.inter)}
        with table_of([prior(each) for each in shipped]) as table:
            for name in sorted(needed, key=lambda n: table[index[n]].scope, reverse=True):
                known = [r for r in others if r.link_class == name]
                if len(known) >= LEAST_TO_FIT:
                    fit_class(table, index[name], known)
            result[group] = errors(own)
    return result


def known_elsewhere(row: Measured, rows: Sequence[Measured]) -> bool:
    """Whether other sources measured the row's link class often enough to fit it."""
    return sum(r.link_class == row.link_class and r.group != row.group for r in rows) >= LEAST_TO_FIT


def macro(errors_of: Mapping[str, np.ndarray], least: int = 4) -> float:
    """Median |error| within a source, then the mean over sources with at least ``least`` rows."""
    return float(np.mean([median(np.abs(e)) for e in errors_of.values() if len(e) >= least]))
