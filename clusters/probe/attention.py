"""Attention of a block: grouped heads or latents, rotary positions, PyTorch's fused kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from .norms import latent_norm, qk_norm
from .spec import Mla, Model

ROPE_BASE = 10000.0


@dataclass(frozen=True, slots=True)
class Positions:
    """What attention needs to know of places: rotary cosine and sine, and masks. ``None``: none needed."""

    cos: Tensor | None
    sin: Tensor | None
    bias: Tensor | None  # of every layer (ALiBi)
    window: Tensor | None  # of layers with a sliding window


def positions(spec: Model, length: int, device: torch.device, dtype: torch.dtype) -> Positions:
    """Tables for sequences of ``length`` tokens."""
    cos = sin = bias = window = None
    place = torch.arange(length, device=device)
    if spec.positional == "rope":
        width = spec.mla.rope_dim if spec.mla else spec.head_dim
        cos, sin = _rotary(place, width, dtype)
    if spec.positional == "alibi":
        bias = _alibi(spec, place).to(dtype)
    if spec.sliding_window is not None and spec.sliding_window < length:
        back = place[:, None] - place[None, :]
        window = (back < spec.sliding_window) & (back >= 0)
        if spec.kind == "encoder":
            window = back.abs() <= spec.sliding_window // 2
    return Positions(cos, sin, bias, window)


def _rotary(place: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle (arXiv 2104.09864 equation 34), halves side by side."""
    frequency = ROPE_BASE ** (-torch.arange(0, width, 2, device=place.device) / width)
    angle = place[:, None] * frequency
    both = torch.cat((angle, angle), dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


def _alibi(spec: Model, place: Tensor) -> Tensor:
    """Penalty by distance, a slope for each head, and the causal mask (arXiv 2108.12409 section 3)."""
    heads = torch.arange(1, spec.num_heads + 1, device=place.device)
    slope = 2.0 ** (-8.0 * heads / spec.num_heads)
    back = place[:, None] - place[None, :]
    penalty = -slope[:, None, None] * back.clamp(min=0)
    return penalty.masked_fill(back < 0, float("-inf"))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``x`` (batch, heads, length, width) turned by its place."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool, eager: bool) -> Tensor:
    """Attention of q over k and v (batch, heads, length, width). ``mask`` holds causality where there is one.

    Kernels that take a mask or fp32 on a GPU do not share key/value heads: these are repeated first.
    """
    groups = q.shape[1] // k.shape[1]
    shared = groups > 1
    if shared and (eager or mask is not None or (q.is_cuda and q.dtype == torch.float32)):
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        shared = False
    if eager:
        return _eager(q, k, v, mask, causal=causal)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal and mask is None, enable_gqa=shared
    )


def _eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
    """Scores written out in full: what ``attention: eager`` asks for."""
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    if causal and mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return torch.softmax(scores.float(), dim=-1).to(v.dtype) @ v


class Attention(nn.Module):
    """q, k, v and output linears around fused attention; under tensor parallel each rank has some heads."""

    def __init__(self, spec: Model, *, windowed: bool, eager: bool) -> None:
        super().__init__()
        self.head_dim, self.windowed, self.eager = spec.head_dim, windowed, eager
        self.causal, self.qk_norm = spec.kind == "decoder", spec.qk_norm
        qkv_bias = spec.bias in ("qkv", "attention", "all")
        output_bias = spec.bias in ("attention", "output+ffn", "all")
        wide, narrow = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q = nn.Linear(spec.hidden_size, wide, bias=qkv_bias)
        self.k = nn.Linear(spec.hidden_size, narrow, bias=qkv_bias)
        self.v = nn.Linear(spec.hidden_size, narrow, bias=qkv_bias)
        self.o = nn.Linear(wide, spec.hidden_size, bias=output_bias)
        self.q_norm = qk_norm(spec, wide)
        self.k_norm = qk_norm(spec, narrow)

    def forward(self, x: Tensor, places: Positions) -> Tensor:
        """Attention output for ``x`` (batch, length, hidden)."""
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.qk_norm == "full":
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (_heads(t, self.head_dim) for t in (q, k, v))
        if self.qk_norm in ("per-head", "no-weights"):
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k.to(q.dtype), v))
        if places.cos is not None and places.sin is not None:
            q, k = rotate(q, places.cos, places.sin), rotate(k, places.cos, places.sin)
        q, k = q.to(v.dtype), k.to(v.dtype)
        mask = places.window if self.windowed and places.window is not None else places.bias
        out = attend(q, k, v, mask, causal=self.causal, eager=self.eager)
        return cast(Tensor, self.o(out.transpose(1, 2).flatten(2)))


class LatentAttention(nn.Module):
    """q, and k with v, through narrow latents (DeepSeek-V2, arXiv 2405.04434 section 2.1)."""

    def __init__(self, spec: Model, mla: Mla, *, eager: bool) -> None:
        super().__init__()
        self.mla, self.eager, self.num_heads = mla, eager, spec.num_heads
        bias, hidden = spec.bias in ("qkv", "attention", "all"), spec.hidden_size
        wide = spec.num_heads * spec.head_dim
        self.q_latent = nn.Linear(hidden, mla.q_rank, bias=bias) if mla.q_rank else nn.Identity()
        self.q_norm = latent_norm(mla.q_rank) if mla.q_rank else nn.Identity()
        self.q = nn.Linear(mla.q_rank or hidden, wide, bias=False)
        self.kv_latent = nn.Linear(hidden, mla.kv_rank + mla.rope_dim, bias=bias)
        self.kv_norm = latent_norm(mla.kv_rank)
        self.kv = nn.Linear(mla.kv_rank, spec.num_heads * (mla.nope_dim + mla.v_dim), bias=False)
        output_bias = spec.bias in ("attention", "output+ffn", "all")
        self.o = nn.Linear(spec.num_heads * mla.v_dim, hidden, bias=output_bias)

    def forward(self, x: Tensor, places: Positions) -> Tensor:
        """Attention output for ``x`` (batch, length, hidden)."""
        mla = self.mla
        q = _heads(self.q(self.q_norm(self.q_latent(x))), mla.nope_dim + mla.rope_dim).transpose(1, 2)
        latent, k_rope = _split(self.kv_latent(x), mla.kv_rank, mla.rope_dim)
        kv = _heads(self.kv(self.kv_norm(latent)), mla.nope_dim + mla.v_dim).transpose(1, 2)
        k_nope, v = _split(kv, mla.nope_dim, mla.v_dim)
        q_nope, q_rope = _split(q, mla.nope_dim, mla.rope_dim)
        k_rope = k_rope[:, None]
        if places.cos is not None and places.sin is not None:
            q_rope = rotate(q_rope, places.cos, places.sin)
            k_rope = rotate(k_rope, places.cos, places.sin)
        q = torch.cat((q_nope, q_rope.to(q_nope.dtype)), dim=-1)
        k = torch.cat((k_nope, k_rope.to(k_nope.dtype).expand(-1, self.num_heads, -1, -1)), dim=-1)
        out = attend(q.to(v.dtype), k.to(v.dtype), v, None, causal=True, eager=self.eager)
        return cast(Tensor, self.o(out.transpose(1, 2).flatten(2)))


def _heads(x: Tensor, head_dim: int) -> Tensor:
    """(batch, length, heads x width) seen as (batch, length, heads, width)."""
    return x.view(*x.shape[:-1], -1, head_dim)


def _split(x: Tensor, first: int, second: int) -> tuple[Tensor, Tensor]:
    """Cut the last dimension in two."""
    return x[..., :first], x[..., first : first + second]
