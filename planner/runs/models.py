"""The ``model`` object of a run description, in the words of its schema or in ours (``ModelSpec``).

Figures come from the figures of the line. Its name is a label: it fills an architecture in only where the
line has none. What the schema has no word for (encoder, sliding window, norms on q and k, ...) is taken from
the published architectures with the same figures, in so far as they agree with each other. An object in our
own words is taken as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from planner.errors import UserError, did_you_mean
from planner.model.count import count_params
from planner.model.presets import find_preset, preset, preset_rows
from planner.model.shapes import LEAST_PARAMS, MOST_PARAMS, shape_for
from planner.model.spec import from_spec
from planner.runs.parts import Line
from planner.types import ModelSpec
from planner.units import parse_count

# word of the schema -> field of ModelSpec
_WORDS = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_heads",
    "kv_heads": "num_kv_heads",
    "ffn": "ffn_size",
    "vocab": "vocab_size",
    "gated_mlp": "gated_ffn",
}
_MOE_WORDS = {
    "experts": "num_experts",
    "experts_per_token": "experts_per_token",
    "expert_ffn": "expert_ffn_size",
}
_MLA_WORDS = {
    "q_lora_rank": "q_rank",
    "kv_lora_rank": "kv_rank",
    "qk_nope_head_dim": "nope_dim",
    "qk_rope_head_dim": "rope_dim",
    "v_head_dim": "v_dim",
}
_LABELS = ("active_params", "params_derived_from_dims", "num_params")
_DIMENSIONS = ("num_layers", "hidden_size", "num_heads", "ffn_size")
_COMPARED = (
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "ffn_size",
    "gated_ffn",
    "norm",
    "positional",
)
# GPT-Neo (windows of 256, no biases on q, k, v) has the figures of every model of GPT-3's shapes: no telling.
_UNTELLABLE = ("gpt-neo",)
_FILLED = (
    "kind",
    "sliding_window",
    "norms_per_layer",
    "post_norm",
    "final_norm",
    "embedding_norm",
    "norm_affine",
    "norm_bias",
    "qk_norm",
    "parallel_block",
    "lm_head_bias",
    "attention_sinks",
    "type_vocab_size",
    "position_offset",
    "positional",
    "max_position",
    "bias",
)
VOCAB_PADDING = 1024
MIN_VOCAB = 50_304  # GPT-2's, padded: where a line names no vocabulary


def read_model(value: object, seq_len: int, pretrain: bool) -> tuple[ModelSpec, tuple[str, ...]]:
    """Model of a run description, and what was assumed of it. ``UserError`` names a bad or unknown field."""
    if not isinstance(value, Mapping):
        raise UserError(
            "model is missing" if value is None else f"model is {value!r:.60}, not an object",
            '"model": {"params": 1e9}',
        )
    given = {str(key): item for key, item in value.items() if item is not None}
    fields, params = _translate(given), given.pop("params", None)
    if not any(key in fields for key in _DIMENSIONS) and fields.get("moe") is None:
        return _from_size(fields, params, seq_len)
    said = () if "num_layers" in given else _fill(fields, seq_len)
    if fields.get("kind") == "encoder":
        fields.setdefault("mlm_head", pretrain)
    fields.setdefault("name", "model")
    spec = from_spec(fields, "model")
    return spec, (*said, *_disagreement(spec, params))


def _translate(given: Mapping[str, object]) -> dict[str, object]:
    """Fields of ``ModelSpec`` from either vocabulary."""
    fields: dict[str, object] = {}
    moe: dict[str, object] = {}
    for key, value in given.items():
        if key in _MOE_WORDS:
            if value != 0:
                moe[_MOE_WORDS[key]] = Line(given, "model.").count(key)
        elif key == "mla" and isinstance(value, Mapping):
            fields["mla"] = _mla(value, moe)
        elif key == "bias" and isinstance(value, bool):
            fields["bias"] = "all" if value else "none"
        elif key in _WORDS and key != "gated_mlp" and not (key == "ffn" and value == 0):
            _put(fields, _WORDS[key], Line(given, "model.").count(key), key)
        elif key in _WORDS or key in ModelSpec.model_fields:
            _put(fields, _WORDS.get(key, key), value, key)
        elif key != "params" and key not in _LABELS:
            known = (*_WORDS, *_MOE_WORDS, "params", *ModelSpec.model_fields)
            raise UserError(f"unknown field model.{key}{did_you_mean(key, known)}", "leave it out")
    if moe:
        fields["moe"] = _moe(moe, fields)
    return fields


def _put(fields: dict[str, object], field: str, value: object, key: str) -> None:
    if field in fields:
        raise UserError(f"model.{key} is given twice", f"keep model.{key} or model.{field}")
    fields[field] = value


def _mla(value: Mapping[str, object], moe: dict[str, object]) -> dict[str, object]:
    """Latent attention; the schema keeps dense layers and shared experts in it too."""
    mla: dict[str, object] = {}
    for key, item in value.items():
        if item is None:
            continue
        if key in ("dense_layers", "shared_experts"):
            moe[key] = item
        else:
            mla[_MLA_WORDS.get(key, key)] = item
    return mla


def _moe(moe: dict[str, object], fields: dict[str, object]) -> dict[str, object]:
    """Experts; where their width is not said it is that of the feed-forward, which no layer then has."""
    if "moe" in fields:
        raise UserError("model.experts and model.moe are both given", "keep model.moe")
    if "num_experts" not in moe:
        raise UserError("model has experts_per_token or expert_ffn, but no experts", '"experts": 8')
    moe.setdefault("experts_per_token", 2)
    if "expert_ffn_size" not in moe:
        moe["expert_ffn_size"] = fields.get("ffn_size")
    if not moe.get("dense_layers"):
        fields["ffn_size"] = 0
    return moe


def _from_size(fields: dict[str, object], params: object, seq_len: int) -> tuple[ModelSpec, tuple[str, ...]]:
    """Model of a line without dimensions: the preset of its name, else the shape of its parameter count."""
    name = str(fields.get("name", ""))
    known = find_preset(name)
    others = {key: value for key, value in fields.items() if key != "name"}
    count = None if params is None else parse_count(str(params), "model.params", LEAST_PARAMS, MOST_PARAMS)
    if known is not None and (count is None or abs(count_params(known).total / count - 1) < 0.1):
        spec = from_spec({"preset": name, **others}, "model")
        return spec, (f"model: dimensions of {known.name}",)
    if count is None:
        preset(name)  # raises, and names the nearest presets
        raise UserError("model has neither dimensions nor params", '"model": {"params": 1e9}')
    spec = _shaped(count, fields, seq_len)
    return spec, (f"model: shape of --params, {spec.num_layers} layers x {spec.hidden_size}",)


def _shaped(count: float, fields: Mapping[str, object], seq_len: int) -> ModelSpec:
    """Shape of a parameter count with the line's other fields; the feed-forward takes up what they change."""
    shape = shape_for(count)
    own = {key: getattr(shape, key) for key in shape.model_fields_set if key != "name"}
    merged = {"name": "model", **own, **fields}
    if merged.get("positional") == "learned":
        merged.setdefault("max_position", seq_len)
    spec = from_spec(merged, "model")
    matrices = 3 if spec.gated_ffn else 2
    missing = (count - count_params(spec).total) / (matrices * spec.hidden_size * spec.num_layers)
    step = 64 if spec.hidden_size >= 1024 else 16
    width = max(step, round((spec.ffn_size + missing) / step) * step)
    return spec.model_copy(update={"ffn_size": width})


