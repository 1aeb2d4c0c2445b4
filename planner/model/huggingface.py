"""Model specs from the config.json of Hugging Face transformers.

``data/huggingface.toml`` says for each ``model_type`` which keys mean what and what its class fills in;
``huggingface_rules.py`` has the few lines of code that some types need. What is unknown is refused by name.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from planner.errors import UserError, did_you_mean
from planner.model import MOST_LAYERS, check_model
from planner.model.huggingface_rules import Config, apply_rules, local_attention, moe_fields
from planner.records import build
from planner.types import Mla, ModelSpec

_KEYS: Mapping[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers",),
    "hidden_size": ("hidden_size",),
    "num_heads": ("num_attention_heads",),
    "num_kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn_size": ("intermediate_size",),
    "vocab_size": ("vocab_size",),
    "max_position": ("max_position_embeddings",),
    "type_vocab_size": (),
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok",),
}
_BIASES = {
    (False, False, False): "none",
    (True, False, False): "qkv",
    (True, True, False): "attention",
    (False, False, True): "ffn",
    (False, True, True): "output+ffn",
    (True, True, True): "all",
}


@dataclass(frozen=True, slots=True)
class _Tables:
    """Parsed ``data/huggingface.toml``: entries by type, other names of types, what refused types are."""

    types: Mapping[str, Mapping[str, object]]
    aliases: Mapping[str, str]
    refused: Mapping[str, str]


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    text = (files("planner") / "data" / "huggingface.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    refused = {name: kind for kind, names in table["refused"].items() for name in names}
    return _Tables(table["types"], table["aliases"], refused)


def supported_model_types() -> tuple[str, ...]:
    """Every ``model_type`` that ``from_config`` reads."""
    return tuple(_tables().types)


def from_config(text: str, name: str) -> ModelSpec:
    """Spec from the text of a config.json. ``name`` labels the model and its errors.

    Raises ``UserError`` for broken JSON (with its line), an unsupported type, missing or impossible figures.
    """
    values = _parse(text, name)
    model_type = _model_type(values, name)
    entry = _tables().types[model_type]
    config = Config(values, _mapping(entry.get("defaults")), f"{name} ({model_type})")
    spec = build(ModelSpec, _fields(config, entry, name), config.what)
    check_model(spec)
    return spec


def _parse(text: str, name: str) -> Mapping[str, object]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{name} is not valid JSON: {error.msg}, line {error.lineno} column {error.colno}",
            "download config.json again",
        ) from None
    except (RecursionError, ValueError):
        raise UserError(f"{name} is not a model config: nested too deeply, or a number too long") from None
    if not isinstance(values, dict):
        raise UserError(f"{name} holds {type(values).__name__}, not a model config", "give a config.json")
    return values


def _model_type(values: Mapping[str, object], name: str) -> str:
    """Supported model type of the config; ``UserError`` that says what it is otherwise."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise UserError(f"{name} has no model_type", "give the config.json of a Hugging Face model")
    if values.get("is_encoder_decoder") is True:
        raise _refusal(name, model_type, "an encoder-decoder")
    if isinstance(values.get("vision_config"), dict) or isinstance(values.get("audio_config"), dict):
        raise _refusal(name, model_type, "a multimodal model")
    model_type = _tables().aliases.get(model_type, model_type)
    if model_type in _tables().types:
        return model_type
    raise _refusal(name, model_type, _tables().refused.get(model_type, "unknown"))


def _refusal(name: str, model_type: str, kind: str) -> UserError:
    """Build the error for an unsupported type, with the nearest supported ones."""
    what = f"{name}: model_type {model_type!r} is {kind}: not supported"
    if kind == "a multimodal model":
        return UserError(what, "save its text_config as a config.json of its own to plan the language model")
    near = did_you_mean(model_type, supported_model_types())
    return UserError(
        what + near, "supported: decoders, MoE and encoders, such as llama, mixtral, bert; or --spec FILE"
    )


