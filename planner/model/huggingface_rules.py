"""What single model types of Hugging Face need beyond ``data/huggingface.toml``, each rule a few lines.

Source of every rule: the configuration and modeling files of huggingface/transformers 5.24.0, or of the
model's own repository where the type is not part of transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.errors import UserError
from planner.records import whole_number
from planner.types import Moe

Fields = dict[str, object]


@dataclass(frozen=True, slots=True)
class Config:
    """Read access to a config and the defaults of its class. Keys may be dotted; ``what`` is for errors."""

    values: Mapping[str, object]
    defaults: Mapping[str, object]
    what: str

    def given(self, key: str) -> bool:
        """Whether the file, or else the class, sets the key to something."""
        return self.raw(key) is not None

    def raw(self, *keys: str) -> object:
        """Value of the first key that the file has (a null too), else of the first that the class has."""
        for key in keys:
            present, value = self._look(key)
            if present:
                return value
        return next((self.defaults[key] for key in keys if key in self.defaults), None)

    def _look(self, key: str) -> tuple[bool, object]:
        at: object = self.values
        for part in key.split("."):
            if not isinstance(at, Mapping) or part not in at:
                return False, None
            at = at[part]
        return True, at

    def count(self, *keys: str) -> int:
        """Whole number above zero; an error where it is absent."""
        number = self.optional_count(*keys)
        if not number:
            raise UserError(
                f"{self.what}: {keys[0]} is {'missing' if number is None else number}", f"set {keys[0]}"
            )
        return number

    def optional_count(self, *keys: str) -> int | None:
        """Whole number of zero or more, or ``None`` where it is absent or null."""
        value = self.raw(*keys)
        if value is None:
            return None
        number = whole_number(value)
        if number is None or number < 0:
            raise UserError(
                f"{self.what}: {keys[0]} is {value!r:.60}, not a whole number", f"correct {keys[0]}"
            )
        return number

    def flag(self, key: str) -> bool:
        """Switch of the config; absent is false."""
        value = self.raw(key)
        if value is not None and not isinstance(value, bool):
            raise UserError(f"{self.what}: {key} is {value!r:.60}, not true or false", f"correct {key}")
        return value is True


def apply_rules(config: Config, rules: tuple[str, ...], fields: Fields) -> None:
    """Let each named rule change ``fields``."""
    for rule in rules:
        RULES[rule](config, fields)


def _one_norm_when_parallel(_: Config, fields: Fields) -> None:
    if fields["parallel_block"]:
        fields["norms_per_layer"] = 1


def _multi_query(config: Config, fields: Fields) -> None:
    fields["num_kv_heads"] = 1 if config.flag("multi_query") else None


def _opt(config: Config, fields: Fields) -> None:
    """Post-norm without a final norm, and a narrow token table, in the 350M model."""
    before = config.flag("do_layer_norm_before")
    fields["post_norm"] = not before
    fields["final_norm"] = before and not config.flag("_remove_final_layer_norm")
    narrow = config.optional_count("word_embed_proj_dim")
    fields["embed_dim"] = narrow if narrow != fields["hidden_size"] else None


def _falcon(config: Config, fields: Fields) -> None:
    """Key-value heads and norms of the two decoder architectures."""
    new = config.flag("new_decoder_architecture")
    parallel = new or config.flag("parallel_attn")
    norms = config.optional_count("num_ln_in_parallel_attn") or (2 if new else 1)
    fields["parallel_block"] = parallel
    fields["norms_per_layer"] = norms if new and config.flag("parallel_attn") else 1 if parallel else 2
    if not new:
        fields["num_kv_heads"] = 1 if config.flag("multi_query") else None
    if config.flag("alibi"):
        fields["positional"] = "alibi"


def _mpt(config: Config, fields: Fields) -> None:
    ratio = config.optional_count("expansion_ratio")
    hidden = fields["hidden_size"]
    assert isinstance(hidden, int)
    fields["ffn_size"] = hidden * (ratio or 4)


def _padded_positions(config: Config, fields: Fields) -> None:
    """RoBERTa counts positions from behind the padding token: its table has that many rows more."""
    rows, offset = fields["max_position"], (config.optional_count("pad_token_id") or 0) + 1
    if isinstance(rows, int) and rows > offset:
        fields["max_position"], fields["position_offset"] = rows - offset, offset


def _half_ffn(config: Config, fields: Fields) -> None:
    """Qwen (2023) writes the width of gate and up together."""
    fields["ffn_size"] = config.count("intermediate_size") // 2


def _chatglm(config: Config, fields: Fields) -> None:
    if not config.flag("multi_query_attention"):
        fields["num_kv_heads"] = None


def _xielu(_: Config, fields: Fields) -> None:
    """Apertus learns two scalars of its activation in each layer."""
    layers = fields["num_layers"]
    assert isinstance(layers, int)
    fields["extra_params"] = 2 * layers


RULES: Mapping[str, Callable[[Config, Fields], None]] = {
    "one-norm-when-parallel": _one_norm_when_parallel,
    "multi-query": _multi_query,
    "opt": _opt,
    "falcon": _falcon,
    "mpt": _mpt,
    "padded-positions": _padded_positions,
    "half-ffn": _half_ffn,
    "chatglm": _chatglm,
    "xielu": _xielu,
}


# ------------------------------------------------------------------------------------ experts


def moe_fields(config: Config, entry: Mapping[str, object], layers: int, experts: tuple[int, int]) -> Fields:
    """Field ``moe`` of the spec, and a feed-forward of 0 where every layer has experts.

    ``experts``: how many there are, how many a token visits.
    """
    dense = _dense_layers(config, str(entry.get("dense", "")), layers)
    if dense >= layers:
        return {}
    if experts[0] == 1:
        raise UserError(f"{config.what}: a mixture of one expert: not supported", "write it as a dense model")
    shared = config.optional_count(str(entry["shared_experts"])) if "shared_experts" in entry else None
    shared_width = config.optional_count(str(entry["shared_ffn"])) if "shared_ffn" in entry else None
    moe = Moe(
        num_experts=experts[0],
        experts_per_token=experts[1],
        expert_ffn_size=config.count(*_texts(entry["expert_ffn"])),
        shared_experts=shared or 0,
        shared_ffn_size=shared_width or None,
        shared_gate=entry.get("shared_gate") is True,
        dense_layers=dense,
        expert_bias=entry.get("expert_bias") is True,
        router_bias=entry.get("router_bias") is True,
    )
    return {"moe": moe} if dense else {"moe": moe, "ffn_size": 0}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else ()


def _dense_layers(config: Config, how: str, layers: int) -> int:
    """Layers without experts."""
    kinds = config.raw("mlp_layer_types")
    if how.startswith("first") and isinstance(kinds, list):
        return sum(kind == "dense" for kind in kinds[:layers])
    if how == "first-one":
        return 1
    if how == "first-k":
        if config.optional_count("moe_layer_freq") not in (None, 1):
            raise UserError(f"{config.what}: moe_layer_freq other than 1: not supported", "use --spec FILE")
        return min(layers, config.optional_count("first_k_dense_replace") or 0)
    if how == "sparse-step":
        step = config.optional_count("decoder_sparse_step") or 1
        plain = config.raw("mlp_only_layers")
        listed = set(plain) if isinstance(plain, list) else set()
        return sum(i in listed or (i + 1) % step != 0 for i in range(layers))
    if how == "ernie":
        last = config.raw("moe_layer_end_index")
        end = last if isinstance(last, int) and last >= 0 else layers - 1
        start, step = config.optional_count("moe_layer_start_index") or 0, config.count("moe_layer_interval")
        return sum(not (start <= i <= end and (i + 1) % step == 0) for i in range(layers))
    return 0


# ------------------------------------------------------------------------------------ sliding windows


def local_attention(config: Config, how: object, fields: Fields) -> Fields:
    """Fields ``sliding_window`` and ``local_layers`` of the spec, where some layers see a window only."""
    if how is None:
        return {}
    layers = fields["num_layers"]
    assert isinstance(layers, int)
    window, local = _window_and_layers(config, how, layers)
    listed = config.raw("layer_types")
    if isinstance(listed, list) and how != "flag":
        local = sum(kind == "sliding_attention" for kind in listed[:layers])
    if not window or not local:
        return {}
    return {"sliding_window": window, "local_layers": None if local == layers else local}


def _window_and_layers(config: Config, how: object, layers: int) -> tuple[int | None, int]:
    """Window and number of layers that have it, by the way the type says it."""
    if how == "gpt-neo":
        kinds = config.raw("attention_types")
        return config.optional_count("window_size"), _gpt_neo_local(kinds, layers)
    if how == "modernbert":
        every = config.optional_count("global_attn_every_n_layers") or 3
        return config.optional_count("local_attention"), layers - -(-layers // every)
    window = config.optional_count("sliding_window")
    if isinstance(how, int) or how == "pattern":
        pattern = how if isinstance(how, int) else config.optional_count("sliding_window_pattern")
        return window, layers - layers // pattern if pattern else 0
    if how == "first-of-4":
        return window, layers - -(-layers // 4)
    if how in ("all", "dots1"):
        first = config.optional_count("max_window_layers") or 0 if how == "dots1" else 0
        return window, max(0, layers - first)
    if not config.flag("use_sliding_window"):
        return None, 0
    if how == "smollm3":
        every = config.optional_count("no_rope_layer_interval") or layers + 1
        return window, layers // every
    first = config.optional_count("max_window_layers") or 0
    if how == "every-other-before-max-window-layers":
        return window, -(-min(first, layers) // 2)
    return window, layers if how == "flag" else max(0, layers - first)


def _gpt_neo_local(kinds: object, layers: int) -> int:
    """Local layers of GPT-Neo's ``[[["global", "local"], 12]]``; every second one where it is absent."""
    if not isinstance(kinds, list):
        return layers // 2
    local = 0
    for item in kinds:
        if (
            isinstance(item, list)
            and len(item) == 2
            and isinstance(item[0], list)
            and isinstance(item[1], int)
        ):
            local += item[0].count("local") * item[1]
    return min(local, layers)
