"""What every rank of a probe runs: the phases of one worker group, one after the other."""

from __future__ import annotations

import dataclasses
import gc
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
import ray.train
import torch
import torch.distributed as dist
from ray.actor import ActorHandle
from ray.train.torch import get_device

from . import alone, collectives, entrypoint, hardware, measure, memory_cpu, precision, scale, step
from .board import Board, Reporter
from .model import count_on_meta
from .place import Place, find_place, settle
from .refusals import refusal
from .request import Phase, ProbeRequest
from .results import CollectiveTiming
from .spec import Model, RefusedError, Run, read_plan

# The second step has optimizer states; DDP makes its buckets anew before it, and a CPU has no memory for
# them until something is written: all is there in the third
MEMORY_STEPS = 3
GLOO_COLLECTIVES_S, OTHER_COLLECTIVES_S = 12.0, 60.0
PAIRS_S = 20.0
PAIR_BYTES = 16 * 2**20
MATMUL_SIZE = {"cpu": 512, "cuda": 8192}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the ranks do, and the board that they write on."""

    request: ProbeRequest
    board: ActorHandle[Board]

    def passes(self, device: torch.device) -> tuple[tuple[Phase, ...], ...]:
        """Phases in order; those in one tuple are served by the same steps.

        On a CPU memory and time need steps of their own, and memory comes before collectives: blocks that
        the allocator keeps from them would be used again.
        """
        on_gpu: tuple[tuple[Phase, ...], ...] = (("hardware",), ("collectives",), ("memory", "steps"))
        on_cpu: tuple[tuple[Phase, ...], ...] = (("hardware",), ("memory",), ("collectives",), ("steps",))
        wanted = self.request.phases
        every = (
            tuple(phase for phase in each if phase in wanted)
            for each in (on_gpu if device.type == "cuda" else on_cpu)
        )
        return tuple(each for each in every if each)


def work(config: dict[str, Any]) -> dict[str, dict[int, object]]:
    """Run the phases of a task on this rank; rank 0 returns what every rank measured, by part and rank."""
    task: Task = config["task"]
    context = ray.train.get_context()
    device = get_device()
    torch.set_num_threads(max((os.cpu_count() or 1) // context.get_local_world_size(), 1))
    with Reporter(task.board, context.get_world_rank(), _node_name()) as report:
        report.at("start", 0, 1)
        passes = task.passes(device)
        _set_allocator(task.request.phases, device)
        place = find_place(context.get_node_rank(), _node_name(), device)
        report.put("place", place)
        model: Callable[[Sequence[Phase]], None] | None = None
        for phases in passes:
            report.at(phases[0], 0, 1)
            if "hardware" in phases:
                report.put("hardware", hardware.read(task.request.expected, place))
                continue
            _set_allocator(phases, device)
            if "collectives" in phases:
                _collectives(task.request, place, report)
            else:
                model = model or _model(task.request, place, report)
                with _limited(task.request, device):
                    model(phases)
        _check_precision(task.request, place, report)
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


def _model(request: ProbeRequest, place: Place, report: Reporter) -> Callable[[Sequence[Phase]], None]:
    """Get ready to run the plan's step at every depth, or the user's loop."""
    device, run = place.device, read_plan(request.plan)
    if request.entrypoint is not None:
        loop = entrypoint.load(request.entrypoint)
        return lambda phases: _users_loop(loop, request, phases, place, report)
    why = refusal(run, device.type, place.num_ranks)
    if why:
        raise RefusedError(f"{run.model.name}: {why}")
    measure.check_count(run, request.num_params)
    if device.type == "cpu":
        _exercise(run, device)
    limits = _limits(request, place)
    depths = scale.depths(run, request.scale, limits)
    report.put("depths", depths)
    if device.type == "cuda" and "steps" in request.phases:
        report.put("layer alone", alone.layer_seconds(run, device, limits.free_bytes))

    def at_every_depth(phases: Sequence[Phase]) -> None:
        for layers in depths:
            _at_depth(request, phases, scale.cut(run, layers), place, report)

    return at_every_depth


def _at_depth(
    request: ProbeRequest, phases: Sequence[Phase], run: Run, place: Place, report: Reporter
) -> None:
    """Build the step and run it: peak memory, times, or both from the same steps."""
    device, layers = place.device, run.model.num_layers
    warmup, count = _counts(request, phases)
    baseline = measure.begin_memory(device)
    trainer = measure.built(run, device, request.seed)
    if place.rank == 0:
        report.put(f"params {layers}", count_on_meta(run))  # what was built has as many
    steps = measure.run_steps(trainer, warmup, count, request.seed, _telling(report, phases, warmup))
    if "memory" in phases:
        report.put(f"memory {layers}", measure.peak_memory(place.rank, device, baseline))
    if "steps" in phases:
        report.put(f"steps {layers}", steps)
    measure.close(trainer)
    del trainer
    gc.collect()


def _users_loop(
    loop: entrypoint.Loop, request: ProbeRequest, phases: Sequence[Phase], place: Place, report: Reporter
) -> None:
    """Run the user's loop instead of the plan's step; what it trains is the user's business."""
    device, run = place.device, read_plan(request.plan)
    counts = _counts(request, phases)
    baseline = measure.begin_memory(device)
    at = (place.rank, place.num_ranks, device)
    telling = _telling(report, phases, counts[0])
    context = entrypoint.LoopContext(request.plan, at, counts, request.seed, telling)
    loop(context)
    if "memory" in phases:
        report.put(f"memory {run.model.num_layers}", measure.peak_memory(place.rank, device, baseline))
    if "steps" in phases:
        report.put(f"steps {run.model.num_layers}", context.measured(entrypoint.tokens_per_step(run)))


def _check_precision(request: ProbeRequest, place: Place, report: Reporter) -> None:
    """Compare the plan's precision with fp32, where that is asked for, at the depth that ran."""
    depths = report.parts.get("depths")
    if not request.check_precision or not isinstance(depths, tuple):
        return
    report.at("precision", 0, 1)
    run = scale.cut(read_plan(request.plan), depths[-1])
    told = precision.check(run, place.device, request.seed, lambda d, of: report.at("precision", d, of))
    if place.rank == 0:
        report.put("precision", told)


def _counts(request: ProbeRequest, phases: Sequence[Phase]) -> tuple[int, int]:
    """Steps of warm-up, and steps after it."""
    if "steps" not in phases:
        return 0, MEMORY_STEPS
    return request.warmup_steps, request.num_steps * request.repeat


def _telling(report: Reporter, phases: Sequence[Phase], warmup: int) -> measure.Report:
    """Progress of steps: where both are measured, memory's phase is the warm-up."""
    return lambda done, of: report.at(phases[0] if done < warmup else phases[-1], done, of)


def _set_allocator(phases: Sequence[Phase], device: torch.device) -> None:
    """On a CPU: freed memory goes back until memory has been measured, and is kept from then on."""
    if device.type == "cpu":
        memory_cpu.keep_freed(keep="memory" not in phases)


@contextmanager
def _limited(request: ProbeRequest, device: torch.device) -> Iterator[None]:
    """Let this rank hold no more than the request says. An error leaves the limit: it says what was free."""
    most = request.memory_limit_bytes
    if most is None:
        yield
    elif device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(most / total, 1.0), device)
        yield
        torch.cuda.set_per_process_memory_fraction(1.0, device)
    else:
        memory_cpu.limit(most)
        yield
        memory_cpu.lift_limit()


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
        settle(device)
        started = time.perf_counter()
        torch.mm(matrix, matrix)
        settle(device)
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
    measure.close(trainer)
