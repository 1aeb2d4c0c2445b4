"""Links inside a node and between nodes: ``data/links.csv`` as records, and which of them a machine has.

What is not stated stays a stated, conservative class (``unknown-*``) with a warning; it is never assumed
fast. Only what the board itself brings (NVLink on SXM, Infinity Fabric on OAM) needs no statement.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array, LinkColumns, MachineColumns
from planner.errors import UserError, did_you_mean
from planner.hardware import gpus
from planner.hardware.link_names import (
    efa_adapters,
    fabric_of,
    intra_link,
    is_board,
    is_dgx,
    stated_gbit_per_s,
    unknown_net,
)
from planner.types import Gpu, Links, Precision, Shape

GBIT = 1e9 / 8
_PCIE_ONE_WAY = {3.0: 15.75e9, 4.0: 31.5e9, 5.0: 63.0e9, 6.0: 121.0e9}
_HOST_COPY_SHARE = 0.84  # 26.2 of 31.5 and 55.4 of 63 GB/s measured (superbenchmark, stas00/ml-engineering)


@dataclass(frozen=True, slots=True)
class Link:
    """A row of ``data/links.csv``: rates in bytes/s, times in seconds; see ``columns.LinkColumns``."""

    id: str
    scope: str
    label: str
    wire_bytes_per_s: float
    share: float
    few_ranks_loss: float
    in_network_bytes_per_s: float
    mesh_ranks: float
    pair_share: float
    span_ranks: float
    beyond_bytes_per_s: float
    all_to_all_share: float
    hidden_share: float
    domain_gpus: float
    domain_net_bytes_per_s: float
    cap_bytes_per_s: float
    group_cap_bytes_per_s: float
    step_s: float
    tree_s: float
    base_s: float
    basis: str
    source: str
    source_date: str
    note: str

    def rate(self, wire_bytes_per_s: float | None = None) -> float:
        """Bus bandwidth that large rings reach, bytes/s, on this wire or on one of another rate."""
        wire = self.wire_bytes_per_s if wire_bytes_per_s is None else wire_bytes_per_s
        return min(wire * self.share, self.cap_bytes_per_s)


def _number(text: str, absent: float) -> float:
    """Read a cell, or ``absent`` where it is empty."""
    return float(text) if text else absent


def _record(row: dict[str, str]) -> Link:
    """Turn a row of ``data/links.csv`` into a record."""
    return Link(
        id=row["id"],
        scope=row["scope"],
        label=row["label"],
        wire_bytes_per_s=_number(row["wire_gb_per_s"], 1.0) * 1e9,
        share=_number(row["share"], 1.0),
        few_ranks_loss=_number(row["few_ranks_loss"], 0.0),
        in_network_bytes_per_s=_number(row["in_network_gb_per_s"], 0.0) * 1e9,
        mesh_ranks=_number(row["mesh_ranks"], 0.0),
        pair_share=_number(row["pair_share"], 0.0),
        span_ranks=_number(row["span_ranks"], np.inf),
        beyond_bytes_per_s=_number(row["beyond_gb_per_s"], 0.0) * 1e9,
        all_to_all_share=_number(row["all_to_all_share"], 1.0),
        hidden_share=_number(row["hidden_share"], 1.0),
        domain_gpus=_number(row["domain_gpus"], 0.0),
        domain_net_bytes_per_s=_number(row["domain_net_gb_per_s"], np.inf) * 1e9,
        cap_bytes_per_s=_number(row["cap_gb_per_s"], np.inf) * 1e9,
        group_cap_bytes_per_s=_number(row["group_cap_gb_per_s"], np.inf) * 1e9,
        step_s=_number(row["step_us"], 0.0) * 1e-6,
        tree_s=_number(row["tree_us"], 0.0) * 1e-6,
        base_s=_number(row["base_us"], 0.0) * 1e-6,
        basis=row["basis"],
        source=row["source"],
        source_date=row["source_date"],
        note=row["note"],
    )


@lru_cache(maxsize=1)
def links() -> tuple[Link, ...]:
    """All link classes, in the order of ``data/links.csv``."""
    text = files("planner").joinpath("data/links.csv").read_text(encoding="utf-8")
    return tuple(_record(row) for row in csv.DictReader(text.splitlines()))


@lru_cache(maxsize=1)
def _by_id() -> dict[str, int]:
    """Row number of each id."""
    return {each.id: i for i, each in enumerate(links())}


def link(link_id: str) -> Link:
    """Find a link class by id. Raises ``UserError`` for an unknown one."""
    index = _by_id().get(link_id)
    if index is None:
        raise UserError(
            f"unknown link {link_id!r}{did_you_mean(link_id, _by_id())}", "ids: planner/data/links.csv"
        )
    return links()[index]


def warnings_of(found: Links) -> tuple[str, ...]:
    """Say in words what was assumed because nobody stated it; empty where both links are stated."""
    return tuple(
        link(each).label for each in (found.intra, found.inter) if link(each).id.startswith("unknown")
    )


def is_slow(found: Links, across_nodes: bool) -> bool:
    """Tell whether tensor parallel over this link is hopeless: below 30 GB/s, or between nodes."""
    return across_nodes or link(found.intra).rate() < 30e9


_BOARD_GPUS = 8  # rows of fabrics that give no rate of a port are those of a node with 8 GPUs
_PORT_GBIT = {"ib-edr": 100.0, "ib-hdr": 200.0, "ib-ndr": 400.0, "ib-xdr": 800.0}


def _gbit_of(card: Gpu, gpus_per_node: int, fabric: str, text: str) -> float | None:
    """Gbit/s of a node that nobody stated, scaled to its GPUs; ``None`` = as the row says."""
    if (count := efa_adapters(text)) and fabric in ("efa", "efa-v1"):
        return 100.0 * count
    if fabric in _PORT_GBIT and is_dgx(text):
        return _PORT_GBIT[fabric] * gpus_per_node
    if fabric == "roce":
        if not is_board(card):
            return _PORT_GBIT["ib-edr"]
        fabric = unknown_net(card, max(gpus_per_node, 4))
    if fabric.startswith(("unknown-rdma", "ib-ndr", "ib-hdr", "ib-xdr", "efa-v2", "efa-v3", "efa-v4")):
        return link(fabric).wire_bytes_per_s / GBIT * min(1.0, gpus_per_node / _BOARD_GPUS)
    return None


def links_for(
    card: Gpu,
    gpus_per_node: int,
    interconnect: str | None = None,
    *,
    num_nodes: int = 1,
    intra_node: str | None = None,
    inter_node_fabric: str | None = None,
    network_gbit_per_s: float | None = None,
) -> Links:
    """Find the links of a machine from a run's free text, or from the columns of a catalog row.

    ``interconnect`` is the text of a run description; ``intra_node``, ``inter_node_fabric`` and
    ``network_gbit_per_s`` (of one node) are those of a catalog. What nobody says becomes a conservative
    class; ``warnings_of`` says so.
    """
    intra = intra_link(card, gpus_per_node, intra_node if intra_node is not None else interconnect or "")
    from_catalog = inter_node_fabric is not None or network_gbit_per_s is not None
    if num_nodes <= 1 and not from_catalog:
        return Links(intra=intra, inter="one-node")
    text = inter_node_fabric if inter_node_fabric is not None else interconnect or ""
    fabric = fabric_of(card, gpus_per_node, text)
    gbit = network_gbit_per_s or stated_gbit_per_s(text, gpus_per_node)
    if gbit is None:
        gbit = _gbit_of(card, gpus_per_node, fabric, text)
    return Links(intra=intra, inter=fabric, inter_gbit_per_s=gbit)


# ------------------------------------------------------------------------------- columns


def _net_rate(found: Links) -> float:
    """Achieved bytes/s out of a node in one direction: the stated rate, else that of the row."""
    between = link(found.inter)
    stated = None if found.inter_gbit_per_s is None else found.inter_gbit_per_s * GBIT
    return between.rate(stated)


def _link_row(found: Links, gpus_per_node: int) -> tuple[float, ...]:
    """Values of one machine in the order of the fields of ``LinkColumns``."""
    inside, between = link(found.intra), link(found.inter)
    return (
        inside.rate(),
        inside.few_ranks_loss,
        inside.in_network_bytes_per_s,
        inside.mesh_ranks,
        inside.pair_share,
        inside.span_ranks,
        inside.beyond_bytes_per_s or inside.rate(),
        inside.all_to_all_share,
        inside.hidden_share,
        max(1.0, inside.domain_gpus / gpus_per_node),
        min(inside.domain_net_bytes_per_s, between.group_cap_bytes_per_s),
        inside.step_s,
        inside.base_s,
        _net_rate(found),
        between.step_s,
        between.tree_s,
        between.base_s,
    )


def _columns(rows: list[tuple[float, ...]]) -> list[Array]:
    """Turn rows into columns; one row gives arrays of shape ``()``."""
    table = np.asarray(rows, dtype=np.float64)
    return [np.asarray(column[0] if len(rows) == 1 else column) for column in table.T]


def link_columns(found: Sequence[Links], gpus_per_node: Sequence[int]) -> LinkColumns:
    """Build the columns of links; one machine gives arrays of shape ``()``."""
    rows = [_link_row(each, n) for each, n in zip(found, gpus_per_node, strict=True)]
    return LinkColumns(*_columns(rows))


def pcie_bytes_per_s(card: Gpu) -> float:
    """Achieved bytes/s between host memory and one GPU: generation and lanes of the slot."""
    one_way = _PCIE_ONE_WAY[min(max(card.pcie_gen, 3.0), 6.0)]
    if card.link_kind.startswith("nvlink-c2c") or "Grace" in card.architecture:
        return 360e9  # NVLink-C2C, measured on GB300: stas00/ml-engineering network/README.md (744d01e1)
    return one_way * card.pcie_lanes / 16 * _HOST_COPY_SHARE


def _machine_row(shape: Shape, precision: Precision) -> tuple[float, ...]:
    """Values of one machine in the order of the fields of ``MachineColumns``, without the links."""
    card = gpus.gpu(shape.gpu)
    return (
        float(card.usable_memory_bytes),
        card.memory_bandwidth_bytes_per_s,
        gpus.flops_per_s(card, precision),
        card.fp32_flops_per_s,
        float(shape.gpus_per_node),
        float(shape.num_nodes),
        float(gpus.gpu_index(card.id)),
        float("nan") if shape.host_memory_bytes is None else float(shape.host_memory_bytes),
        pcie_bytes_per_s(card),
    )


def machine_columns(shapes: Sequence[Shape], precisions: Sequence[Precision]) -> MachineColumns:
    """Build the columns of machines, one precision for each shape; one shape gives arrays of shape ``()``.

    Raises ``UserError`` for an unknown GPU or link, or a precision that the GPU does not have.
    """
    rows = [_machine_row(s, p) for s, p in zip(shapes, precisions, strict=True)]
    columns = link_columns([s.links for s in shapes], [s.gpus_per_node for s in shapes])
    names = [f.name for f in fields(MachineColumns) if f.name != "links"]
    return MachineColumns(**dict(zip(names, _columns(rows), strict=True)), links=columns)


def take_machines(machines: MachineColumns, index: NDArray[np.int64]) -> MachineColumns:
    """Gather rows: the search builds its machines once and repeats them for each layout."""

    def gathered(column: Array) -> Array:
        return np.broadcast_to(column, index.shape) if column.ndim == 0 else column[index]

    own = {f.name: getattr(machines, f.name) for f in fields(MachineColumns) if f.name != "links"}
    inner = {f.name: gathered(getattr(machines.links, f.name)) for f in fields(LinkColumns)}
    return MachineColumns(**{k: gathered(v) for k, v in own.items()}, links=LinkColumns(**inner))
