"""Low-rank adapters (arXiv 2106.09685): which linears they sit on, how many parameters they add.

Target names are those of Llama-type models (q, k, v, o, gate, up, down, head); the groups people write
("all-linear", "attention", "mlp") and the names of other families are spelled out in ``GROUPS``.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

import numpy as np

from planner.columns import Array, ModelColumns
from planner.errors import UserError, did_you_mean
from planner.types import Record

Target = Literal["q", "k", "v", "o", "gate", "up", "down", "head"]
TARGETS: tuple[Target, ...] = get_args(Target)

_ATTENTION = "q k v o"
_MLP = "gate up down"
GROUPS = {
    "all-linear": f"{_ATTENTION} {_MLP}",
    "all": f"{_ATTENTION} {_MLP}",
    "attention": _ATTENTION,
    "attn": _ATTENTION,
    "mlp": _MLP,
    "ffn": _MLP,
    "qkv": "q k v",
    "c_attn": "q k v",
    "query_key_value": "q k v",
    "wqkv": "q k v",
    "gate_up_proj": "gate up",
    "dense": "o",
    "out_proj": "o",
    "dense_h_to_4h": "gate up",
    "dense_4h_to_h": "down",
    "fc1": "up",
    "fc2": "down",
    "fc_in": "up",
    "fc_out": "down",
    "w1": "gate",
    "w3": "up",
    "w2": "down",
    "output": "head",
    "lm_head": "head",
}


class LoraTargets(Record):
    """Which linears carry an adapter."""

    q: bool = False
    k: bool = False
    v: bool = False
    o: bool = False
    gate: bool = False
    up: bool = False
    down: bool = False
    head: bool = False


def parse_targets(text: str) -> LoraTargets:
    """Targets of ``"all-linear"``, ``"q,v"``, ``"all-linear+head"``, ``"q_proj,v_proj"``.

    Raises ``UserError`` for a name that is no linear of a Transformer block.
    """
    chosen: set[str] = set()
    for word in filter(None, re.split(r"[,+\s]+", text.strip().lower())):
        name = word.removesuffix("_proj")
        if word in GROUPS or name in GROUPS:
            chosen.update(GROUPS[word if word in GROUPS else name].split())
        elif name in TARGETS:
            chosen.add(name)
        else:
            raise UserError(
                f"unknown LoRA target {word!r}{did_you_mean(name, [*TARGETS, *GROUPS])}", "all-linear"
            )
    if not chosen:
        raise UserError("LoRA needs at least one target", "all-linear")
    return LoraTargets.model_validate(dict.fromkeys(chosen, True))


def attention_params(model: ModelColumns, rank: Array, q: Array, k: Array, v: Array, o: Array) -> Array:
    """Adapter parameters of one attention block: ``rank x (in + out)`` for each adapted linear."""
    h = model.hidden
    pairs = q * (h + model.q_width) + k * (h + model.k_width) + v * (h + model.v_width)
    total: Array = rank * (pairs + o * (model.o_width + h))
    return total


def ffn_params(model: ModelColumns, rank: Array, width: Array, gate: Array, up: Array, down: Array) -> Array:
    """Adapter parameters of one feed-forward of this width. Without a gate there is nothing to adapt
    there.
    """
    total: Array = rank * (model.gated * gate + up + down) * (model.hidden + width)
    return total


def head_params(model: ModelColumns, rank: Array, head: Array) -> Array:
    """Adapter parameters on the output projection."""
    total: Array = np.asarray(rank * head * (model.hidden + model.vocab))
    return total
