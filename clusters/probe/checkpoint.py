"""Saves and restores a training: each rank its own shards, in PyTorch's distributed checkpoint format.

A checkpoint holds weights, optimizer states and the number of steps done. It may be read again by another
layout of the same model, except ZeRO stage 1 and fp16, whose extra state fits the same kind of run only.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import save as save_shards

from .parallel import unwrap
from .step import Trainer

_EXTRA = "extra.pt"
_FLAT = StateDictOptions(flatten_optimizer_state_dict=True)  # ranks of a pipeline hold other weights


def save(trainer: Trainer, directory: Path, steps_done: int) -> None:
    """Write this rank's part of the state under ``directory``; rank 0 also writes what is whole.

    Every rank must call it. Directories of all ranks, merged, are the checkpoint.
    """
    extra: dict[str, Any] = {"steps_done": steps_done}
    if trainer.scaler is not None:
        extra["scaler"] = trainer.scaler.state_dict()
    if _splits_states(trainer):
        split = cast(Any, trainer.optimizer.parts[0])
        split.consolidate_state_dict(to=0)
        if _rank() == 0:
            extra["optimizer"] = split.state_dict()
    with _quiet():
        save_shards(_state(trainer), checkpoint_id=directory, no_dist=not dist.is_initialized())
    if _rank() == 0:
        torch.save(extra, directory / _EXTRA)


def load(trainer: Trainer, directory: Path) -> int:
    """Restore what ``save`` wrote into ``trainer``; returns the number of steps done."""
    extra = torch.load(directory / _EXTRA, map_location="cpu", weights_only=True)
    with _quiet():
        state = _state(trainer)
        load_shards(state, checkpoint_id=directory, no_dist=not dist.is_initialized())
    model, parts = unwrap(trainer.model), trainer.optimizer.parts
    if _splits_states(trainer):
        set_model_state_dict(model, state["model"])
        parts[0].load_state_dict(extra["optimizer"])
    else:
        set_state_dict(
            model,
            parts,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=_FLAT,
        )
    if trainer.scaler is not None:
        trainer.scaler.load_state_dict(extra["scaler"])
    return int(extra["steps_done"])


def _state(trainer: Trainer) -> dict[str, Any]:
    """Sharded state of model and optimizer, as the checkpoint names it."""
    model = unwrap(trainer.model)
    if _splits_states(trainer):
        return {"model": get_model_state_dict(model)}
    weights, states = get_state_dict(model, trainer.optimizer.parts, options=_FLAT)
    return {"model": weights, "optimizer": states}


def _splits_states(trainer: Trainer) -> bool:
    """Whether the optimizer is ZeRO stage 1, which PyTorch saves whole only."""
    return trainer.run.layout.zero_stage == 1 and trainer.run.layout.dp > 1


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back PyTorch's own notes on its deprecations and on a checkpoint of one process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield
