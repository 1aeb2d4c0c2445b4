"""One optimizer step of a plan on the real model of its spec. ``examples/train_gpt`` trains with it.

Numerics are those of the planner's profile ``plan``: fp32 weights under autocast where weights are whole
(one rank, DDP), FSDP2 with fp32 shards and bf16 compute where they are sharded, fused AdamW, fused attention,
plain cross-entropy over logits copied to fp32. What cannot be run is refused by name (``refusals.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

from .optimizers import Optimizers, build_optimizer
from .parallel import build_mesh, build_model, compute_dtype, data_rank
from .pipeline import Schedule, build_schedule, build_stages, run_schedule
from .refusals import refusal
from .spec import RefusedError, Run

LEARNING_RATE = 3e-4
IGNORED = -100

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Trainer:
    """A model spread over ranks and its optimizer: what ``train_step`` works on."""

    run: Run
    device: torch.device
    mesh: DeviceMesh | None
    model: nn.Module
    optimizer: Optimizers
    scaler: torch.amp.GradScaler | None
    schedule: Schedule | None = None


def build(run: Run, device: torch.device, seed: int = 0, learning_rate: float = LEARNING_RATE) -> Trainer:
    """Build model and optimizer of ``run`` on this rank.

    With several ranks ``torch.distributed`` must be up. Raises ``RefusedError`` where the step cannot run
    the plan.
    """
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    why = refusal(run, device.type, ranks)
    if why:
        raise RefusedError(f"{run.model.name}: {why}")
    torch.set_float32_matmul_precision("high" if run.training.precision == "tf32" else "highest")
    mesh = build_mesh(run, device.type)
    schedule: Schedule | None = None
    if run.layout.pp > 1:
        assert mesh is not None
        stages = build_stages(run, device, mesh, seed)
        schedule = build_schedule(run, device, mesh, stages, cross_entropy)
        model: nn.Module = stages
    else:
        model = build_model(run, device, mesh, seed)
    scaled = run.training.precision == "fp16"
    return Trainer(
        run=run,
        device=device,
        mesh=mesh,
        model=model,
        optimizer=build_optimizer(run, model, learning_rate),
        scaler=torch.amp.GradScaler(device.type) if scaled else None,
        schedule=schedule,
    )


def train_step(trainer: Trainer, batches: Sequence[Batch]) -> Tensor:
    """Run one optimizer step over ``grad_accum`` micro-batches of (tokens, targets).

    Returns this rank's mean loss before the update, still on the device.
    """
    accumulated = trainer.run.layout.grad_accum
    if len(batches) != accumulated:
        raise ValueError(f"{len(batches)} micro-batches for {accumulated} of the layout")
    trainer.model.train()
    if trainer.schedule is not None:
        total = _pipelined(trainer, trainer.schedule, batches, train=True)
        trainer.optimizer.step(trainer.scaler)
        return total
    total = torch.zeros((), device=trainer.device)
    for index, (tokens, targets) in enumerate(batches):
        with _synchronized(trainer.model, last=index == accumulated - 1), _loss_split(trainer):
            loss = forward_loss(trainer, tokens, targets) / accumulated
            total += _local(loss.detach())
            backward = loss if trainer.scaler is None else trainer.scaler.scale(loss)
            torch.autograd.backward(backward)
    trainer.optimizer.step(trainer.scaler)
    return total


def forward_loss(trainer: Trainer, tokens: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of one micro-batch; positions whose target is ``IGNORED`` do not count."""
    with _autocast(trainer):
        logits = trainer.model(tokens)
    return cross_entropy(logits, targets)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Plain cross-entropy over logits copied to fp32."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)


def _pipelined(trainer: Trainer, schedule: Schedule, batches: Sequence[Batch], *, train: bool) -> Tensor:
    """All micro-batches through the stages of all ranks."""
    assert trainer.mesh is not None
    with _autocast(trainer), _loss_split(trainer):
        return run_schedule(schedule, trainer.mesh, batches, train=train)


@torch.no_grad()
def evaluate(trainer: Trainer, batches: Sequence[Batch]) -> Tensor:
    """Mean loss of this rank over ``batches``, without training."""
    trainer.model.eval()
    if trainer.schedule is not None:
        return _pipelined(trainer, trainer.schedule, batches, train=False)
    total = torch.zeros((), device=trainer.device)
    for tokens, targets in batches:
        with _loss_split(trainer):
            total += _local(forward_loss(trainer, tokens, targets)) / len(batches)
    return total


def mean_over_ranks(value: Tensor) -> float:
    """Mean of a figure over all ranks (ranks of one tensor-parallel group hold the same)."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        value = value.clone()
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return float(value)


def synthetic_batches(trainer: Trainer, step: int, seed: int = 0) -> list[Batch]:
    """Random tokens of one step for this rank; the same for the same seed, step and data rank."""
    run = trainer.run
    rank = data_rank(run, dist.get_rank() if dist.is_initialized() else 0)
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step * 4099 + rank)
    shape = (run.layout.micro_batch, run.training.seq_len + 1)
    rows = [
        torch.randint(run.model.vocab_size, shape, generator=generator) for _ in range(run.layout.grad_accum)
    ]
    return [as_batch(row, trainer) for row in rows]


def as_batch(row: Tensor, trainer: Trainer) -> Batch:
    """(tokens, targets) from rows of ``seq_len + 1`` tokens: the next token, or for an encoder the same."""
    row = row.to(trainer.device)
    if trainer.run.model.kind == "encoder":
        return row[:, :-1], row[:, :-1]
    return row[:, :-1], row[:, 1:]


def _autocast(trainer: Trainer) -> contextlib.AbstractContextManager[object]:
    """Autocast where whole weights are kept wider than what is computed with."""
    if trainer.run.numerics != "fp32-weights-amp":
        return contextlib.nullcontext()
    return torch.autocast(trainer.device.type, dtype=compute_dtype(trainer.run))


def _loss_split(trainer: Trainer) -> contextlib.AbstractContextManager[object]:
    """Cross-entropy over a vocabulary that tensor-parallel ranks share, forward and backward."""
    if trainer.run.layout.tp == 1:
        return contextlib.nullcontext()
    return cast(contextlib.AbstractContextManager[object], loss_parallel())


@contextlib.contextmanager
def _synchronized(model: nn.Module, *, last: bool) -> Iterator[None]:
    """DDP reduces gradients with the last micro-batch only; FSDP2 with each, so that they stay sharded."""
    if isinstance(model, DistributedDataParallel) and not last:
        with model.no_sync():
            yield
    else:
        yield


def _local(value: Tensor) -> Tensor:
    """Plain tensor of a loss that tensor-parallel ranks share."""
    return value.full_tensor() if isinstance(value, DTensor) else value
