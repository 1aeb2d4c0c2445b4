"""Models as columns: what memory and speed read, and FLOPs per token by part.

``model_columns`` turns specs into arrays; ``check_model`` refuses impossible ones. Specs come from
``model.presets`` (names), ``model.shapes`` ("1B"), ``huggingface`` (config.json), ``model.spec`` (mappings).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from planner.columns import Array, ModelColumns
from planner.errors import UserError
from planner.model.count import (
    ParamCount,
    count_params,
    has_head,
    k_width,
    o_width,
    q_width,
    shared_ffn_size,
    v_width,
)
from planner.types import ModelSpec

__all__ = [
    "FlopColumns",
    "ParamCount",
    "check_model",
    "count_params",
    "forward_flops_per_token",
    "model_columns",
    "visible_keys",
]

# A typo of a few digits must not become a plan: the widest figures ever trained, with a margin of 10 or more.
MOST_LAYERS, WIDEST, LARGEST_VOCAB, MOST_PARAMS = 2_000, 2**20, 2**24, 10**14


@dataclass(frozen=True, slots=True)
class FlopColumns:
    """Forward FLOPs of one token by part (2 per multiply-add); backward costs twice as much."""

    attention_linears: Array
    ffn: Array  # plain feed-forwards; experts visited, shared experts and routers
    head: Array
    scores: Array  # q.k and weights.v

    @property
    def total(self) -> Array:
        """Sum of the parts."""
        return self.attention_linears + self.ffn + self.head + self.scores


def visible_keys(model: ModelColumns, seq_len: Array) -> Array:
    """Keys that a query sees, averaged over queries and layers.

    A causal query i of s sees min(i, w) keys: w - w (w - 1) / 2s on average. An encoder's sees min(s, w).
    """
    window = np.minimum(model.attention_window, seq_len)
    local = window - model.causal * window * (window - 1) / (2 * seq_len)
    full = seq_len - model.causal * (seq_len - 1) / 2
    share = model.local_layers / model.num_layers
    keys: Array = share * local + (1 - share) * full
    return keys


def forward_flops_per_token(model: ModelColumns, seq_len: Array) -> FlopColumns:
    """Model FLOPs of the forward pass for one token in a sequence of ``seq_len`` tokens."""
    return FlopColumns(
        attention_linears=2 * model.num_layers * model.matmul_attention_layer,
        ffn=2
        * (model.dense_layers * model.matmul_ffn_dense_layer + model.moe_layers * model.matmul_moe_layer),
        head=2 * model.matmul_head,
        scores=2 * model.num_layers * model.attention_dims * visible_keys(model, seq_len),
    )


def model_columns(specs: Sequence[ModelSpec]) -> ModelColumns:
    """Columns of shape ``()`` for one spec, ``(n,)`` for n. Raises ``UserError`` for an impossible spec."""
    if not specs:
        raise ValueError("model_columns needs at least one spec")
    rows = [_columns_of(spec) for spec in specs]
    if len(rows) == 1:
        return rows[0]
    names = [f.name for f in fields(ModelColumns)]
    return ModelColumns(*(np.array([getattr(row, name) for row in rows]) for name in names))


@lru_cache(maxsize=4096)
def _columns_of(spec: ModelSpec) -> ModelColumns:
    check_model(spec)
    count = count_params(spec)
    moe, mla = spec.moe, spec.mla
    local = 0 if spec.sliding_window is None else _local_layers(spec)
    return ModelColumns(
        num_layers=_scalar(spec.num_layers),
        hidden=_scalar(spec.hidden_size),
        num_heads=_scalar(spec.num_heads),
        q_width=_scalar(q_width(spec)),
        k_width=_scalar(k_width(spec)),
        v_width=_scalar(v_width(spec)),
        o_width=_scalar(o_width(spec)),
        head_dim=_scalar(spec.head_dim),
        mla_q_rank=_scalar(mla.q_rank if mla else 0),
        mla_kv_rank=_scalar(mla.kv_rank + mla.rope_dim if mla else 0),
        ffn=_scalar(spec.ffn_size),
        gated=_scalar(spec.gated_ffn),
        vocab=_scalar(spec.vocab_size),
        tied=_scalar(spec.tied_embeddings),
        causal=_scalar(spec.kind == "decoder"),
        attention_window=_scalar(spec.sliding_window or np.inf),
        learned_positions=_scalar(spec.positional == "learned"),
        norm_is_rms=_scalar(spec.norm == "rms"),
        norms_per_layer=_scalar(spec.norms_per_layer),
        parallel_block=_scalar(spec.parallel_block),
        qk_norm=_scalar(spec.qk_norm != "none"),
        num_experts=_scalar(moe.num_experts if moe else 0),
        experts_per_token=_scalar(moe.experts_per_token if moe else 0),
        expert_ffn=_scalar(moe.expert_ffn_size if moe else 0),
        shared_ffn=_scalar(shared_ffn_size(moe) if moe else 0),
        moe_layers=_scalar(count.moe_layers),
        dense_layers=_scalar(count.dense_layers),
        params_total=_scalar(count.total),
        params_embedding=_scalar(count.embedding),
        params_head=_scalar(count.head),
        params_root_other=_scalar(count.root_other),
        params_attention_layer=_scalar(count.attention_layer),
        params_ffn_dense_layer=_scalar(count.ffn_dense_layer),
        params_router_layer=_scalar(count.router_layer),
        params_shared_layer=_scalar(count.shared_layer),
        params_experts_layer=_scalar(count.experts_layer),
        params_norm_layer=_scalar(count.norm_layer),
        matmul_attention_layer=_scalar(count.matmul_attention_layer),
        matmul_ffn_dense_layer=_scalar(count.matmul_ffn_dense_layer),
        matmul_moe_layer=_scalar(count.matmul_moe_layer),
        matmul_head=_scalar(count.matmul_head),
        has_head=_scalar(has_head(spec)),
        attention_dims=_scalar(q_width(spec) + o_width(spec)),
        local_layers=_scalar(local),
    )


def _scalar(value: float) -> Array:
    return np.asarray(value, dtype=np.float64)


def _local_layers(spec: ModelSpec) -> int:
    return spec.num_layers if spec.local_layers is None else spec.local_layers


def check_model(spec: ModelSpec) -> None:
    """Raise ``UserError`` where the figures of ``spec`` contradict each other or are absurd."""
    for problem, hint in _problems(spec):
        raise UserError(f"model {spec.name}: {problem}", hint)


def _problems(spec: ModelSpec) -> list[tuple[str, str]]:
    """Message and hint for each thing wrong with ``spec``; widths first, since counting needs them."""
    problems: list[tuple[str, str]] = []
    if spec.num_layers > MOST_LAYERS:
        problems.append((f"{spec.num_layers:,} layers is beyond any Transformer", f"at most {MOST_LAYERS:,}"))
    widths = {"hidden_size": spec.hidden_size, "ffn_size": spec.ffn_size, "num_heads": spec.num_heads}
    for field, width in {**widths, "head_dim": spec.head_dim}.items():
        if width > WIDEST:
            problems.append((f"{field} {width:,} is beyond any Transformer", f"at most {WIDEST:,}"))
    if spec.vocab_size > LARGEST_VOCAB:
        problems.append(
            (f"vocab_size {spec.vocab_size:,} is beyond any tokenizer", f"at most {LARGEST_VOCAB:,}")
        )
    if spec.num_heads % spec.num_kv_heads:
        problems.append(
            (
                f"{spec.num_heads} heads cannot be divided among {spec.num_kv_heads} key-value heads",
                "num_kv_heads must divide num_heads",
            )
        )
    problems += _structure_problems(spec)
    if not problems and count_params(spec).total > MOST_PARAMS:
        problems.append(
            (f"{count_params(spec).total:.3g} parameters is absurd", "check layers, widths and experts")
        )
    return problems


def _structure_problems(spec: ModelSpec) -> list[tuple[str, str]]:
    """Contradictions between layers, experts, windows, positions and latents."""
    problems: list[tuple[str, str]] = []
    if spec.positional == "learned" and spec.max_position is None:
        problems.append(("learned positions need max_position", "give max_position, or positional: rope"))
    if spec.local_layers is not None and spec.local_layers > spec.num_layers:
        problems.append(
            (f"{spec.local_layers} local layers of {spec.num_layers} layers", "lower local_layers")
        )
    if spec.value_embeds > spec.num_layers:
        problems.append(
            (f"{spec.value_embeds} value embeddings for {spec.num_layers} layers", "lower value_embeds")
        )
    moe = spec.moe
    if moe is not None and moe.dense_layers > spec.num_layers:
        problems.append(
            (f"{moe.dense_layers} dense layers of {spec.num_layers} layers", "lower moe.dense_layers")
        )
    if moe is not None and moe.experts_per_token > moe.num_experts:
        problems.append(
            (
                f"a token cannot visit {moe.experts_per_token} of {moe.num_experts} experts",
                "lower experts_per_token",
            )
        )
    if spec.ffn_size == 0 and (moe is None or moe.dense_layers):
        problems.append(("layers without experts need a feed-forward", "give ffn_size"))
    if spec.mla is not None and spec.head_dim != spec.mla.nope_dim + spec.mla.rope_dim:
        problems.append(
            (
                f"head_dim {spec.head_dim} is not nope {spec.mla.nope_dim} + rope {spec.mla.rope_dim}",
                "leave head_dim out, or make it their sum",
            )
        )
    return problems
