"""Low-rank adapters (arXiv 2106.09685) on the linears of a block: frozen base, two narrow matrices."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from .spec import Lora

ALPHA_OVER_RANK = 2.0
_ATTENTION = ("q", "k", "v", "o")
_FFN = ("gate", "up", "down")
GROUPS: dict[str, tuple[str, ...]] = {
    "all-linear": _ATTENTION + _FFN,
    "all": _ATTENTION + _FFN,
    "attention": _ATTENTION,
    "attn": _ATTENTION,
    "qkv": ("q", "k", "v"),
    "mlp": _FFN,
    "ffn": _FFN,
    "lm_head": ("head",),
    **{name: (name,) for name in (*_ATTENTION, *_FFN, "head")},
}


class LoraLinear(nn.Module):
    """``base(x) + 2 x up(down(dropout(x)))``. Only ``down`` and ``up`` train; ``up`` starts at zero.

    As in Hugging Face PEFT (``tuners/lora/layer.py``) an adapter takes its input to its own number format.
    """

    def __init__(self, base: nn.Linear, lora: Lora) -> None:
        super().__init__()
        self.base = base
        device = base.weight.device
        self.adapter_down = nn.Linear(base.in_features, lora.rank, bias=False, device=device)
        self.adapter_up = nn.Linear(lora.rank, base.out_features, bias=False, device=device)
        self.dropout = nn.Dropout(lora.dropout)
        base.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Output of the base and of its adapter."""
        low = self.adapter_down(self.dropout(x.to(self.adapter_down.weight.dtype)))
        out: Tensor = self.base(x) + ALPHA_OVER_RANK * self.adapter_up(low)
        return out


def _words(targets: str) -> Iterator[tuple[str, str]]:
    """Each word of ``targets`` as written, and as ``GROUPS`` may know it."""
    for word in filter(None, re.split(r"[,+\s]+", targets.strip().lower())):
        yield word, word.removesuffix("_proj")


def unknown_target(targets: str) -> str | None:
    """Return the first word that names no linear of a block, ``None`` where all do."""
    return next((word for word, name in _words(targets) if name not in GROUPS), None)


def adapted(targets: str) -> frozenset[str]:
    """Names of the linears that carry an adapter."""
    return frozenset(linear for _, name in _words(targets) for linear in GROUPS[name])


def add_adapters(model: nn.Module, lora: Lora) -> None:
    """Freeze ``model`` and put an adapter on each linear that ``lora.targets`` names."""
    model.requires_grad_(requires_grad=False)
    names = adapted(lora.targets)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(parent, name, LoraLinear(child, lora))


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name belongs to an adapter."""
    return ".adapter_" in name


def adapter_dtype(lora: Lora, precision: str) -> torch.dtype:
    """Number format of adapters: as asked, else 16 bit where everything is, else 32."""
    if lora.adapter_bits is not None:
        return torch.float32 if lora.adapter_bits == 32 else torch.bfloat16
    return torch.bfloat16 if precision == "bf16-pure" else torch.float32
