"""The search: every legal layout of many machine shapes through memory and speed, the best kept for each.

It works on tables (see ``layouts``). To stay small it uses what is monotone in the formulas: a mesh
whose smallest form does not fit has no form that does, and of the micro-batches that fit the largest are the
fastest (pipelines aside). Layouts decided that way count as tried: their verdict is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner import layouts, memory, speed
from planner.columns import Array, MachineColumns
from planner.grouping import Index, distinct, first_of, pairs
from planner.hardware.gpus import gpu
from planner.hardware.links import is_slow, link, machine_columns, take_machines
from planner.layouts import RECOMPUTE, ROW, BatchRule, Nodes, Scope
from planner.legality import optimizer_reason
from planner.model.count import count_params
from planner.search.physics import Physics, communication_share, physics_of
from planner.search.state import (
    OK,
    SLOW_LINK,
    TIGHT,
    TOO_BIG,
    TOO_BIG_FOR_HOST,
    TOO_BIG_TO_LOAD,
    Found,
    Lacking,
    Picks,
    State,
    simplest_of_the_fastest,
)
from planner.trust import nearness
from planner.trust.features import table_features
from planner.trust.nearness import Residuals
from planner.trust.residuals import Quantity
from planner.types import LayoutPins, ModelSpec, Shape, TrainingSpec

Mask = NDArray[np.bool_]

CHUNK_ROWS = 4096
BEHIND_SAFE = 1e6  # no layout is so much slower than another
BATCH_SHAPES = 128  # of a large model, searched at once
SLOW_LINK_SHARE = 0.5
# Below so many parameters the model is split only where data parallelism alone finds nothing that is ok.
SPLIT_FROM_PARAMS = 3e9
SPLIT_ADAPTERS_FROM_PARAMS = 30e9


@dataclass(frozen=True, slots=True)
class _Task:
    """One pass of the search: which layouts, under which training, judged how."""

    model: ModelSpec
    physics: Physics
    batch: BatchRule
    pins: LayoutPins
    headroom: float
    most_share: float  # of a step, that may wait for links
    scope: Scope
    variant: int
    preference: int
    known: Residuals


@dataclass(frozen=True, slots=True)
class _Rows:
    """Layouts on machines: a table, and for each of its columns the machine and how its memory is."""

    table: Array
    machine: Index
    host: Array  # bytes of host memory that a node needs
    alike: Index  # the same for layouts that differ by their micro-batch only
    safe: Mask  # the high end fits
    ok: Mask  # safe, and the headroom stays free


# ---------------------------------------------------------------------------------- the passes


def search(
    model: ModelSpec,
    training: TrainingSpec,
    batch: BatchRule,
    pins: LayoutPins,
    shapes: Sequence[Shape],
    headroom: float,
    *,
    free_optimizer: bool,
    allow_slow_link: bool,
    known: Residuals | None = None,
) -> Found:
    """Search all layouts of all shapes.

    First data parallelism, and splitting the model where it is large. Then, for shapes without an ok layout,
    splits and 8-bit optimizer states (where the user left the optimizer free). Last, for shapes where nothing
    fits, offload, and splits of a small model with adapters, which few frameworks train that way.
    """
    trainings = [training]
    if free_optimizer and training.optimizer == "adamw" and training.method in ("pretrain", "full"):
        trainings.append(training.model_copy(update={"optimizer": "adamw-8bit"}))
    physics = [physics_of(model, t) for t in trainings]
    state = State(len(shapes))
    most = np.inf if allow_slow_link else SLOW_LINK_SHARE
    large = float(physics[0].model.params_total) >= SPLIT_FROM_PARAMS
    for variant, scope, preference, where in _passes(
        len(trainings), _split_where(model, training, pins), pins
    ):
        todo = state.lacking(where)
        allowed = [optimizer_reason(gpu(shapes[i].gpu), trainings[variant].optimizer) is None for i in todo]
        todo = todo[np.array(allowed, dtype=bool)]
        if len(todo):
            task = _Task(
                model,
                physics[variant],
                batch,
                pins,
                headroom,
                most,
                scope,
                variant,
                preference,
                known or nearness.shipped(),
            )
            for part in _portions(shapes, todo, BATCH_SHAPES if large else len(shapes)):
                _run(task, shapes, part, state)
    return state.found(tuple(trainings))


def _split_where(model: ModelSpec, training: TrainingSpec, pins: LayoutPins) -> Lacking:
    """Which shapes the model is split on."""
    params = count_params(model).total
    adapters = training.method in ("lora", "qlora")
    if layouts.splits(pins) or params >= (SPLIT_ADAPTERS_FROM_PARAMS if adapters else SPLIT_FROM_PARAMS):
        return "all"
    return "nothing fits" if adapters else "nothing ok"


def _passes(
    num_trainings: int, split_where: Lacking, pins: LayoutPins
) -> Iterable[tuple[int, Scope, int, Lacking]]:
    """(variant, scope, preference, which shapes) in order."""
    yield 0, "data-parallel", 0, "all"
    yield 0, "model-parallel", 0, split_where
    if num_trainings > 1:
        yield 1, "data-parallel", 1, "nothing ok"
        yield 1, "model-parallel", 1, "nothing ok"
    if pins.offload is None:
        yield 0, "offload", 2, "nothing fits"


def _portions(shapes: Sequence[Shape], todo: Index, size: int) -> Iterable[Index]:
    """Cut into portions, machines of a kind together, so that a large space is never in memory at once."""
    order = sorted(todo.tolist(), key=lambda i: (shapes[i].gpus_per_node, shapes[i].num_nodes, i))
    for start in range(0, len(order), size):
        yield np.array(order[start : start + size])


def _run(task: _Task, shapes: Sequence[Shape], todo: Index, state: State) -> None:
    """One pass over the shapes ``todo``."""
    machines, machine_of = distinct([_memory_key(shapes[i]) for i in todo])
    representative = [shapes[todo[m]] for m in machines]
    columns = machine_columns(representative, [task.physics.training_spec.precision] * len(representative))
    rows = _fitting(task, representative, columns, machine_of, todo, state)
    if rows.table.shape[1]:
        state.hit(_fastest(task, shapes, todo, machine_of, _largest(rows)))


def _memory_key(shape: Shape) -> tuple[object, ...]:
    """Tell apart what layouts and memory depend on: of links, those inside a node (buffers of NCCL)."""
    intra = shape.links.intra if shape.gpus_per_node > 1 else ""
    return shape.gpu, shape.gpus_per_node, shape.num_nodes, tensor_reach(shape), intra


def tensor_reach(shape: Shape) -> float:
    """GPUs that tensor parallel may span: a node, or what its switch joins; 1 over a slow link."""
    if shape.gpus_per_node > 1 and is_slow(shape.links, across_nodes=False):
        return 1.0
    return max(float(shape.gpus_per_node), link(shape.links.intra).domain_gpus)


def _speed_key(shape: Shape) -> tuple[object, ...]:
    """Tell apart what speed depends on: the link between nodes only where there are several."""
    links = shape.links
    inter = (links.inter, links.inter_gbit_per_s) if shape.num_nodes > 1 else ()
    intra = links.intra if shape.gpus_per_node > 1 else ""
    return (*_memory_key(shape), intra, *inter)


# ---------------------------------------------------------------------------------- memory


def _fitting(
    task: _Task, machines: Sequence[Shape], columns: MachineColumns, of: Index, todo: Index, state: State
) -> _Rows:
    """Layouts that fit in memory, on each machine; those that do not are remembered as misses."""
    meshes, machine = _all_meshes(task, machines, state, np.bincount(of, minlength=len(machines)))
    smallest, source = layouts.smallest(meshes, task.batch, task.pins)
    peak = _memory(task, machines, smallest, columns, machine[source])
    broken = _broken(peak, columns, machine[source])
    _remember_misses(task, smallest, machine[source], peak, broken, of, todo, state)
    fits = broken == 0
    table, origin = layouts.expand(
        meshes[:, source[fits]], task.batch, task.pins, task.model, task.physics.training_spec.seq_len
    )
    machine = machine[source[fits]][origin]
    peak = _memory(task, machines, table, columns, machine)
    fits = _broken(peak, columns, machine) == 0
    usable = np.atleast_1d(columns.usable_memory_bytes)[machine]
    safe = peak.device * _device_high(task, machines, table, machine) <= usable
    ok = safe & (peak.reserved <= usable * (1.0 - task.headroom))
    alike = origin * len(RECOMPUTE) + table[ROW["recompute"]].astype(np.int64)
    return _Rows(table[:, fits], machine[fits], peak.host[fits], alike[fits], safe[fits], ok[fits])


def _broken(peak: _Peak, columns: MachineColumns, machine: Index) -> Index:
    """Which limit each layout breaks, 0 for none. Host memory that nobody states breaks nothing here."""
    usable = np.atleast_1d(columns.usable_memory_bytes)[machine]
    host = np.atleast_1d(columns.host_memory_bytes)[machine]
    broken = np.where(peak.host > host, TOO_BIG_FOR_HOST, 0)
    broken = np.where(peak.load > usable, TOO_BIG_TO_LOAD, broken)
    return np.where(peak.device > usable, TOO_BIG, broken)


def _device_high(task: _Task, machines: Sequence[Shape], table: Array, machine: Index) -> Array:
    """High end of device memory over its mid value."""
    kinds, of = table_features(
        task.model, task.physics.training_spec, machines, table, machine, figure="device"
    )
    found = nearness.spreads("device", kinds, task.known)
    high: Array = (found.high / found.middle)[of]
    return high


def _middle(
    task: _Task, quantity: Quantity, shapes: Sequence[Shape], table: Array, machine: Index
) -> Array | float:
    """Factor by which the user's own runs correct memory or step time."""
    if not task.known.has_own:
        return 1.0
    kinds, of = table_features(task.model, task.physics.training_spec, shapes, table, machine, figure="own")
    middle: Array = nearness.spreads(quantity, kinds, task.known).middle[of]
    return middle