def _fields(config: Config, entry: Mapping[str, object], name: str) -> dict[str, object]:
    """Fields of ``ModelSpec`` that ``config`` gives under the rules of ``entry``."""
    keys = {**_KEYS, **_mapping(entry.get("keys"))}
    fields: dict[str, object] = {"name": name, "source": f"config.json of {name}"}
    for field in ("num_layers", "hidden_size", "num_heads", "vocab_size"):
        fields[field] = config.count(*_names(keys[field]))
    layers = config.count(*_names(keys["num_layers"]))
    if layers > MOST_LAYERS:  # before any rule counts them one by one
        raise UserError(
            f"{config.what}: {layers:.4g} layers is beyond any Transformer", f"at most {MOST_LAYERS:,}"
        )
    for field in ("num_kv_heads", "head_dim", "max_position", "ffn_size"):
        fields[field] = config.optional_count(*_names(keys[field]))
    if _names(keys["type_vocab_size"]):
        fields["type_vocab_size"] = config.optional_count(*_names(keys["type_vocab_size"])) or 0
    fields["tied_embeddings"] = config.flag("tie_word_embeddings")
    fields.update(_mapping(entry.get("fixed")))
    fields.update({field: config.flag(str(key)) for field, key in _mapping(entry.get("flags")).items()})
    fields["bias"] = _bias(config, _mapping(entry.get("bias")))
    qk_norm = _mapping(entry.get("qk_norm"))
    if qk_norm and config.flag(str(qk_norm["key"])):
        fields["qk_norm"] = qk_norm["kind"]
    apply_rules(config, _names(entry.get("rules")), fields)
    if entry.get("mla") is True:
        fields.update(_mla_fields(config))
    _fill_widths(config, fields)
    if "moe" in entry:
        fields.update(_moe(config, entry, keys, layers))
    fields.update(local_attention(config, entry.get("window"), fields))
    return fields


def _fill_widths(config: Config, fields: dict[str, object]) -> None:
    """Widths that follow from others where the config leaves them out."""
    hidden, heads = fields["hidden_size"], fields["num_heads"]
    assert isinstance(hidden, int)
    assert isinstance(heads, int)
    fields["num_kv_heads"] = fields["num_kv_heads"] or heads
    if fields["head_dim"] is None:
        if hidden % heads:
            raise UserError(f"{config.what}: hidden size {hidden} cannot be divided among {heads} heads")
        fields["head_dim"] = hidden // heads
    fields["ffn_size"] = fields["ffn_size"] or 4 * hidden


def _bias(config: Config, places: Mapping[str, object]) -> str:
    """Word for the linears that carry a bias."""
    carried = tuple(_switch(config, places.get(place, False)) for place in ("qkv", "o", "ffn"))
    qkv, output, ffn = carried
    word = _BIASES.get((qkv, output, ffn))
    if word is None:
        raise UserError(
            f"{config.what}: biases on qkv={qkv}, output={output}, ffn={ffn}: not supported together"
        )
    return word


def _switch(config: Config, value: object) -> bool:
    return config.flag(value) if isinstance(value, str) else value is True


def _moe(
    config: Config, entry: Mapping[str, object], keys: Mapping[str, object], layers: int
) -> dict[str, object]:
    """Experts, where the config has any."""
    num_experts = config.optional_count(*_names(keys["num_experts"]))
    if not num_experts:
        return {}
    per_token = config.count(*_names(keys["experts_per_token"]))
    return moe_fields(config, _mapping(entry["moe"]), layers, (num_experts, per_token))


def _mla_fields(config: Config) -> dict[str, object]:
    """Latent attention; its heads are as wide as their two parts."""
    mla = Mla(
        q_rank=config.optional_count("q_lora_rank") or 0 if config.given("q_lora_rank") else 0,
        kv_rank=config.count("kv_lora_rank"),
        nope_dim=config.count("qk_nope_head_dim"),
        rope_dim=config.optional_count("qk_rope_head_dim") or 0,
        v_dim=config.count("v_head_dim"),
    )
    return {"mla": mla, "head_dim": mla.nope_dim + mla.rope_dim}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _names(value: object) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else ()