# ------------------------------------------------------------------------------ what the line leaves out


def _fill(fields: dict[str, object], seq_len: int) -> tuple[str, ...]:
    """Fill in what the schema has no word for or the line leaves out; return what was assumed."""
    said: list[str] = []
    if "hidden_size" not in fields or "num_layers" not in fields:
        raise UserError("model has some dimensions, but not layers and hidden", "give both, or params alone")
    twins = _twins(fields)
    for field in _FILLED:
        values = {getattr(twin, field) for twin in twins}
        if len(values) == 1 and _may_fill(fields, field):
            fields[field] = values.pop()
    _fill_local_layers(fields, twins)
    _fill_experts(fields, twins)
    if "vocab_size" not in fields:
        fields["vocab_size"] = MIN_VOCAB
        said.append(f"vocabulary of {MIN_VOCAB} assumed")
    said += _fill_widths(fields)
    fields.setdefault("positional", "rope" if fields.get("norm", "rms") == "rms" else "learned")
    if fields["positional"] == "learned":
        longest = fields.get("max_position")
        fields["max_position"] = max(seq_len, longest) if isinstance(longest, int) else seq_len
    return tuple(said)


def _fill_widths(fields: dict[str, object]) -> list[str]:
    """Heads of 128 (64 in narrow models) and a feed-forward of 4 hidden, 8/3 where it is gated."""
    said: list[str] = []
    hidden = fields["hidden_size"]
    if not isinstance(hidden, int) or isinstance(hidden, bool) or hidden < 1:
        return said
    if "num_heads" not in fields:
        fields["num_heads"] = _usual_heads(hidden)
        said.append(f"heads not given: {fields['num_heads']} of {hidden // _usual_heads(hidden)} assumed")
    if "ffn_size" not in fields and fields.get("moe") is None:
        gated = fields.get("gated_ffn", True)
        fields["ffn_size"] = 4 * hidden if not gated else max(1, round(8 * hidden / 3 / 256)) * 256
        said.append(f"feed-forward not given: {fields['ffn_size']} assumed")
    return said


