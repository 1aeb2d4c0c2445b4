"""Model specs from a mapping, as ``--spec FILE`` holds it: own figures, or a base with some of them changed.

Keys are the fields of ``ModelSpec`` (with ``moe`` and ``mla`` as mappings), and one of two bases:
``preset: llama-3-8b`` or ``params: 1B``.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.errors import UserError
from planner.model import check_model
from planner.model.presets import preset
from planner.model.shapes import LEAST_PARAMS, MOST_PARAMS, shape_for
from planner.records import build, check_keys
from planner.types import Mla, ModelSpec, Moe
from planner.units import parse_count

BASES = ("preset", "params")


def from_spec(mapping: Mapping[str, object], what: str = "spec") -> ModelSpec:
    """Spec from the mapping of a YAML file. Raises ``UserError`` that names an unknown or impossible key."""
    if not isinstance(mapping, Mapping):
        raise UserError(
            f"{what} holds {type(mapping).__name__}, not a mapping of model fields", "preset: llama-3-8b"
        )
    given = {str(key): value for key, value in mapping.items() if value is not None}
    check_keys(given, (*BASES, *ModelSpec.model_fields), what)
    base = _base(given, what)
    fields = {key: value for key, value in given.items() if key not in BASES}
    _nest(fields, base, what)
    spec = build(ModelSpec, _with_derived(fields, base, what), what)
    check_model(spec)
    return spec


def _base(given: Mapping[str, object], what: str) -> ModelSpec | None:
    """Spec that the mapping starts from, if it names one."""
    if "preset" in given and "params" in given:
        raise UserError(f"{what}: preset and params contradict each other", "keep one of them")
    if "preset" in given:
        return preset(str(given["preset"]))
    if "params" in given:
        return shape_for(parse_count(str(given["params"]), f"{what}: params", LEAST_PARAMS, MOST_PARAMS))
    return None


def _nest(fields: dict[str, object], base: ModelSpec | None, what: str) -> None:
    """Replace the mappings ``moe`` and ``mla`` by records, filled up from the base's."""
    for key, record in (("moe", Moe), ("mla", Mla)):
        value = fields.get(key)
        if value is None or isinstance(value, record):
            continue
        if not isinstance(value, Mapping):
            raise UserError(
                f"{what}: {key} is {value!r:.60}, not a mapping", f"keys: {', '.join(record.model_fields)}"
            )
        start = getattr(base, key) if base else None
        known = start.model_dump() if start else {}
        fields[key] = build(record, {**known, **{str(k): v for k, v in value.items()}}, f"{what}: {key}")


def _with_derived(fields: Mapping[str, object], base: ModelSpec | None, what: str) -> dict[str, object]:
    """Fields with the base's below them and, where neither says, what follows from the others."""
    merged: dict[str, object] = {**_kept(fields, base), **fields}
    merged.setdefault("name", what)
    hidden, heads = merged.get("hidden_size"), merged.get("num_heads")
    merged.setdefault("num_kv_heads", heads)
    mla = merged.get("mla")
    if isinstance(mla, Mla):
        merged.setdefault("head_dim", mla.nope_dim + mla.rope_dim)
    if "head_dim" not in merged and isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        if hidden % heads:
            raise UserError(
                f"{what}: hidden_size {hidden} cannot be divided among {heads} heads", "give head_dim"
            )
        merged["head_dim"] = hidden // heads
    moe = merged.get("moe")
    if isinstance(moe, Moe) and not moe.dense_layers:
        merged.setdefault("ffn_size", 0)
    return {key: value for key, value in merged.items() if value is not None}


def _kept(fields: Mapping[str, object], base: ModelSpec | None) -> dict[str, object]:
    """Fields of the base, without those that followed from figures that ``fields`` changes."""
    if base is None:
        return {}
    kept: dict[str, object] = {key: getattr(base, key) for key in ModelSpec.model_fields}
    if "num_heads" in fields or "hidden_size" in fields:
        if base.head_dim * base.num_heads == base.hidden_size:
            del kept["head_dim"]
        if base.num_kv_heads == base.num_heads:
            del kept["num_kv_heads"]
    layers = fields.get("num_layers")
    if base.local_layers is not None and isinstance(layers, int):
        kept["local_layers"] = round(base.local_layers * layers / base.num_layers)
    return kept
