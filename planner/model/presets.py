"""Named models: ``data/models.csv``, one published architecture a row, with its source.

Column ``moe`` is experts:per_token:expert_ffn:shared:dense_layers, ``mla`` is q_rank:kv_rank:nope:rope:v,
and ``extra`` holds the rarer fields of ``ModelSpec`` as key=value pairs. ``num_params`` is the total that the
row must count to; a test recounts every row.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

from planner.errors import UserError, did_you_mean
from planner.types import Mla, ModelSpec, Moe

ENCODER_DECODERS = (
    "t5",
    "flan-t5",
    "mt5",
    "umt5",
    "byt5",
    "bart",
    "mbart",
    "pegasus",
    "marian",
    "ul2",
    "led",
)
_COUNTS = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "vocab_size")
_OPTIONAL_COUNTS = ("max_position", "sliding_window")
_MOE_EXTRAS = ("expert_bias", "router_bias")


@lru_cache(maxsize=1)
def preset_rows() -> dict[str, Mapping[str, str]]:
    """Rows of the table by name, in the order of the file, cells as text."""
    text = (files("planner") / "data" / "models.csv").read_text(encoding="utf-8")
    return {row["name"]: row for row in csv.DictReader(text.splitlines())}


@lru_cache(maxsize=1)
def _names_by_key() -> dict[str, str]:
    """Preset by name, by alias, and by the part of an alias after its owner; lower case."""
    keys: dict[str, str] = {}
    for name, row in preset_rows().items():
        for alias in _spellings(name, row["aliases"]):
            keys.setdefault(alias.lower(), name)
    return keys


def _spellings(name: str, aliases: str) -> Iterator[str]:
    yield name
    for alias in filter(None, aliases.split("|")):
        yield alias
        yield alias.rpartition("/")[2]


def preset_names() -> tuple[str, ...]:
    """Names of all presets."""
    return tuple(preset_rows())


def find_preset(name: str) -> ModelSpec | None:
    """Preset called ``name`` (any case, aliases allowed), or ``None``."""
    known = _names_by_key().get(name.strip().lower())
    return None if known is None else _spec_of(known)


def preset(name: str) -> ModelSpec:
    """Preset called ``name``. Raises ``UserError`` that names the nearest ones."""
    found = find_preset(name)
    if found is not None:
        return found
    bare = name.strip().lower().rpartition("/")[2]
    if any(bare == family or bare.startswith(family + "-") for family in ENCODER_DECODERS):
        raise UserError(
            f"{name} is an encoder-decoder: not supported",
            "supported: decoders and encoders, such as --model gpt2-large, --model bert-large",
        )
    raise UserError(
        f"unknown model {name!r}{did_you_mean(bare, _names_by_key())}",
        "--model NAME, --model config.json, or --params 1B",
    )


@lru_cache(maxsize=512)
def _spec_of(name: str) -> ModelSpec:
    """Build the spec of one row."""
    row = preset_rows()[name]
    fields: dict[str, object] = {key: int(row[key]) for key in _COUNTS + _OPTIONAL_COUNTS if row[key]}
    for key in ("name", "kind", "norm", "bias", "positional", "source"):
        fields[key] = row[key]
    for key in ("gated_ffn", "tied_embeddings"):
        fields[key] = row[key] == "true"
    fields["ffn_size"] = int(row["ffn_size"] or 0)
    extra = dict(pair.split("=", 1) for pair in row["extra"].split(";") if pair)
    flags = {key: extra.pop(key) == "true" for key in _MOE_EXTRAS if key in extra}
    fields.update({key: _cell(value) for key, value in extra.items()})
    if row["moe"]:
        experts, per_token, width, shared, dense = (int(n) for n in row["moe"].split(":"))
        fields["moe"] = Moe(
            num_experts=experts,
            experts_per_token=per_token,
            expert_ffn_size=width,
            shared_experts=shared,
            dense_layers=dense,
            expert_bias=flags.get("expert_bias", False),
            router_bias=flags.get("router_bias", False),
        )
    if row["mla"]:
        q_rank, kv_rank, nope, rope, v = (int(n) for n in row["mla"].split(":"))
        fields["mla"] = Mla(q_rank=q_rank, kv_rank=kv_rank, nope_dim=nope, rope_dim=rope, v_dim=v)
    return ModelSpec.model_validate(fields)


def _cell(text: str) -> object:
    """Value of an ``extra`` pair: a flag, a whole number, or a word."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text
