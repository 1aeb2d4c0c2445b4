"""Parameters of a Transformer, counted part by part, exactly.

Every function returns a number of parameters. The counts equal those of the model classes of Hugging Face
transformers built on the meta device; ``tests/planner/test_model.py`` holds the totals.
"""

from __future__ import annotations

from functools import lru_cache

from planner.types import Mla, ModelSpec, Moe, Record


class ParamCount(Record):
    """Parameters by part. ``*_layer`` are per layer that has the part; the parts add up to ``total``.

    ``matmul_*`` are the weights that one token is multiplied with: no biases, tables or norms, and of the
    routed experts only those it visits. ``active`` = total minus the experts that a token does not visit.
    """

    total: int
    active: int
    embedding: int
    head: int
    root_other: int
    attention_layer: int
    norm_layer: int
    ffn_dense_layer: int
    router_layer: int
    shared_layer: int
    experts_layer: int
    dense_layers: int
    moe_layers: int
    matmul_attention_layer: int
    matmul_ffn_dense_layer: int
    matmul_moe_layer: int
    matmul_head: int


def q_width(spec: ModelSpec) -> int:
    """Width of q of all heads."""
    return spec.num_heads * spec.head_dim


def k_width(spec: ModelSpec) -> int:
    """Width of k of all its heads, as attention reads it (MLA: one k for each head)."""
    return q_width(spec) if spec.mla else spec.num_kv_heads * spec.head_dim


def v_width(spec: ModelSpec) -> int:
    """Width of v of all its heads, as attention reads it."""
    return spec.num_heads * spec.mla.v_dim if spec.mla else spec.num_kv_heads * spec.head_dim


def o_width(spec: ModelSpec) -> int:
    """Width of the attention output, before the output projection."""
    return spec.num_heads * (spec.mla.v_dim if spec.mla else spec.head_dim)


def embedding_params(spec: ModelSpec) -> int:
    """Input tables: tokens, learned positions, token types, value embeddings."""
    tokens = spec.vocab_size * (spec.embed_dim or spec.hidden_size)
    positions = (spec.max_position or 0) + spec.position_offset if spec.positional == "learned" else 0
    values = spec.value_embeds * spec.vocab_size * k_width(spec)
    return tokens + (positions + spec.type_vocab_size) * spec.hidden_size + values


def head_params(spec: ModelSpec) -> int:
    """Output projection where it is not the token table, and its bias."""
    if not has_head(spec) or spec.mlm_head:
        return 0
    width = spec.embed_dim or spec.hidden_size
    own = 0 if spec.tied_embeddings else spec.vocab_size * width
    return own + (spec.vocab_size if spec.lm_head_bias else 0)


def has_head(spec: ModelSpec) -> bool:
    """Whether logits over the vocabulary exist: an encoder has them only with its MLM head."""
    return spec.kind == "decoder" or spec.mlm_head


def root_other_params(spec: ModelSpec) -> int:
    """Norms outside the blocks, MLM head, projections from and to a narrow token table, loose scalars."""
    norms = (int(spec.final_norm) + int(spec.embedding_norm)) * norm_params(spec)
    projections = 2 * spec.hidden_size * spec.embed_dim if spec.embed_dim else 0
    return norms + _mlm_head_params(spec) + projections + spec.extra_params


def _mlm_head_params(spec: ModelSpec) -> int:
    """Transform, norm, and decoder with a bias (transformers ``BertLMPredictionHead``)."""
    if not spec.mlm_head:
        return 0
    dense = spec.hidden_size**2 + (spec.hidden_size if spec.bias == "all" else 0)
    decoder = spec.vocab_size * (1 if spec.tied_embeddings else 1 + spec.hidden_size)
    return dense + norm_params(spec) + decoder


def norm_params(spec: ModelSpec) -> int:
    """One norm over the hidden size."""
    return spec.hidden_size * _norm_tensors(spec)


def _norm_tensors(spec: ModelSpec) -> int:
    """Learned vectors of a norm: 0 without weights, 1 for RMS, 2 for a layer norm with bias."""
    return 0 if not spec.norm_affine else 2 if spec.norm == "layer" and spec.norm_bias else 1


def norm_layer_params(spec: ModelSpec) -> int:
    """Norms of one layer with those on q, k and the latents of MLA, and attention sinks."""
    per_head = 2 * spec.head_dim * max(1, _norm_tensors(spec))
    on_qk = {"per-head": per_head, "full": q_width(spec) + k_width(spec)}.get(spec.qk_norm, 0)
    on_latents = spec.mla.q_rank + spec.mla.kv_rank if spec.mla else 0
    sinks = spec.num_heads if spec.attention_sinks else 0
    return spec.norms_per_layer * norm_params(spec) + on_qk + on_latents + sinks


def attention_weights(spec: ModelSpec) -> int:
    """Weights of the attention linears of one layer, without biases."""
    if spec.mla:
        return _mla_weights(spec, spec.mla)
    return spec.hidden_size * (q_width(spec) + k_width(spec) + v_width(spec) + o_width(spec))


