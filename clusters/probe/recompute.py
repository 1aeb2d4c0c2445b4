"""Selective recompute: which results of a block are kept, operator by operator.

Kept: attention, collectives of tensor parallelism, and every second matrix multiply (torchtitan
``activation_checkpoint.py``, policy ``op``); everything else is computed again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)


def _multiplies() -> frozenset[object]:
    return frozenset((torch.ops.aten.mm.default, torch.ops.aten.addmm.default))


def _always_kept() -> frozenset[object]:
    kept: set[object] = {getattr(torch.ops.aten, name).default for name in _ATTENTION}
    kept.add(torch.ops._c10d_functional.reduce_scatter_tensor.default)
    return frozenset(kept)


def _policy() -> Callable[..., CheckpointPolicy]:
    """Build a policy that counts multiplies, forward and recomputation apart."""
    seen = {False: 0, True: 0}
    multiplies, always = _multiplies(), _always_kept()

    def decide(ctx: Any, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:  # noqa: ANN401
        keep = op in always
        if op in multiplies:
            seen[ctx.is_recompute] += 1
            keep = seen[ctx.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return decide


def selective_contexts() -> Any:  # noqa: ANN401 - a pair of context managers of torch's own kind
    """Contexts of one block's forward pass and of its recomputation."""
    make: Callable[..., Any] = create_selective_checkpoint_contexts
    return make(_policy())