def _all_meshes(
    task: _Task, machines: Sequence[Shape], state: State, shapes_of_machine: Index
) -> tuple[Array, Index]:
    """Meshes of every machine in one table, with the machine of each; their layouts are counted."""
    groups: dict[Nodes, list[int]] = {}
    anywhere = not np.isfinite(task.most_share)
    for i, shape in enumerate(machines):
        reach = np.inf if anywhere and task.pins.tp else tensor_reach(shape)
        groups.setdefault(Nodes(shape.gpus_per_node, shape.num_nodes, reach), []).append(i)
    tables, owners = [np.empty((len(ROW), 0))], [np.empty(0, dtype=np.int64)]
    training = task.physics.training_spec
    for nodes, members in groups.items():
        table = _meshes(task.model, training, nodes, task.pins, task.scope)
        counted = layouts.expand(table, task.batch, task.pins, task.model, training.seq_len)[0]
        state.count(counted, int(sum(shapes_of_machine[m] for m in members)), task.variant)
        tables.append(np.tile(table, len(members)))
        owners.append(np.repeat(np.array(members), table.shape[1]))
    return np.concatenate(tables, axis=1), np.concatenate(owners)


@lru_cache(maxsize=1024)
def _meshes(model: ModelSpec, training: TrainingSpec, nodes: Nodes, pins: LayoutPins, scope: Scope) -> Array:
    """Meshes of one machine size, made once."""
    return layouts.meshes(model, training, nodes, pins, scope)