def _mla_weights(spec: ModelSpec, mla: Mla) -> int:
    """Latent attention (arXiv 2405.04434, section 2.1): q, and k with v, through narrow latents."""
    q = q_width(spec) * (mla.q_rank or spec.hidden_size) + spec.hidden_size * mla.q_rank
    down = spec.hidden_size * (mla.kv_rank + mla.rope_dim)
    up = mla.kv_rank * spec.num_heads * (mla.nope_dim + mla.v_dim)
    return q + down + up + o_width(spec) * spec.hidden_size


def attention_biases(spec: ModelSpec) -> int:
    """Biases of the attention linears of one layer."""
    qkv = spec.bias in ("qkv", "attention", "all")
    output = spec.bias in ("attention", "output+ffn", "all")
    if spec.mla:  # only the projections down carry one
        wide = spec.mla.q_rank + spec.mla.kv_rank + spec.mla.rope_dim
    else:
        wide = q_width(spec) + k_width(spec) + v_width(spec)
    return wide * qkv + spec.hidden_size * output


def ffn_weights(spec: ModelSpec, width: int) -> int:
    """Weights of a feed-forward ``width`` wide: up and down, and gate where it is gated."""
    return (3 if spec.gated_ffn else 2) * spec.hidden_size * width


def ffn_biases(spec: ModelSpec, width: int) -> int:
    """Biases of a feed-forward ``width`` wide."""
    return (2 if spec.gated_ffn else 1) * width + spec.hidden_size


def shared_ffn_size(moe: Moe) -> int:
    """Width of all shared experts together."""
    return moe.shared_ffn_size or moe.shared_experts * moe.expert_ffn_size


def layer_split(spec: ModelSpec) -> tuple[int, int]:
    """Layers with a plain feed-forward, layers with experts."""
    dense = spec.moe.dense_layers if spec.moe else spec.num_layers
    return dense, spec.num_layers - dense


@lru_cache(maxsize=4096)
def count_params(spec: ModelSpec) -> ParamCount:
    """All parameters of ``spec`` by part."""
    dense, sparse = layer_split(spec)
    attention = attention_weights(spec)
    ffn = ffn_weights(spec, spec.ffn_size) if dense else 0
    ffn_bias = ffn_biases(spec, spec.ffn_size) if dense and _has_ffn_bias(spec) else 0
    router, shared, expert, matmul_moe = _moe_layer(spec) if spec.moe else (0, 0, 0, 0)
    num_experts = spec.moe.num_experts if spec.moe else 0
    idle = num_experts - spec.moe.experts_per_token if spec.moe else 0
    layers = spec.num_layers * (attention + attention_biases(spec) + norm_layer_params(spec))
    layers += dense * (ffn + ffn_bias) + sparse * (router + shared + num_experts * expert)
    root = embedding_params(spec) + head_params(spec) + root_other_params(spec)
    return ParamCount(
        total=root + layers,
        active=root + layers - sparse * idle * expert,
        embedding=embedding_params(spec),
        head=head_params(spec),
        root_other=root_other_params(spec),
        attention_layer=attention + attention_biases(spec),
        norm_layer=norm_layer_params(spec),
        ffn_dense_layer=ffn + ffn_bias,
        router_layer=router,
        shared_layer=shared,
        experts_layer=num_experts * expert,
        dense_layers=dense,
        moe_layers=sparse,
        matmul_attention_layer=attention,
        matmul_ffn_dense_layer=ffn,
        matmul_moe_layer=matmul_moe,
        matmul_head=_matmul_head(spec),
    )


def _moe_layer(spec: ModelSpec) -> tuple[int, int, int, int]:
    """Router, shared experts, one routed expert, and the weights that a token meets in a MoE layer."""
    moe = spec.moe
    assert moe is not None
    router = spec.hidden_size * moe.num_experts
    shared = ffn_weights(spec, shared_ffn_size(moe)) + (spec.hidden_size if moe.shared_gate else 0)
    expert = ffn_weights(spec, moe.expert_ffn_size)
    matmul = router + shared + moe.experts_per_token * expert
    router_bias = moe.num_experts if moe.router_bias else 0
    expert_bias = ffn_biases(spec, moe.expert_ffn_size) if moe.expert_bias else 0
    if shared_ffn_size(moe) and _has_ffn_bias(spec):
        shared += ffn_biases(spec, shared_ffn_size(moe))
    return router + router_bias, shared, expert + expert_bias, matmul


def _has_ffn_bias(spec: ModelSpec) -> bool:
    return spec.bias in ("ffn", "output+ffn", "all")


def _matmul_head(spec: ModelSpec) -> int:
    """Output projection over the vocabulary, with the MLM transform or the projections of a narrow table."""
    if not has_head(spec):
        return 0
    transform = spec.hidden_size**2 if spec.mlm_head else 0
    projections = 2 * spec.hidden_size * spec.embed_dim if spec.embed_dim else 0
    return spec.vocab_size * (spec.embed_dim or spec.hidden_size) + transform + projections
