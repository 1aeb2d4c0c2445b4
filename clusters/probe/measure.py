"""The plan's own optimizer steps, timed on each rank, and the peak memory of a rank while they run."""

from __future__ import annotations

import gc
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from . import memory_cpu, step
from .failures import WrongCountError
from .lora import is_adapter
from .memory_cpu import Held
from .model import count_on_meta, num_params
from .parallel import unwrap
from .place import settle
from .results import MeasuredSteps, RankMemory
from .spec import Run

SMI_TIMEOUT_S = 15.0
MIB = 2**20

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """Timed steps of one rank. ``loss``: mean over all ranks, before each update, warm-up included."""

    seconds: tuple[float, ...]
    loader_seconds: tuple[float, ...]
    loss: tuple[float, ...]
    tokens_per_step: int


def built(run: Run, device: torch.device, seed: int) -> step.Trainer:
    """Build the plan's step, and hold its real parameters against the spec's. Raises ``WrongCountError``."""
    trainer = step.build(run, device, seed=seed)
    counted, expected = real_params(trainer), count_on_meta(run)
    if counted != expected:
        raise WrongCountError(f"the model that was built has {counted:,} parameters, its spec {expected:,}")
    return trainer


def close(trainer: step.Trainer) -> None:
    """End the process groups of a trainer that is not needed any more: NCCL's hold memory of the GPU."""
    settle(trainer.device)
    for group in trainer.mesh.get_all_groups() if trainer.mesh is not None else ():
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)


def check_count(run: Run, expected: int | None) -> None:
    """Hold the spec's parameters against what the planner counts. Raises ``WrongCountError``."""
    counted = count_on_meta(run)
    if expected is not None and counted != expected:
        raise WrongCountError(
            f"{run.model.name} has {counted:,} parameters, the plan was reckoned with {expected:,}"
        )


def real_params(trainer: step.Trainer) -> int:
    """Parameters of the real model, adapters aside: all stages of a pipeline, shards at their full size."""
    stages = trainer.model if isinstance(trainer.model, nn.ModuleList) else [unwrap(trainer.model)]
    adapters = sum(
        parameter.numel()
        for stage in stages
        for name, parameter in stage.named_parameters()
        if is_adapter(name)
    )
    count = sum(num_params(stage) for stage in stages) - adapters
    if trainer.run.layout.pp == 1:
        return count
    assert trainer.mesh is not None
    total = torch.tensor(count, device=trainer.device)
    dist.all_reduce(total, group=trainer.mesh["pipeline"].get_group())
    return int(total)


def run_steps(trainer: step.Trainer, warmup: int, count: int, seed: int, report: Report) -> RankSteps:
    """Run optimizer steps, and time those after warm-up. The tokens stay the same, so the loss must fall."""
    seconds, loading, losses = [], [], []
    for number in range(warmup + count):
        settle(trainer.device)
        started = time.perf_counter()
        batches = step.synthetic_batches(trainer, 0, seed)
        loaded = time.perf_counter()
        losses.append(step.train_step(trainer, batches))
        settle(trainer.device)
        ended = time.perf_counter()
        if number >= warmup:
            seconds.append(ended - started)
            loading.append(loaded - started)
        report(number + 1, warmup + count)
    layout = trainer.run.layout
    return RankSteps(
        seconds=tuple(seconds),
        loader_seconds=tuple(loading),
        loss=mean_losses(losses),
        tokens_per_step=layout.dp * layout.micro_batch * layout.grad_accum * trainer.run.training.seq_len,
    )


def mean_losses(losses: list[torch.Tensor]) -> tuple[float, ...]:
    """Mean of each step's loss over all ranks, in one collective."""
    together = torch.stack([loss.float() for loss in losses])
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(together)
        together /= dist.get_world_size()
    return tuple(together.tolist())


def joined(ranks: list[RankSteps]) -> MeasuredSteps:
    """Steps of all ranks as one record: each step is as long as its slowest rank takes."""
    return MeasuredSteps(
        seconds=tuple(max(each) for each in zip(*(rank.seconds for rank in ranks), strict=True)),
        median_s_by_rank=tuple(statistics.median(rank.seconds) for rank in ranks),
        loader_s=max(statistics.median(rank.loader_seconds) for rank in ranks),
        tokens_per_step=ranks[0].tokens_per_step,
        loss=ranks[0].loss,
    )


# --------------------------------------------------------------------------------------------- memory


def begin_memory(device: torch.device) -> Held | None:
    """Drop what is left of earlier work and let peaks begin now; returns the baseline on a CPU."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return None
    if not memory_cpu.STATUS.exists():
        return None
    memory_cpu.reset_peak()
    return memory_cpu.held()


def peak_memory(rank: int, device: torch.device, baseline: Held | None) -> RankMemory:
    """Peak since ``begin_memory``: of torch's allocator on a GPU, of the process on a CPU."""
    if device.type == "cuda":
        stats = torch.cuda.memory_stats(device)
        return RankMemory(
            rank=rank,
            allocated_bytes=float(torch.cuda.max_memory_allocated(device)),
            reserved_bytes=float(torch.cuda.max_memory_reserved(device)),
            device_bytes=device_bytes(device),
            num_alloc_retries=int(stats.get("num_alloc_retries", 0)),
            num_ooms=int(stats.get("num_ooms", 0)),
        )
    return RankMemory(
        rank=rank,
        allocated_bytes=None,
        reserved_bytes=None if baseline is None else float(memory_cpu.peak_above(baseline)),
        device_bytes=None,
        num_alloc_retries=None,
        num_ooms=None,
    )


def device_bytes(device: torch.device) -> float | None:
    """Bytes in use on the GPU as its driver says, ``None`` where ``nvidia-smi`` cannot say."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    words = [tool, f"--id={uuid}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=True)
        return float(done.stdout.strip()) * MIB
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