def _usual_heads(hidden: int) -> int:
    """Heads of about 128 (64 below hidden 2048), eight or a multiple of it where that divides."""
    sizes = (64, 128, 32) if hidden < 2048 else (128, 100, 96, 80, 112, 120, 160, 64)
    for eights in (8, 1):
        for size in sizes:
            if hidden % (size * eights) == 0:
                return hidden // size
    return 1


def _may_fill(fields: Mapping[str, object], field: str) -> bool:
    """Whether a twin may say ``field``: it is absent, or says only that there are biases, not where."""
    return field not in fields or (field == "bias" and fields["bias"] == "all")


@lru_cache(maxsize=1)
def _published() -> tuple[ModelSpec, ...]:
    return tuple(preset(name) for name, row in preset_rows().items() if row["family"] not in _UNTELLABLE)


def _twins(fields: Mapping[str, object]) -> tuple[ModelSpec, ...]:
    """Find published architectures that agree with what the line gives; depth and padding may differ."""
    return tuple(spec for spec in _published() if _agrees(spec, fields))


def _agrees(spec: ModelSpec, fields: Mapping[str, object]) -> bool:
    vocab = fields.get("vocab_size")
    if not isinstance(vocab, int) or not 0 <= vocab - spec.vocab_size < VOCAB_PADDING:
        return False
    if "bias" in fields and (fields["bias"] == "none") != (spec.bias == "none"):
        return False
    if spec.kind == "decoder" and fields.get("tied_embeddings", spec.tied_embeddings) != spec.tied_embeddings:
        return False
    moe = fields.get("moe")
    experts = moe.get("num_experts") if isinstance(moe, Mapping) else None
    if experts != (spec.moe.num_experts if spec.moe else None):
        return False
    return all(getattr(spec, key) == fields[key] for key in _COMPARED if key in fields)


def _fill_local_layers(fields: dict[str, object], twins: tuple[ModelSpec, ...]) -> None:
    """Local layers of the twins, in proportion to the depth."""
    shares = {(twin.local_layers, twin.num_layers) for twin in twins}
    layers = fields["num_layers"]
    if len(shares) != 1 or not isinstance(layers, int) or "local_layers" in fields:
        return
    local, depth = shares.pop()
    if local is not None and fields.get("sliding_window") is not None:
        fields["local_layers"] = round(local * layers / depth)


def _fill_experts(fields: dict[str, object], twins: tuple[ModelSpec, ...]) -> None:
    """Shared experts, gates and biases of the twins' experts."""
    moe = fields.get("moe")
    if not isinstance(moe, dict):
        return
    for field in ("shared_experts", "shared_ffn_size", "shared_gate", "expert_bias", "router_bias"):
        values = {getattr(twin.moe, field) for twin in twins if twin.moe}
        if len(values) == 1:
            moe.setdefault(field, values.pop())


def _disagreement(spec: ModelSpec, params: object) -> tuple[str, ...]:
    """Warn where the line states another parameter count than its dimensions give."""
    if params is None:
        return ()
    stated = parse_count(str(params), "model.params", 1, 1e15)
    counted = count_params(spec).total
    if abs(counted / stated - 1) <= 0.03:
        return ()
    return (
        f"model: its dimensions count {counted:.4g} parameters, the line says {stated:.4g}; dimensions used",
    )
