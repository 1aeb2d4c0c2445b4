"""Pipeline parallelism through ``torch.distributed.pipelining``: 1F1B, or interleaved 1F1B.

Stage s of rank r's chunk c is ``c x pp + r`` (arXiv 2104.04473 section 2.2); earlier stages take the layers
that do not divide evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor

from .parallel import build_model
from .spec import Run

Schedule = Schedule1F1B | ScheduleInterleaved1F1B
LossFunction = Callable[[Tensor, Tensor], Tensor]


def stage_layers(num_layers: int, num_stages: int, stage: int) -> range:
    """Layers of one stage."""
    each, left = divmod(num_layers, num_stages)
    start = stage * each + min(stage, left)
    return range(start, start + each + (stage < left))


def build_stages(run: Run, device: torch.device, mesh: DeviceMesh, seed: int) -> nn.ModuleList:
    """Build the stages that this rank holds."""
    count, rank = run.layout.pp * run.layout.interleave, mesh["pipeline"].get_local_rank()
    return nn.ModuleList(
        build_model(run, device, mesh, seed, stage_layers(run.model.num_layers, count, stage))
        for stage in range(rank, count, run.layout.pp)
    )


def build_schedule(
    run: Run, device: torch.device, mesh: DeviceMesh, stages: nn.ModuleList, loss: LossFunction
) -> Schedule:
    """Build the schedule of one step: ``grad_accum`` micro-batches through all stages and back."""
    layout, group = run.layout, mesh["pipeline"].get_group()
    count, rank = layout.pp * layout.interleave, mesh["pipeline"].get_local_rank()
    parts = [
        PipelineStage(module, rank + chunk * layout.pp, count, device, group=group)
        for chunk, module in enumerate(stages)
    ]
    if layout.interleave == 1:
        return Schedule1F1B(parts[0], layout.grad_accum, loss_fn=loss)
    return ScheduleInterleaved1F1B(list(parts), layout.grad_accum, loss_fn=loss)


def run_schedule(
    schedule: Schedule, mesh: DeviceMesh, batches: Sequence[tuple[Tensor, Tensor]], *, train: bool
) -> Tensor:
    """One pass of all micro-batches, with backward where it trains. Every stage gets their mean loss."""
    tokens, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    pipeline = mesh["pipeline"]
    rank = pipeline.get_local_rank()
    last = rank == pipeline.size() - 1
    inputs = (tokens,) if rank == 0 else ()
    losses: list[Tensor] | None = [] if last else None
    if train:
        schedule.step(*inputs, target=targets if last else None, losses=losses, return_outputs=False)
    else:
        schedule.eval(*inputs, target=targets if last else None, losses=losses)
    total = torch.zeros((), device=tokens.device)
    if losses:
        total = torch.stack([_plain(part) for part in losses]).mean()
    dist.all_reduce(total, group=pipeline.get_group())
    return total


def _plain(loss: Tensor) -> Tensor:
    """Loss as a plain tensor, where tensor-parallel ranks share it."""
    loss = loss.detach()
    return loss.full_tensor() if isinstance(loss, DTensor) else loss
