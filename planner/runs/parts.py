"""Training and layout of a run description: the schema's words into ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.errors import UserError, did_you_mean
from planner.records import build, whole_number
from planner.training import frameworks
from planner.training.lora import parse_targets
from planner.types import Layout, LayoutPins, LoraSpec, TrainingSpec

METHODS = {
    "pretrain": "pretrain", "full-finetune": "full", "full": "full", "lora": "lora", "qlora": "qlora",
}  # fmt: skip
PRECISIONS = {
    "fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "bf16-mixed": "bf16", "bf16-pure": "bf16-pure",
    "fp16": "fp16", "fp16-mixed": "fp16", "fp8": "fp8",
}  # fmt: skip
OPTIMIZERS = {
    "adam": "adamw", "adamw": "adamw", "adamw-8bit": "adamw-8bit", "adam-8bit": "adamw-8bit",
    "adamw-paged": "adamw-paged", "adamw-paged-8bit": "adamw-paged-8bit", "adafactor": "adafactor",
    "sgd": "sgd", "lion": "lion", "muon": "muon", "muon+adamw": "muon",
}  # fmt: skip
SHARDINGS = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3}
RECOMPUTE = {"none": "none", "selective": "selective", "full": "full"}
_DEGREES = ("dp", "tp", "pp", "cp")
_LAYOUT_FIELDS = (
    "dp", "tp", "pp", "cp", "ep", "etp", "sharding", "shard_group", "sequence_parallel", "interleave",
    "tp_overlap", "dispatcher", "a2a_overlap",
)  # fmt: skip
_SAME_WORDS = (
    "loss", "numerics", "optimizer_impl", "attention", "compile", "fused_kernels", "fp8_recipe",
    "moe_token_drop", "dropout", "frozen_layers",
)  # fmt: skip
MOST = 2**30


@dataclass(frozen=True, slots=True)
class Line:
    """Read access to an object of a line; ``where`` is the path in front of its keys."""

    values: Mapping[str, object]
    where: str = ""

    def part(self, key: str) -> Line:
        """Object under ``key``, without its nulls; empty where there is none."""
        value = self.values.get(key)
        if value is None:
            return Line({}, f"{self.where}{key}.")
        if not isinstance(value, Mapping):
            raise UserError(f"{self.where}{key} is {value!r:.60}, not an object", f'"{key}": {{}}')
        return Line({str(k): v for k, v in value.items() if v is not None}, f"{self.where}{key}.")

    def count(self, key: str, most: int = MOST) -> int | None:
        """Whole number from 1 to ``most``, or ``None``."""
        value = self.values.get(key)
        if value is None:
            return None
        number = whole_number(value)
        if number is None or not 1 <= number <= most:
            what = f"{self.where}{key} is {value!r:.60}, not a whole number from 1 to {most:,}"
            raise UserError(what, f'"{key}": 1')
        return number

    def product(self, keys: tuple[str, ...], most: int) -> int | None:
        """Product of counts, or ``None`` where one is absent."""
        total = 1
        for key in keys:
            number = self.count(key, most)
            if number is None:
                return None
            total *= number
        return total

    def text(self, key: str) -> str | None:
        """Text, or ``None``."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise UserError(f"{self.where}{key} is {value!r:.60}, not a text", f'"{key}": "…"')
        return value

    def required_text(self, key: str) -> str:
        """Text that must be there."""
        value = self.text(key)
        if not value:
            raise UserError(f"{self.where}{key} is missing", f'"{key}": "…"')
        return value

    def word(self, key: str, words: Mapping[str, str]) -> str | None:
        """One of ``words``, translated, or ``None``."""
        value = self.text(key)
        if value is None:
            return None
        if value not in words:
            near = did_you_mean(value, words)
            raise UserError(
                f"{self.where}{key} {value!r:.60}: not supported{near}", f"one of: {', '.join(words)}"
            )
        return words[value]


# ------------------------------------------------------------------------------------ training


