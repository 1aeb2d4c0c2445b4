"""Feed-forward of a block: plain, gated, or a mixture of experts."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from .spec import Model, Moe


class FeedForward(nn.Module):
    """Two linears around GELU, or three around a gate (SwiGLU)."""

    def __init__(self, spec: Model, width: int) -> None:
        super().__init__()
        bias, hidden = has_ffn_bias(spec), spec.hidden_size
        self.gated = spec.gated_ffn
        if self.gated:
            self.gate = nn.Linear(hidden, width, bias=bias)
        self.up = nn.Linear(hidden, width, bias=bias)
        self.down = nn.Linear(width, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Feed-forward of every token."""
        inner = F.silu(self.gate(x)) * self.up(x) if self.gated else F.gelu(self.up(x))
        return cast(Tensor, self.down(inner))


class Experts(nn.Module):
    """Routed experts as one grouped matrix multiply each way, and the shared ones beside them.

    Every token reaches its ``experts_per_token`` experts; none is dropped.
    """

    def __init__(self, spec: Model, moe: Moe) -> None:
        super().__init__()
        hidden, width, count = spec.hidden_size, moe.expert_ffn_size, moe.num_experts
        self.per_token, self.gated = moe.experts_per_token, spec.gated_ffn
        self.router = nn.Linear(hidden, count, bias=moe.router_bias)
        if self.gated:
            self.gate = nn.Parameter(torch.empty(count, hidden, width))
        self.up = nn.Parameter(torch.empty(count, hidden, width))
        self.down = nn.Parameter(torch.empty(count, width, hidden))
        shared = moe.shared_ffn_size or moe.shared_experts * width
        self.shared = FeedForward(spec, shared) if shared else None
        self.shared_gate = nn.Linear(hidden, 1, bias=False) if shared and moe.shared_gate else None

    def forward(self, x: Tensor) -> Tensor:
        """Weighted sum of the experts that each token visits, and the shared experts."""
        tokens = x.flatten(0, 1)
        share, chosen = torch.softmax(self.router(tokens).float(), dim=-1).topk(self.per_token, dim=-1)
        share = share / share.sum(dim=-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        count = torch.bincount(chosen.flatten(), minlength=self.up.shape[0])
        ends = count.cumsum(0).to(torch.int32)
        visited = tokens[order // self.per_token]
        routed = self._experts(visited, ends)[order.argsort()].view(len(tokens), self.per_token, -1)
        out = (routed * share[..., None].to(routed.dtype)).sum(dim=1)
        if self.shared is not None:
            extra = self.shared(tokens)
            out = out + (extra if self.shared_gate is None else extra * self.shared_gate(tokens).sigmoid())
        return out.view(x.shape)

    def _experts(self, visited: Tensor, ends: Tensor) -> Tensor:
        """Feed-forward of tokens that are sorted by expert. Autocast does not know the grouped multiply."""
        device = visited.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else visited.dtype
        x, up, down = visited.to(dtype), self.up.to(dtype), self.down.to(dtype)
        inner = F.grouped_mm(x, up, offs=ends)
        if self.gated:
            inner = F.silu(F.grouped_mm(x, self.gate.to(dtype), offs=ends)) * inner
        else:
            inner = F.gelu(inner)
        return F.grouped_mm(inner, down, offs=ends)


def has_ffn_bias(spec: Model) -> bool:
    """Whether the linears of the feed-forward carry a bias."""
    return spec.bias in ("ffn", "output+ffn", "all")
