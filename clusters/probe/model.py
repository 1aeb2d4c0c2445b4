"""A Transformer built from a model spec: its parameters count to exactly what the planner counts."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, noop_context_fn

from .attention import Attention, LatentAttention, Positions, positions
from .feed_forward import Experts, FeedForward
from .norms import norm
from .recompute import selective_contexts
from .spec import Model, Run


class Block(nn.Module):
    """Attention and feed-forward with their norms and residual sums."""

    def __init__(self, spec: Model, layer: int, *, eager: bool, recompute: str) -> None:
        super().__init__()
        self.parallel, self.post_norm, self.recompute = spec.parallel_block, spec.post_norm, recompute
        self.attention = (
            LatentAttention(spec, spec.mla, eager=eager)
            if spec.mla
            else Attention(spec, windowed=_is_local(spec, layer), eager=eager)
        )
        if spec.moe and layer >= spec.moe.dense_layers:
            self.ffn: nn.Module = Experts(spec, spec.moe)
        else:
            self.ffn = FeedForward(spec, spec.ffn_size)
        self.norm_1 = norm(spec) if spec.norms_per_layer >= 1 else nn.Identity()
        self.norm_2 = norm(spec) if spec.norms_per_layer >= 2 else nn.Identity()
        self.norm_3 = norm(spec) if spec.norms_per_layer == 4 else nn.Identity()
        self.norm_4 = norm(spec) if spec.norms_per_layer == 4 else nn.Identity()
        self.shares_norm = spec.norms_per_layer == 1

    def forward(self, x: Tensor, places: Positions) -> Tensor:
        """Hidden states after this layer; under recompute only its input is kept (or what the list says)."""
        if self.recompute == "none" or not torch.is_grad_enabled():
            return self._layer(x, places)
        contexts = selective_contexts if self.recompute == "selective" else noop_context_fn
        out = checkpoint(
            self._layer, x, places, use_reentrant=False, preserve_rng_state=False, context_fn=contexts
        )
        return cast(Tensor, out)

    def _layer(self, x: Tensor, places: Positions) -> Tensor:
        if self.post_norm:
            x = self.norm_1(x + self.attention(x, places))
            return cast(Tensor, self.norm_2(x + self.ffn(x)))
        if self.parallel:
            normed = self.norm_1(x)
            other = normed if self.shares_norm else self.norm_2(x)
            return cast(Tensor, x + self.attention(normed, places) + self.ffn(other))
        x = x + self.norm_3(self.attention(self.norm_1(x), places))
        return cast(Tensor, x + self.norm_4(self.ffn(self.norm_2(x))))


class Transformer(nn.Module):
    """Token table, blocks, final norm, and the projection onto the vocabulary."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        spec = self.spec = run.model
        self.seq_len, self.first, self.last = run.training.seq_len, True, True
        width = spec.embed_dim or spec.hidden_size
        eager = run.training.attention == "eager"
        again = _recomputed_layers(run)
        self.embed = nn.Embedding(spec.vocab_size, width)
        self.embedding = _Embedding(spec)
        self.cut = nn.Identity()  # where sequence parallel cuts the sequence
        self.blocks = nn.ModuleDict(
            {
                str(i): Block(spec, i, eager=eager, recompute=run.layout.recompute if i < again else "none")
                for i in range(spec.num_layers)
            }
        )
        self.final_norm = norm(spec) if spec.final_norm else nn.Identity()
        self.transform = _Transform(spec)
        self.head = nn.Linear(width, spec.vocab_size, bias=spec.lm_head_bias or spec.mlm_head)
        if spec.tied_embeddings:
            self.head.weight = self.embed.weight

    def keep(self, layers: range) -> None:
        """Make this the pipeline stage of ``layers``; table and head stay with the first and the last."""
        self.first, self.last = layers.start == 0, layers.stop == self.spec.num_layers
        for index in list(self.blocks):
            if int(index) not in layers:
                del self.blocks[index]
        if not self.first:
            del self.embed, self.embedding, self.cut
        if not self.last:
            del self.final_norm, self.transform, self.head

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next token (a decoder) or of each token (an encoder), for (batch, length) tokens.

        A pipeline stage takes the hidden states of the one before it, and gives its own to the next.
        """
        if self.first:
            x = self.cut(self.embedding(self.embed(x)))
        places = positions(self.spec, self.seq_len, x.device, _compute_dtype(x))
        for block in self.blocks.values():
            x = block(x, places)
        return cast(Tensor, self.head(self.transform(self.final_norm(x)))) if self.last else x


class _Embedding(nn.Module):
    """What is added to the token table's rows: learned places, token types, a norm, a wider projection."""

    def __init__(self, spec: Model) -> None:
        super().__init__()
        hidden = spec.hidden_size
        learned = (spec.max_position or 0) + spec.position_offset if spec.positional == "learned" else 0
        self.offset = spec.position_offset
        self.widen = nn.Linear(spec.embed_dim, hidden, bias=False) if spec.embed_dim else nn.Identity()
        self.places = nn.Embedding(learned, hidden) if learned else None
        self.types = nn.Embedding(spec.type_vocab_size, hidden) if spec.type_vocab_size else None
        self.norm = norm(spec) if spec.embedding_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.widen(x)
        if self.places is not None:
            x = x + self.places(torch.arange(x.shape[1], device=x.device) + self.offset)
        if self.types is not None:
            x = x + self.types(torch.zeros((), dtype=torch.long, device=x.device))
        return cast(Tensor, self.norm(x))


class _Transform(nn.Module):
    """What lies between the final norm and the head: the MLM transform, or a narrower projection."""

    def __init__(self, spec: Model) -> None:
        super().__init__()
        hidden = spec.hidden_size
        self.mlm = spec.mlm_head
        if spec.mlm_head:
            self.dense = nn.Linear(hidden, hidden, bias=spec.bias == "all")
            self.norm = norm(spec)
        self.narrow = nn.Linear(hidden, spec.embed_dim, bias=False) if spec.embed_dim else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if self.mlm:
            x = self.norm(F.gelu(self.dense(x)))
        return cast(Tensor, self.narrow(x))


def _compute_dtype(x: Tensor) -> torch.dtype:
    """Number format of q and k: autocast's where it is on, else that of the hidden states."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def _is_local(spec: Model, layer: int) -> bool:
    """Whether this layer has the sliding window; ``local_layers`` of them are spread evenly."""
    if spec.sliding_window is None:
        return False
    local = spec.num_layers if spec.local_layers is None else spec.local_layers
    return (layer + 1) * local // spec.num_layers > layer * local // spec.num_layers


def _recomputed_layers(run: Run) -> int:
    """Count of layers, from the first, that recompute."""
    if run.layout.recompute == "full":
        return round(run.layout.recompute_fraction * run.model.num_layers)
    return run.model.num_layers if run.layout.recompute == "selective" else 0


def num_params(model: nn.Module) -> int:
    """Parameters of the whole model, each tensor once (sharded ones at their full size)."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_on_meta(run: Run) -> int:
    """Parameters of the model of ``run``, counted without allocating any."""
    with torch.device("meta"):
        return num_params(Transformer(run))