def read_training(line: Line) -> tuple[TrainingSpec, int | None, tuple[str, ...]]:
    """Training of a run description, its global batch in sequences, and what was assumed."""
    seq_len = line.count("seq_len")
    if seq_len is None:
        raise UserError("seq_len is missing", '"seq_len": 4096')
    method = line.word("kind", METHODS) or ("pretrain" if "lora" not in line.values else "lora")
    precision = line.word("precision", PRECISIONS)
    fields: dict[str, object] = {
        "method": method,
        "precision": precision or "bf16",
        "optimizer": line.word("optimizer", OPTIMIZERS) or "adamw",
        "seq_len": seq_len,
        "framework": line.text("framework") or "plan",
        "num_tokens": line.values.get("tokens"),
        "lora": _lora(line, method),
        **{key: line.values[key] for key in _SAME_WORDS if key in line.values},
    }
    sequences = line.count("global_batch")
    if sequences is not None:
        fields["global_batch_tokens"] = sequences * seq_len
    training = build(TrainingSpec, {key: value for key, value in fields.items() if value is not None}, "run")
    if training.num_tokens is not None and not 0 < training.num_tokens < 1e18:
        raise UserError(
            f"tokens is {training.num_tokens:g}, not a number of tokens to train on", '"tokens": 2e9'
        )
    said = [] if precision else ["precision not given: bf16 assumed"]
    if training.lora and line.part("lora").values.get("targets") is None:
        said.append(f"LoRA targets not given: {training.lora.targets} assumed")
    return training, sequences, tuple(said)


def _lora(line: Line, method: str) -> LoraSpec | None:
    """Adapters of a lora or qlora run."""
    given = line.part("lora")
    if method not in ("lora", "qlora"):
        if given.values:
            raise UserError(
                f"lora is given, but kind is {line.values.get('kind')!r}", '"kind": "lora", or no lora'
            )
        return None
    fields = dict(given.values)
    if fields.get("targets") is None:
        fields["targets"] = frameworks.match(line.text("framework") or "plan").memory.lora_targets
    targets = fields.get("targets")
    if isinstance(targets, list):
        fields["targets"] = ",".join(str(target) for target in targets)
    if method == "qlora":
        fields.setdefault("base_bits", 4)
        if fields["base_bits"] == 4:
            fields.setdefault("quant", "nf4")
        elif fields["base_bits"] == 16:
            raise UserError("lora.base_bits is 16, but kind is qlora", '"kind": "lora"')
    spec = build(LoraSpec, fields, "lora")
    if method == "lora" and (spec.base_bits == 4 or spec.quant):
        raise UserError("lora has a quantised base, but kind is lora", '"kind": "qlora"')
    parse_targets(spec.targets)
    return spec


# ------------------------------------------------------------------------------------ layout


def read_layout(
    line: Line, num_gpus: int, per_node: int, sequences: int | None
) -> tuple[Layout | None, LayoutPins, int | None, tuple[str, ...]]:
    """Layout where every part is given, the pinned parts, sequences of a batch, and what was assumed."""
    given = line.part("layout")
    for key in given.values:
        if key not in _LAYOUT_FIELDS:
            raise UserError(f"unknown field layout.{key}{did_you_mean(key, _LAYOUT_FIELDS)}", "leave it out")
    degrees = _degrees(given, num_gpus)
    batch, said = _batch(line, degrees["dp"], sequences)
    pins = build(
        LayoutPins,
        {k: v for k, v in _pins(line, given, degrees, per_node).items() if v is not None},
        "layout",
    )
    pins = pins.model_copy(update=batch)
    total = sequences
    if total is None and pins.dp and pins.micro_batch and pins.grad_accum:
        total = pins.dp * pins.micro_batch * pins.grad_accum
    return _whole(pins), pins, total, said


def _degrees(given: Line, num_gpus: int) -> dict[str, int | None]:
    """Degrees that are given; the only one that is missing follows from the GPUs."""
    degrees = {key: given.count(key) for key in _DEGREES}
    known = 1
    for degree in degrees.values():
        known *= degree or 1
    missing = [key for key, degree in degrees.items() if degree is None]
    shown = " x ".join(f"{key} {degree}" for key, degree in degrees.items() if degree)
    if not missing and known != num_gpus:
        raise UserError(f"layout: {shown} = {known} GPUs, but gpus is {num_gpus}", f'"gpus": {known}')
    if num_gpus % known:
        raise UserError(f"layout: {shown} does not divide {num_gpus} GPUs", "leave one degree out")
    if len(missing) == 1:
        degrees[missing[0]] = num_gpus // known
    return degrees


