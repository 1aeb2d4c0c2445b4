"""All legal layouts of a machine shape, as columns.

A *mesh* is a choice of degrees, sharding and offload; a *layout* is a mesh with recompute, micro-batch and
accumulation. Meshes are few and made one by one with the rules of ``legality``; layouts are made from them as
arrays.
A table of layouts is a float array of shape (20, n), one row per field of ``LayoutColumns``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array, LayoutColumns
from planner.legality import degrees_reason, expert_tensor_degree
from planner.types import Layout, LayoutPins, ModelSpec, Offload, Recompute, TrainingSpec

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
FIELDS = tuple(f.name for f in fields(LayoutColumns))
ROW = {name: i for i, name in enumerate(FIELDS)}

Scope = Literal["data-parallel", "model-parallel", "offload"]

# Above so many tokens a larger micro-batch speeds nothing up; narrow models need more to fill a GPU.
TOKENS_PER_MICRO_BATCH = 32_768
FULL_WIDTH = 2_048
MOST_TENSOR_PARALLEL = 16
MOST_PIPELINE_STAGES = 64
# A context-parallel rank keeps at least this many tokens, else its matrices get small for little memory.
TOKENS_PER_CONTEXT_RANK = 4_096
# A batch that follows from the default rule may be rounded by this much to be divisible by the GPUs.
BATCH_ROUNDING = 0.25


@dataclass(frozen=True, slots=True)
class BatchRule:
    """How many sequences make a global batch, and whether the user asked for exactly that."""

    sequences: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Nodes:
    """GPUs by node. ``reach``: how many of them tensor parallel may span; 1 where links are too slow."""

    gpus_per_node: int
    num_nodes: int
    reach: float


# ---------------------------------------------------------------------------------- records and columns


def layout_columns(layouts: Sequence[Layout]) -> LayoutColumns:
    """Columns of given layouts: shape () for one, (n,) for more."""
    table = np.array([layout_row(layout) for layout in layouts], dtype=np.float64).T
    return columns_of(table[:, 0] if len(layouts) == 1 else table)


def columns_of(table: Array) -> LayoutColumns:
    """Name the rows of a table."""
    return LayoutColumns(*table)


def layout_row(layout: Layout) -> tuple[float, ...]:
    """One column of a table: what ``LayoutColumns`` says of this layout, in its order."""
    overlap = math.nan if layout.tp_overlap is None else float(layout.tp_overlap)
    return (
        layout.dp,
        layout.tp,
        layout.pp,
        layout.cp,
        layout.ep,
        expert_tensor_degree(layout),
        layout.zero_stage,
        layout.shard_group or layout.dp * layout.cp,
        layout.sequence_parallel,
        layout.interleave,
        RECOMPUTE.index(layout.recompute),
        layout.recompute_fraction,
        layout.micro_batch,
        layout.grad_accum,
        layout.offload in ("optimizer", "params+optimizer"),
        layout.offload == "params+optimizer",
        layout.activation_offload or layout.offload == "activations",
        overlap,
        layout.dispatcher == "deepep",
        bool(layout.a2a_overlap),
    )


def layout_of(table: Array, index: int) -> Layout:
    """Make the record of one layout of a table."""
    value = {name: table[row, index] for name, row in ROW.items()}
    number = {name: int(v) for name, v in value.items() if not math.isnan(v)}
    offload: Offload = "optimizer" if number["offload_optimizer"] else "none"
    everything = number["dp"] * number["cp"]
    return Layout(
        dp=number["dp"],
        tp=number["tp"],
        pp=number["pp"],
        cp=number["cp"],
        ep=number["ep"],
        etp=number["etp"] if number["etp"] != (1 if number["ep"] > 1 else number["tp"]) else None,
        zero_stage=number["zero_stage"],  # type: ignore[arg-type]  # 0..3 by construction
        shard_group=number["shard_group"] if number["shard_group"] != everything else None,
        sequence_parallel=bool(number["sequence_parallel"]),
        interleave=number["interleave"],
        recompute=RECOMPUTE[number["recompute"]],
        recompute_fraction=float(value["recompute_fraction"]),
        micro_batch=number["micro_batch"],
        grad_accum=number["grad_accum"],
        offload="params+optimizer" if number["offload_params"] else offload,
        activation_offload=bool(number["offload_activations"]),
        tp_overlap=bool(number["tp_overlap"]) if "tp_overlap" in number else None,
        dispatcher="deepep" if number["deepep"] else None,
        a2a_overlap=True if number["a2a_overlap"] else None,
    )


# ---------------------------------------------------------------------------------- meshes


def meshes(
    model: ModelSpec,
    training: TrainingSpec,
    nodes: Nodes,
    pins: LayoutPins,
    scope: Scope,
) -> Array:
    """Table of every legal mesh of one scope on these GPUs, with micro-batch and accumulation 1.

    ``data-parallel``: DDP, ZeRO 1-3, hybrid shard. ``model-parallel``: those that split the model as well, by
    tensor, pipeline, context or experts. ``offload``: data-parallel ones that keep state in host memory.
    Tensor parallel stays within ``nodes.reach``; pipeline stages divide the GPUs.
    """
    rows = [
        layout_row(mesh)
        for degrees in _degrees(model, training, nodes, pins, scope)
        for mesh in _shardings(degrees, nodes, pins, scope)
        if degrees_reason(model, training, mesh, None) is None
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, len(FIELDS)).T


def _degrees(
    model: ModelSpec,
    training: TrainingSpec,
    nodes: Nodes,
    pins: LayoutPins,
    scope: Scope,
) -> Iterator[Layout]:
    """Every product dp x tp x pp x cp = GPUs, with experts and interleaving, that the scope holds."""
    gpus = nodes.gpus_per_node * nodes.num_nodes
    split = scope == "model-parallel"
    tps = [tp for tp in _pinned(pins.tp, _tensor_degrees(nodes) if split else (1,)) if tp <= nodes.reach]
    most_pp = min(model.num_layers, MOST_PIPELINE_STAGES)
    pps = _pinned(pins.pp, [d for d in _divisors(gpus) if d <= most_pp] if split else (1,))
    cps = _pinned(pins.cp, _powers(training.seq_len // TOKENS_PER_CONTEXT_RANK) if split else (1,))
    for tp in tps:
        for pp in pps:
            for cp in cps:
                dp, rest = divmod(gpus, tp * pp * cp)
                if rest or dp == 0 or (pins.dp is not None and pins.dp != dp):
                    continue
                for ep, etp in _experts(model, dp * cp * tp, tp, pins, split):
                    if (max(tp, pp, cp, ep) > 1) != split and not splits(pins):
                        continue
                    for chunks in _chunks(model, pp, pins):
                        yield Layout(dp=dp, tp=tp, pp=pp, cp=cp, ep=ep, etp=etp, interleave=chunks)


def _tensor_degrees(nodes: Nodes) -> list[int]:
    """Degrees that fill a node evenly, and larger ones where a fast link joins nodes."""
    inside = _divisors(nodes.gpus_per_node)
    return inside + [p for p in _powers(MOST_TENSOR_PARALLEL) if nodes.gpus_per_node < p <= nodes.reach]


def splits(pins: LayoutPins) -> bool:
    """Whether the user asked for a model-parallel degree, so that scopes no longer matter."""
    return any(degree is not None for degree in (pins.tp, pins.pp, pins.cp, pins.ep))


def _experts(
    model: ModelSpec, ranks: int, tp: int, pins: LayoutPins, split: bool
) -> Iterator[tuple[int, int | None]]:
    """Expert-parallel degrees; experts that are spread are not split by tensor parallel unless asked."""
    if model.moe is None or not split:
        yield pins.ep or 1, pins.etp
        return
    for ep in _pinned(pins.ep, [e for e in _powers(model.moe.num_experts) if ranks % e == 0]):
        yield ep, pins.etp


def _chunks(model: ModelSpec, pp: int, pins: LayoutPins) -> tuple[int, ...]:
    """Chunks per pipeline rank: one, two, and one layer each."""
    if pins.interleave is not None or pp == 1:
        return (pins.interleave or 1,)
    return tuple(sorted({c for c in (1, 2, model.num_layers // pp) if c >= 1}))


def _shardings(degrees: Layout, nodes: Nodes, pins: LayoutPins, scope: Scope) -> Iterator[Layout]:
    """Add each way to shard state and, in scope ``offload``, to keep it in host memory."""
    fixed = {
        name: value
        for name in ("recompute_fraction", "activation_offload", "tp_overlap", "dispatcher", "a2a_overlap")
        if (value := getattr(pins, name)) is not None
    }
    if pins.sequence_parallel is not None:
        fixed["sequence_parallel"] = pins.sequence_parallel
    for offload in _offloads(pins, scope):
        for stage, group in _stages(degrees, nodes, pins, offload):
            yield degrees.model_copy(
                update={"zero_stage": stage, "shard_group": group, "offload": offload, **fixed}
            )


def _offloads(pins: LayoutPins, scope: Scope) -> tuple[Offload, ...]:
    if pins.offload is not None:
        return (pins.offload,)
    return ("optimizer", "params+optimizer", "activations") if scope == "offload" else ("none",)


def _stages(
    degrees: Layout, nodes: Nodes, pins: LayoutPins, offload: Offload
) -> Iterator[tuple[int, int | None]]:
    """List (ZeRO stage, shard group). With model parallelism 0 and 2 lose to 1 and 3 in every respect."""
    ranks = degrees.dp * degrees.cp
    stages: tuple[int, ...] = (0, 1, 2, 3)
    if ranks == 1:
        stages = (0,)
    elif max(degrees.tp, degrees.pp, degrees.cp, degrees.ep) > 1:
        stages = (1, 3)
    if offload == "params+optimizer":
        stages = (3,)
    elif offload == "optimizer":
        stages = (1, 3) if ranks > 1 else (0,)
    in_node = max(1, nodes.gpus_per_node // degrees.tp)
    for stage in stages if pins.zero_stage is None else (pins.zero_stage,):
        if pins.shard_group is not None:
            yield stage, pins.shard_group
            continue
        yield stage, None
        if stage == 3 and nodes.num_nodes > 1 and 1 < in_node < ranks and ranks % in_node == 0:
            yield stage, in_node


def _pinned(pin: int | None, choices: Sequence[int]) -> Sequence[int]:
    return choices if pin is None else (pin,)


def _powers(limit: int) -> list[int]:
    """1, 2, 4 ... up to ``limit``, at least (1,)."""
    return [1 << k for k in range(max(1, limit).bit_length())]


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


# ---------------------------------------------------------------------------------- recompute and micro-batch


def smallest(table: Array, batch: BatchRule, pins: LayoutPins) -> tuple[Array, NDArray[np.int64]]:
    """Each mesh in its form that needs least memory (most recompute, smallest micro-batch), with its index.

    Where this does not fit, no form of the mesh does. Meshes that cannot make the global batch are left out.
    """
    return _expand(table, batch, pins, (_recomputes(pins)[-1],), first_only=True)


def expand(
    table: Array, batch: BatchRule, pins: LayoutPins, model: ModelSpec, seq_len: int
) -> tuple[Array, NDArray[np.int64]]:
    """Each mesh with each recompute and each micro-batch that makes the global batch, with its index."""
    cap = micro_batch_limit(model, seq_len)
    return _expand(table, batch, pins, _recomputes(pins), first_only=False, limit=cap)


def micro_batch_limit(model: ModelSpec, seq_len: int) -> int:
    """Sequences beyond which a larger micro-batch is not tried."""
    tokens = TOKENS_PER_MICRO_BATCH * max(1.0, FULL_WIDTH / model.hidden_size)
    return max(1, round(tokens / seq_len))


def _recomputes(pins: LayoutPins) -> tuple[int, ...]:
    return (0, 1, 2) if pins.recompute is None else (RECOMPUTE.index(pins.recompute),)


def _expand(
    table: Array,
    batch: BatchRule,
    pins: LayoutPins,
    recomputes: tuple[int, ...],
    first_only: bool,
    limit: int = 1,
) -> tuple[Array, NDArray[np.int64]]:
    """Multiply meshes x micro-batches x recomputes, without what breaks the batch rule."""
    per_rank = np.maximum(1, batch.sequences // table[ROW["dp"]]).astype(np.int64)
    sizes = _micro_batches(per_rank, pins, limit)
    mesh, size = (a.ravel() for a in np.indices((table.shape[1], len(sizes))))
    micro = sizes[size].astype(np.float64)
    accum = _accumulation(table, mesh, micro, batch, pins)
    keep = _batch_is_legal(table, mesh, micro, accum, batch, limit, pins)
    if first_only:
        keep &= _is_first(mesh, keep)
    picked = np.nonzero(keep)[0]
    codes = np.tile(np.array(recomputes, dtype=np.float64), len(picked))
    picked = np.repeat(picked, len(recomputes))
    source = mesh[picked]
    out = table[:, source]
    out[ROW["micro_batch"]] = micro[picked]
    out[ROW["grad_accum"]] = accum[picked]
    out[ROW["recompute"]] = codes
    return out, source


def _micro_batches(per_rank: NDArray[np.int64], pins: LayoutPins, limit: int) -> NDArray[np.int64]:
    """Powers of two, and those times the odd part of a rank's share of the batch, up to ``limit``."""
    if pins.micro_batch is not None:
        return np.array([pins.micro_batch])
    odd = {int(n) // (int(n) & -int(n)) for n in np.unique(per_rank)}
    top = int(per_rank.max(initial=1))
    sizes = {o * p for o in odd | {1} for p in _powers(top) if o * p <= max(1, min(top, limit))}
    return np.array(sorted(sizes))


def _accumulation(
    table: Array, mesh: NDArray[np.int64], micro: Array, batch: BatchRule, pins: LayoutPins
) -> Array:
    """Micro-batches per step: as pinned, else what comes nearest to the global batch."""
    if pins.grad_accum is not None:
        return np.full(micro.shape, float(pins.grad_accum))
    accum: Array = np.maximum(1.0, np.rint(batch.sequences / (table[ROW["dp"], mesh] * micro)))
    return accum


def _batch_is_legal(
    table: Array,
    mesh: NDArray[np.int64],
    micro: Array,
    accum: Array,
    batch: BatchRule,
    limit: int,
    pins: LayoutPins,
) -> NDArray[np.bool_]:
    """Which rows make the global batch, and keep a pipeline busy (accumulation at least ``pp``).

    Where sequences are fewer than GPUs, an idle pipeline may be all that is left.
    """
    made = table[ROW["dp"], mesh] * micro * accum
    allowed = 0.0 if batch.exact else BATCH_ROUNDING
    keep: NDArray[np.bool_] = np.abs(made / batch.sequences - 1.0) <= allowed + 1e-9
    if pins.grad_accum is not None and (pins.micro_batch is not None or not batch.exact):
        keep = np.ones_like(keep)
    pp, chunks = table[ROW["pp"], mesh], table[ROW["interleave"], mesh]
    if pins.grad_accum is None and pins.pp is None:
        row = {name: table[ROW[name], mesh] for name in ("dp", "tp", "cp")}
        scarce = batch.sequences < row["dp"] * row["tp"] * row["cp"] * pp
        keep &= (accum >= pp) | scarce
    keep &= (chunks == 1) | (accum % pp == 0)
    if pins.micro_batch is None:
        share = np.maximum(1, batch.sequences // table[ROW["dp"], mesh])
        keep &= (micro <= max(1, limit)) & ((micro == 2 ** np.rint(np.log2(micro))) | (share % micro == 0))
    return keep


def _is_first(mesh: NDArray[np.int64], keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the first kept row of each mesh; rows of a mesh lie together, smallest micro-batch first."""
    first = np.zeros_like(keep)
    kept = np.nonzero(keep)[0]
    _, index = np.unique(mesh[kept], return_index=True)
    first[kept[index]] = True
    return first
