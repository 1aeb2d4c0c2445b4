"""Norms of the model, in PyTorch's fused kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

from .spec import Model

EPSILON = 1e-5


class _LeanRmsNorm(torch.autograd.Function):
    """RMS norm that keeps its input and one figure per token, as the fused GPU kernel does.

    On CPU PyTorch's own is made of parts and keeps the normalized tensor too.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:  # noqa: ANN401
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x, weight, scale)
        return (wide * scale * weight.float()).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:  # noqa: ANN401
        x, weight, scale = ctx.saved_tensors
        gradient, normalized = gradients[0].float(), x.float() * scale
        inner = gradient * weight.float()
        mean = (inner * normalized).mean(dim=-1, keepdim=True)
        d_weight = (gradient * normalized).flatten(0, -2).sum(0).to(weight.dtype)
        d_x = ((inner - normalized * mean) * scale).to(x.dtype)
        return d_x, d_weight if ctx.needs_input_grad[1] else None, None


_lean_rms_norm = cast(Callable[..., Tensor], _LeanRmsNorm.apply)


class RmsNorm(nn.RMSNorm):
    """RMS norm that takes its input to the number format of its weights first.

    The fused kernel wants them equal; autocast leaves a 16-bit input beside 32-bit weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalized ``x``."""
        if self.elementwise_affine:
            x = x.to(self.weight.dtype)
            if type(x) is Tensor and not x.is_cuda:
                return _lean_rms_norm(x, self.weight, self.eps)
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


def norm(spec: Model) -> nn.Module:
    """One norm over the hidden size."""
    if spec.norm == "rms":
        return RmsNorm(spec.hidden_size, eps=EPSILON, elementwise_affine=spec.norm_affine)
    return nn.LayerNorm(
        spec.hidden_size, eps=EPSILON, elementwise_affine=spec.norm_affine, bias=spec.norm_bias
    )


def latent_norm(width: int) -> nn.Module:
    """Norm over a latent of MLA."""
    return RmsNorm(width, eps=EPSILON)


def qk_norm(spec: Model, width: int) -> nn.Module:
    """Norm of q or k: over each head with or without weights, over all heads, or none."""
    if spec.qk_norm == "none":
        return nn.Identity()
    over = width if spec.qk_norm == "full" else spec.head_dim
    if spec.norm == "layer" and spec.qk_norm == "per-head":
        return nn.LayerNorm(over, eps=EPSILON, bias=spec.norm_affine and spec.norm_bias)
    return RmsNorm(over, eps=EPSILON, elementwise_affine=spec.qk_norm != "no-weights")