def _batch(
    line: Line, dp: int | None, sequences: int | None
) -> tuple[dict[str, int | None], tuple[str, ...]]:
    """Micro-batch and accumulation; two of the three figures of a batch give the third."""
    micro, accum = line.count("micro_batch"), line.count("grad_accum")
    said: tuple[str, ...] = ()
    if sequences is None and micro and not accum:
        accum, said = 1, ("neither grad_accum nor global_batch given: one micro-batch a step assumed",)
    elif sequences and dp:
        each, rest = divmod(sequences, dp)
        if rest:
            raise UserError(
                f"global_batch {sequences} is not divisible by dp {dp}",
                f'"global_batch": {max(1, each) * dp}',
            )
        if micro and accum and micro * accum != each:
            raise UserError(
                f"micro_batch {micro} x grad_accum {accum} x dp {dp} is not global_batch {sequences}",
                f'"global_batch": {micro * accum * dp}',
            )
        if micro and each % micro:
            raise UserError(
                f"{each} sequences a rank are not divisible by micro_batch {micro}", '"micro_batch": 1'
            )
        if accum and each % accum:
            raise UserError(
                f"{each} sequences a rank are not divisible by grad_accum {accum}", '"grad_accum": 1'
            )
        micro, accum = (
            micro or (each // accum if accum else None),
            accum or (each // micro if micro else None),
        )
    return {"micro_batch": micro, "grad_accum": accum}, said


def _pins(line: Line, given: Line, degrees: Mapping[str, int | None], per_node: int) -> dict[str, object]:
    """Parts of the layout in our words; ``None`` where the line says nothing."""
    stage, group = _sharding(given, degrees, per_node)
    offload = line.text("offload")
    minor = ("ep", "etp", "sequence_parallel", "interleave", "tp_overlap", "dispatcher", "a2a_overlap")
    return {
        **degrees,
        **{key: given.values.get(key) for key in minor},
        "zero_stage": stage,
        "shard_group": group,
        "recompute": line.word("recompute", RECOMPUTE),
        "recompute_fraction": line.values.get("recompute_fraction"),
        "activation_offload": line.values.get("activation_offload"),
        "offload": offload,
    }


def _sharding(given: Line, degrees: Mapping[str, int | None], per_node: int) -> tuple[int | None, int | None]:
    """ZeRO stage, and the ranks that it shards over."""
    word = given.text("sharding")
    if word is not None and word not in SHARDINGS:
        near = did_you_mean(word, SHARDINGS)
        raise UserError(
            f"layout.sharding {word!r:.60}: not supported{near}", f"one of: {', '.join(SHARDINGS)}"
        )
    dp, cp, tp = degrees["dp"], degrees["cp"], degrees["tp"]
    ranks = dp * cp if dp and cp else None
    group = given.values.get("shard_group")
    if group is not None and group != "all":
        number = given.count("shard_group")
        if ranks and number and ranks % number:
            raise UserError(
                f"layout.shard_group {number} does not divide {ranks} data-parallel ranks",
                '"shard_group": "all"',
            )
        return (SHARDINGS[word] if word else None), number
    if word == "hsdp" and group is None:
        in_node = max(1, per_node // (tp or 1))
        return 3, min(in_node, ranks) if ranks and not ranks % min(in_node, ranks) else in_node
    return (SHARDINGS[word] if word else None), ranks if word else None


def _whole(pins: LayoutPins) -> Layout | None:
    """Layout, where the line says all that matters; its small print takes the usual values."""
    needed = (
        pins.dp,
        pins.tp,
        pins.pp,
        pins.cp,
        pins.zero_stage,
        pins.recompute,
        pins.micro_batch,
        pins.grad_accum,
    )
    if any(part is None for part in needed):
        return None
    parts = {key: value for key, value in pins.model_dump().items() if value is not None}
    return Layout.model_validate(parts)
