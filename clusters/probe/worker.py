"""What every rank of a probe runs: the phases of one worker group, one after the other."""

from __future__ import annotations

import dataclasses
import gc
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
import ray.train
import torch
import torch.distributed as dist
from ray.actor import ActorHandle
from ray.train.torch import get_device

from . import collectives, entrypoint, hardware, measure, memory_cpu, precision, scale, step
from .board import Board, Reporter
from .model import count_on_meta
from .place import Place, find_place
from .refusals import refusal
from .request import Phase, ProbeRequest
from .results import CollectiveTiming
from .spec import Model, RefusedError, Run, read_plan

MEMORY_STEPS = 2  # the peak of a step is reached once optimizer states are there
GLOO_COLLECTIVES_S, OTHER_COLLECTIVES_S = 12.0, 60.0
PAIRS_S = 20.0
PAIR_BYTES = 16 * 2**20
MATMUL_SIZE = {"cpu": 512, "cuda": 8192}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one worker group does. ``depths``: numbers of layers to run, ``None`` = this group decides."""

    request: ProbeRequest
    phases: tuple[Phase, ...]
    board: ActorHandle[Board]
    depths: tuple[int, ...] | None = None

    @property
    def checks_precision(self) -> bool:
        """Whether the steps are followed by the check of the plan's precision."""
        return self.request.check_precision and "steps" in self.phases