@dataclass(frozen=True, slots=True)
class _Peak:
    """What the search keeps of a memory estimate."""

    device: Array
    reserved: Array
    load: Array
    host: Array


def _memory(
    task: _Task, shapes: Sequence[Shape], table: Array, machines: MachineColumns, machine: Index
) -> _Peak:
    """Memory of each layout of a table on its machine, some thousand rows at a time."""
    n, physics = table.shape[1], task.physics
    peak = _Peak(np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    for start in range(0, n, CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        layout = layouts.columns_of(table[:, part])
        found = memory.estimate(
            physics.model, physics.training, layout, take_machines(machines, machine[part])
        )
        peak.device[part], peak.reserved[part] = found.device, found.reserved
        peak.load[part], peak.host[part] = found.load, found.host
    middle = _middle(task, "device", shapes, table, machine)
    return _Peak(peak.device * middle, peak.reserved * middle, peak.load, peak.host)


def _remember_misses(
    task: _Task,
    table: Array,
    machine: Index,
    peak: _Peak,
    broken: Index,
    of: Index,
    todo: Index,
    state: State,
) -> None:
    """For each shape the layout that needs least, with what it breaks."""
    need = np.maximum(peak.device, peak.load)
    order = np.lexsort((need, broken == TOO_BIG, machine))
    first = order[np.unique(machine[order], return_index=True)[1]]
    position = np.full(int(machine.max(initial=-1)) + 1, -1)
    position[machine[first]] = first
    known = of < len(position)
    row = np.where(known, position[np.where(known, of, 0)] if len(position) else -1, -1)
    has = row >= 0
    last = task.scope == "offload"
    state.miss(todo[has], need[row[has]], table[:, row[has]], broken[row[has]], task.variant, last=last)


# ---------------------------------------------------------------------------------- speed


def _largest(rows: _Rows) -> _Rows:
    """Of layouts alike but for the micro-batch, the two largest that are ok, the largest that is safe and
    the largest that fits.

    Pipelines keep all: a smaller micro-batch has a smaller bubble.
    """
    keep = rows.table[ROW["pp"]] > 1
    size = rows.table[ROW["micro_batch"]]
    for chosen, count in ((rows.ok, 2), (rows.safe, 1), (np.ones_like(rows.ok), 1)):
        index = np.nonzero(chosen)[0]
        order = index[np.lexsort((-size[index], rows.alike[index]))]
        starts = np.searchsorted(rows.alike[order], rows.alike[order])
        keep[order[np.arange(len(order)) - starts < count]] = True
    kept = (part[keep] for part in (rows.machine, rows.host, rows.alike, rows.safe, rows.ok))
    return _Rows(rows.table[:, keep], *kept)


def _fastest(task: _Task, shapes: Sequence[Shape], todo: Index, machine_of: Index, rows: _Rows) -> Picks:
    """Time each layout on every link that its machine comes with; keep the fastest of each grade.

    A layout that only its middle figure lets fit stands behind every safe one of its grade.
    """
    linked, link_of = distinct([_speed_key(shapes[i]) for i in todo])
    on = [shapes[todo[i]] for i in linked]
    columns = machine_columns(on, [task.physics.training_spec.precision] * len(linked))
    row, link = pairs(rows.machine, machine_of[linked])
    table = rows.table[:, row]
    step_s, tokens, share = _time(task.physics, table, columns, link)
    step_s = step_s * _middle(task, "step", on, table, link)
    grade = np.where(rows.ok[row], OK, TIGHT)
    grade[share > task.most_share] = SLOW_LINK
    unsafe = (grade == TIGHT) & ~rows.safe[row]
    group, per_token = link * 3 + grade, step_s / tokens * np.where(unsafe, BEHIND_SAFE, 1.0)
    simplest = simplest_of_the_fastest(group, table, per_token, np.zeros_like(link))
    best = np.union1d(simplest, first_of((group,), (per_token,)))
    shape, pick = pairs(link[best], link_of)[::-1]
    chosen = best[pick]
    return Picks(
        shape=todo[shape],
        table=table[:, chosen],
        grade=grade[chosen],
        variant=np.full(len(chosen), task.variant),
        preference=np.full(len(chosen), task.preference),
        step_s=step_s[chosen],
        tokens_per_step=tokens[chosen],
        host_bytes=rows.host[row[chosen]],
    )


def _time(
    physics: Physics, table: Array, machines: MachineColumns, machine: Index
) -> tuple[Array, Array, Array]:
    """(step seconds, tokens per step, share of the step that waits for links) of each layout."""
    n = table.shape[1]
    step_s, tokens, share = np.empty(n), np.empty(n), np.empty(n)
    for start in range(0, n, CHUNK_ROWS):
        part = slice(start, start + CHUNK_ROWS)
        layout = layouts.columns_of(table[:, part])
        found = speed.estimate(
            physics.model, physics.training, physics.execution, layout, take_machines(machines, machine[part])
        )
        step_s[part], tokens[part] = found.step_s, found.tokens_per_step
        share[part] = communication_share(found)
    return step_s, tokens, share
