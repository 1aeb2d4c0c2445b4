"""Optimizers by the planner's names, over parameters that may be sharded."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .spec import RefusedError, Run

Groups = list[dict[str, Any]]
Switches = dict[str, Any]  # keywords of torch.optim that pick a kernel
MOMENTUM = 0.9


class Optimizers:
    """One or two optimizers that step together (Muon trains matrices, AdamW the rest)."""

    def __init__(self, parts: Iterable[torch.optim.Optimizer]) -> None:
        self.parts = tuple(parts)

    def step(self, scaler: torch.amp.GradScaler | None = None) -> None:
        """Update the weights and drop their gradients."""
        for part in self.parts:
            if scaler is None:
                part.step()
            else:
                scaler.step(part)
        if scaler is not None:
            scaler.update()
        for part in self.parts:
            part.zero_grad(set_to_none=True)


def build_optimizer(run: Run, model: nn.Module, learning_rate: float) -> Optimizers:
    """Build the optimizer of ``run`` over the trainable parameters of ``model``."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    name = run.training.optimizer
    switches = _switches(run.training.optimizer_impl)
    if name == "adamw-8bit":
        return Optimizers([_adamw_8bit(model, learning_rate)])
    if name == "muon":
        matrices = [p for n, p in named if p.dim() == 2 and "embed" not in n and "head" not in n]
        rest = [p for n, p in named if p.dim() != 2 or "embed" in n or "head" in n]
        muon = torch.optim.Muon(matrices, lr=learning_rate)
        return Optimizers([muon, torch.optim.AdamW(rest, lr=learning_rate, **switches)])
    make = _maker(name, switches, learning_rate)
    parameters = [p for _, p in named]
    if run.layout.zero_stage == 1 and run.layout.dp > 1:
        return Optimizers([_split_states(name, parameters, switches, learning_rate)])
    return Optimizers([make(alike(parameters))])


def alike(parameters: Iterable[nn.Parameter]) -> Groups:
    """Groups of parameters on the same mesh: one fused kernel cannot mix sharded and plain tensors."""
    groups: dict[object, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        groups[parameter.device_mesh if isinstance(parameter, DTensor) else None].append(parameter)
    return [{"params": group} for group in groups.values()]


def _switches(implementation: str | None) -> Switches:
    """Keyword that picks the kernel: fused unless told otherwise."""
    if implementation == "for-loop":
        return {"foreach": False, "fused": False}
    return {"foreach": True} if implementation == "foreach" else {"fused": True}


def _maker(name: str, switches: Switches, learning_rate: float) -> Callable[[Groups], torch.optim.Optimizer]:
    """How to make the optimizer called ``name`` from groups of parameters."""
    if name == "adamw":
        return lambda groups: torch.optim.AdamW(groups, lr=learning_rate, **switches)
    if name == "sgd":
        return lambda groups: torch.optim.SGD(groups, lr=learning_rate, momentum=MOMENTUM, **switches)
    if name == "adafactor":
        return lambda groups: torch.optim.Adafactor(groups, lr=learning_rate)
    raise RefusedError(f"optimizer {name!r} is not in this step")


def _split_states(
    name: str, parameters: list[nn.Parameter], switches: Switches, learning_rate: float
) -> torch.optim.Optimizer:
    """ZeRO stage 1: each rank keeps the states of some parameters and broadcasts what it updated."""
    from torch.distributed.optim import ZeroRedundancyOptimizer  # slow to import, warns of torch.jit

    kinds: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
        "adamw": (torch.optim.AdamW, {}),
        "sgd": (torch.optim.SGD, {"momentum": MOMENTUM}),
    }
    kind, extra = kinds[name]
    return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, lr=learning_rate, **extra, **switches)


def _adamw_8bit(model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Build bitsandbytes' AdamW (arXiv 2110.02861); embeddings keep 32-bit states, as its authors advise."""
    library = importlib.import_module("bitsandbytes")
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            manager = library.optim.GlobalOptimManager.get_instance()
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    trainable = [p for p in model.parameters() if p.requires_grad]
    return cast(torch.optim.Optimizer, library.optim.AdamW8bit(trainable, lr=learning_rate))