def work(config: dict[str, Any]) -> dict[str, dict[int, object]]:
    """Run the phases of a task on this rank; rank 0 returns what every rank measured, by part and rank."""
    task: Task = config["task"]
    context = ray.train.get_context()
    device = get_device()
    torch.set_num_threads(max((os.cpu_count() or 1) // context.get_local_world_size(), 1))
    with Reporter(task.board, context.get_world_rank(), _node_name()) as report:
        report.at("start", 0, 1)
        place = find_place(context.get_node_rank(), _node_name(), device)
        report.put("place", place)
        if "hardware" in task.phases:
            report.at("hardware", 0, 1)
            report.put("hardware", hardware.read(task.request.expected, place))
        if "collectives" in task.phases:
            _collectives(task.request, place, report)
        if {"memory", "steps"} & set(task.phases):
            _model(task, place, report)
        return _gathered(report.parts)


def _node_name() -> str:
    """Name of this node for people."""
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return f"{socket.gethostname()} ({address})"


def _gathered(parts: Mapping[str, object]) -> dict[str, dict[int, object]]:
    """Parts of every rank, in the form of the board's."""
    told: list[dict[str, object]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(told, dict(parts))
    names = [name for each in told for name in each]
    return {name: {r: each[name] for r, each in enumerate(told) if name in each} for name in names}


# ---------------------------------------------------------------------------------------- collectives


def _collectives(request: ProbeRequest, place: Place, report: Reporter) -> None:
    """Time collectives, and pairs of ranks where the whole disappoints or crosses nodes."""
    most = request.max_collective_bytes or collectives.default_most_bytes(place.device)
    alone = place.device.type == "cpu" and place.num_nodes == 1
    budget_s = request.collectives_s or (GLOO_COLLECTIVES_S if alone else OTHER_COLLECTIVES_S)
    found = collectives.sweep(
        place,
        collectives.sweep_sizes(most),
        request.collectives,
        budget_s,
        repeats=5 * request.repeat,
        report=lambda done, of: report.at("collectives", done, of),
    )
    if place.rank == 0:
        report.put("collectives", found)
    if place.num_ranks > 1 and _disappoints(found.timings, request.min_busbw_bytes_per_s, place):
        pairs = collectives.slowest_pairs(place, min(PAIR_BYTES, most), PAIRS_S)
        if place.rank == 0:
            report.put("pairs", pairs)


def _disappoints(timings: Sequence[CollectiveTiming], floor: float | None, place: Place) -> bool:
    """Whether pairs are worth a look; every rank has the same timings and decides alike."""
    whole = [t for t in timings if t.op == "all_reduce" and t.ranks == place.num_ranks]
    if not whole or floor is None:
        return place.num_nodes > 1
    return max(whole, key=lambda t: t.bytes).busbw_bytes_per_s < floor


# ------------------------------------------------------------------------------- the model's own steps


def _model(task: Task, place: Place, report: Reporter) -> None:
    """Run the plan's step, or the user's loop, at every depth."""
    request, device = task.request, place.device
    report.at(_label(task), 0, 1)
    run = read_plan(request.plan)
    why = refusal(run, device.type, place.num_ranks)
    if request.entrypoint is not None:
        _own_loop(task, run, place, report)
        return
    if why:
        raise RefusedError(f"{run.model.name}: {why}")
    measure.check_count(run, request.num_params)
    _limit(request, device)
    _exercise(run, device)
    depths = task.depths or scale.depths(run, request.scale, _limits(request, place))
    if place.rank == 0:
        report.put("depths", depths)
    for layers in depths:
        _at_depth(task, scale.cut(run, layers), place, report)
    if task.checks_precision:
        shallow = scale.cut(run, depths[-1])
        told = precision.check(shallow, device, request.seed, lambda d, of: report.at("precision", d, of))
        if place.rank == 0:
            report.put("precision", told)


def _at_depth(task: Task, run: Run, place: Place, report: Reporter) -> None:
    """Build the step and run it: peak memory, times, or both from the same steps."""
    request, device, layers = task.request, place.device, run.model.num_layers
    baseline = measure.begin_memory(device)
    label = _label(task)
    trainer = measure.built(run, device, request.seed)
    if place.rank == 0:
        report.put(f"params {layers}", count_on_meta(run))  # what was built has as many
    timed = "steps" in task.phases
    warmup, count = (request.warmup_steps, request.num_steps * request.repeat) if timed else (0, MEMORY_STEPS)
    steps = measure.run_steps(trainer, warmup, count, request.seed, lambda d, of: report.at(label, d, of))
    if "memory" in task.phases:
        report.put(f"memory {layers}", measure.peak_memory(place.rank, device, baseline))
    if timed:
        report.put(f"steps {layers}", steps)
    del trainer
    gc.collect()


def _own_loop(task: Task, run: Run, place: Place, report: Reporter) -> None:
    """Run the user's loop instead of the plan's step; what it trains is the user's business."""
    request, timed = task.request, "steps" in task.phases
    assert request.entrypoint is not None
    loop = entrypoint.load(request.entrypoint)
    _limit(request, place.device)
    baseline = measure.begin_memory(place.device)
    counts = (request.warmup_steps, request.num_steps * request.repeat) if timed else (0, MEMORY_STEPS)
    context = entrypoint.LoopContext(
        request.plan,
        (place.rank, place.num_ranks, place.device),
        counts,
        request.seed,
        lambda done, of: report.at(_label(task), done, of),
    )
    loop(context)
    layers = run.model.num_layers
    if "memory" in task.phases:
        report.put(f"memory {layers}", measure.peak_memory(place.rank, place.device, baseline))
    if timed:
        report.put(f"steps {layers}", context.measured(entrypoint.tokens_per_step(run)))


def _label(task: Task) -> Phase:
    """Name of the phase while the model runs."""
    return "steps" if "steps" in task.phases else "memory"


def _limit(request: ProbeRequest, device: torch.device) -> None:
    """Let this rank hold no more than the request says."""
    most = request.memory_limit_bytes
    if most is None:
        return
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(most / total, 1.0), device)
    else:
        memory_cpu.limit(most)


def _limits(request: ProbeRequest, place: Place) -> scale.Limits:
    """What bounds a step, on the weakest rank: all ranks must choose the same depths."""
    device = place.device
    if device.type == "cuda":
        free: float = torch.cuda.mem_get_info(device)[0]
    else:
        sharing = len(place.ranks_of(place.node))
        free = memory_cpu.free_bytes() / sharing if memory_cpu.STATUS.exists() else float("inf")
    free = min(free, request.memory_limit_bytes or free)
    weakest = torch.tensor([free, matmul_flops_per_s(read_plan(request.plan), device)], device=device)
    dist.all_reduce(weakest, op=dist.ReduceOp.MIN)
    free_bytes, rate = weakest.tolist()
    return scale.Limits(
        free_bytes=free_bytes,
        flops_per_s=rate,
        max_step_s=request.max_step_s,
        predicted_bytes=request.predicted_bytes,
    )


def matmul_flops_per_s(run: Run, device: torch.device) -> float:
    """Rate of a square matrix multiply in the number format that the run computes in."""
    size = MATMUL_SIZE[device.type]
    dtype = torch.float32 if run.numerics == "fp32" else torch.bfloat16
    matrix = torch.ones(size, size, device=device, dtype=dtype)
    seconds = []
    for _ in range(3):
        measure.synchronize(device)
        started = time.perf_counter()
        torch.mm(matrix, matrix)
        measure.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return 2 * size**3 / min(seconds)


def _exercise(run: Run, device: torch.device) -> None:
    """Run a tiny model in the same layout: code that torch loads on first use is no memory of the plan's."""
    layout = run.layout
    heads = 2 * layout.tp
    tiny = Model(
        name="exercise",
        num_layers=layout.pp * layout.interleave,
        hidden_size=8 * heads,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=8,
        ffn_size=16 * layout.tp,
        vocab_size=64 * layout.tp,
    )
    training = dataclasses.replace(run.training, seq_len=8 * layout.tp, frozen_layers=0)
    small = Run(model=tiny, training=training, layout=dataclasses.replace(layout, micro_batch=1))
    trainer = step.build(small, device)
    for _ in range(2):
        step.train_step(trainer, step.synthetic_batches(trainer, 0))
