"""What the user asked for: the text of the options as records. Every wrong word ends in one ``UserError``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import urlsplit

from planner import types, units
from planner.checks import check_training
from planner.cli.models import SpecFile, read_model, read_spec
from planner.errors import UserError, did_you_mean
from planner.hardware.gpus import matching_ids
from planner.hardware.link_names import unread
from planner.model.count import count_params
from planner.records import build
from planner.runs import RunRequest
from planner.training.defaults import TOKENS_PER_PARAMETER
from planner.training.frameworks import match_id, profile_ids
from planner.types import Goal, LayoutPins, LoraSpec, ModelSpec, TrainingSpec

DEFAULT_SEQ_LEN = 2048
MAX_GPUS = 100_000
GPUS_PER_NODE = 8
Options = Mapping[str, Any]
_DEGREES = ("dp", "tp", "pp", "cp", "ep", "etp", "shard_group", "interleave")


@dataclass(frozen=True, slots=True)
class Request:
    """A model, a training, and the parts of a layout that are fixed; ``defaults`` says what was assumed."""

    model: ModelSpec
    training: TrainingSpec
    pins: LayoutPins
    defaults: tuple[str, ...] = ()


def request(options: Options) -> Request:
    """Read model, training and pinned layout. Raises ``UserError`` for unknown words and contradictions."""
    spec_file = read_spec(options["spec"]) if options["spec"] else SpecFile()
    model = read_model(options["params"], options["model"], spec_file)
    training, defaults = _training(options, model, spec_file)
    pins = _pins(options)
    _check_batch(training, pins)
    return Request(model=model, training=training, pins=pins, defaults=defaults)


def goal(options: Options) -> Goal:
    """Read what bounds the search. GPU names become ids; providers and regions are checked by the caller."""
    if options["spot"] and options["market"] not in (None, "spot"):
        raise UserError(f"--spot contradicts --market {options['market']}", "leave one of them out")
    market = (
        "spot" if options["spot"] else choice(options["market"], ("any", "on-demand", "spot"), "--market")
    )
    return Goal(
        budget_usd=None if options["budget"] is None else units.parse_usd(options["budget"], "--budget"),
        deadline_s=None
        if options["deadline"] is None
        else units.parse_duration(options["deadline"], "--deadline"),
        headroom=0.2
        if options["headroom"] is None
        else units.parse_fraction(options["headroom"], "--headroom"),
        gpus=_gpu_ids(options["gpu"]),
        providers=words(options["provider"], "--provider"),
        regions=words(options["region"], "--region"),
        market=market or "any",  # type: ignore[arg-type]  # choice() returned one of them
        max_gpus=_int(options, "max_gpus", high=MAX_GPUS) or 64,
        stage=choice(options["stage"], ("experiment", "production"), "--stage") or "experiment",  # type: ignore[arg-type]
        sort=choice(options["sort"], ("cost", "time"), "--sort") or "cost",  # type: ignore[arg-type]
        allow_slow_link=options["allow_slow_link"],
        checkpoints=not options["no_checkpoints"],
    )


def choice(text: str | None, allowed: tuple[str, ...], option: str) -> str | None:
    """``text`` where it is one of ``allowed``, in any case; ``None`` stays ``None``."""
    if text is None:
        return None
    found = text.strip().lower()
    if found not in allowed:
        near = did_you_mean(found, allowed)
        raise UserError(f"{option}: unknown value {text!r:.60}{near}", f"{option} takes {', '.join(allowed)}")
    return found


def has_host(address: str) -> bool:
    """Whether a text is an address of the web with a host, and a port that can be."""
    try:
        found = urlsplit(address)
        return (
            found.scheme in ("http", "https")
            and bool(found.hostname)
            and found.port != 0
            and " " not in address
        )
    except ValueError:  # no such port, or a bracket that is not closed
        return False


def words(values: Iterable[str] | None, option: str) -> tuple[str, ...]:
    """Split repeated and comma-separated values; ``any`` means no bound."""
    found = tuple(part.strip() for value in values or () for part in value.split(","))
    if not all(found):
        raise UserError(f"{option}: an empty name", f"{option} any  (or leave it out)")
    return () if "any" in found else found


def top(options: Options) -> int | None:
    """How many choices to show."""
    return _int(options, "top", high=1000)


# ------------------------------------------------------------------------------------- training


def _training(options: Options, model: ModelSpec, file: SpecFile) -> tuple[TrainingSpec, tuple[str, ...]]:
    """Options over the spec file's ``training`` over defaults."""
    defaults = []
    method = choice(options["method"], get_args(types.Method), "--method")
    lora = _lora(options, method or file.training.get("method", "pretrain"))
    asked = {
        "method": method,
        "precision": choice(options["precision"], get_args(types.Precision), "--precision"),
        "optimizer": choice(options["optimizer"], get_args(types.Optimizer), "--optimizer"),
        "loss": choice(options["loss"], get_args(types.Loss), "--loss"),
        "attention": choice(options["attention"], get_args(types.Attention), "--attention"),
        "compile": options["compile"],
        "numerics": choice(options["numerics"], get_args(types.Numerics), "--numerics"),
        "optimizer_impl": choice(
            options["optimizer_impl"], get_args(types.OptimizerImpl), "--optimizer-impl"
        ),
        "frozen_layers": _int(options, "frozen_layers", high=model.num_layers),
        "framework": _framework(options["framework"]),
        "seq_len": _int(options, "seq_len", high=100_000_000),
        "num_tokens": _count(options, "tokens", high=1e16),
        "global_batch_tokens": _int(options, "global_batch", high=10**12),
        "lora": lora,
    }
    values = {**file.training, **{k: v for k, v in asked.items() if v is not None}}
    if "seq_len" not in values:
        values["seq_len"] = min(DEFAULT_SEQ_LEN, model.max_position or DEFAULT_SEQ_LEN)
        defaults.append("sequence length")
    defaults += [key for key in ("method", "precision", "optimizer", "framework") if key not in values]

    training = build(TrainingSpec, values, "training")
    check_training(model, training)
    return training, (f"default {', '.join(defaults)}",) if defaults else ()


def _lora(options: Options, method: object) -> LoraSpec | None:
    """Adapters where the method has them; their options without it are a contradiction."""
    given = [
        name for name in ("lora_rank", "lora_targets", "lora_dropout", "quant") if options[name] is not None
    ]
    if method not in ("lora", "qlora"):
        if given:
            flag = "--" + given[0].replace("_", "-")
            raise UserError(f"{flag} needs --method lora or qlora, not {method}", "--method lora")
        return None
    quant = choice(options["quant"], ("nf4", "nf4-dq", "gptq"), "--quant")
    if quant and method == "lora":
        raise UserError("--quant needs --method qlora, not lora", "--method qlora")
    dropout = options["lora_dropout"]
    return LoraSpec(
        rank=_int(options, "lora_rank", high=4096) or 16,
        targets=options["lora_targets"] or "all-linear",
        dropout=0.0 if dropout is None else units.parse_fraction(dropout, "--lora-dropout"),
        base_bits=4 if method == "qlora" else 16,
        quant=(quant or "nf4") if method == "qlora" else None,  # type: ignore[arg-type]
    )


def _framework(name: str | None) -> str | None:
    """Profile by name; an unknown one is an error here, where nobody measured anything."""
    if name is None:
        return None

    if match_id(name) is None:
        known = [each for each in profile_ids() if not each.startswith("trace-")]  # those are for tests
        raise UserError(
            f"--framework: unknown name {name!r:.60}{did_you_mean(name, known)}",
            f"--framework takes {', '.join(known)}",
        )
    return name


# ------------------------------------------------------------------------------------- layout


def _pins(options: Options) -> LayoutPins:
    """Parts of the layout that the user fixed."""
    zero = choice(options["zero"], ("0", "1", "2", "3"), "--zero")
    pins = {name: _int(options, name, high=MAX_GPUS) for name in _DEGREES}
    asked: dict[str, object] = {
        **pins,
        "zero_stage": None if zero is None else int(zero),
        "sequence_parallel": options["sequence_parallel"],
        "recompute": choice(options["recompute"], get_args(types.Recompute), "--recompute"),
        "micro_batch": _int(options, "micro_batch", high=1_000_000),
        "grad_accum": _int(options, "grad_accum", high=1_000_000),
        "offload": choice(options["offload"], get_args(types.Offload), "--offload"),
    }
    return build(LayoutPins, asked, "layout")


def _check_batch(training: TrainingSpec, pins: LayoutPins) -> None:
    """Micro-batch and accumulation that are more than the global batch contradict it."""
    batch = training.global_batch_tokens
    least = (pins.micro_batch or 1) * (pins.grad_accum or 1) * (pins.dp or 1) * training.seq_len
    if batch is not None and least > batch:
        raise UserError(
            f"micro-batch × accumulation × dp × sequence = {least} tokens, over the global batch of {batch}",
            f"--global-batch {least}",
        )


def run_request(options: Options, asked: Request) -> RunRequest:
    """One run of the options: the model on GPUs that are named, with the layout as far as it is pinned."""
    if options["gpu"] is None:
        raise UserError("say which GPU the run is on", "--gpu H100-SXM5-80GB --gpus 8")
    pins = asked.pins
    degrees = (pins.dp or 1) * (pins.tp or 1) * (pins.pp or 1) * (pins.cp or 1)
    num_gpus = _int(options, "gpus", high=MAX_GPUS) or degrees
    per_node = _int(options, "gpus_per_node", high=1024) or min(num_gpus, GPUS_PER_NODE)
    if num_gpus % degrees:
        raise UserError(f"dp × tp × pp × cp = {degrees} does not divide {num_gpus} GPUs", f"--gpus {degrees}")
    if num_gpus % per_node:
        raise UserError(
            f"{num_gpus} GPUs are not a whole number of machines of {per_node}",
            f"--gpus {max(1, num_gpus // per_node) * per_node}",
        )
    training, assumed = _with_tokens(asked)
    return RunRequest(
        id="run",
        model=asked.model,
        training=training,
        layout=None,
        pins=pins,
        gpu=options["gpu"],
        num_gpus=num_gpus,
        gpus_per_node=per_node,
        interconnect=options["interconnect"],
        assumed=(*assumed, *unread(options["interconnect"])),
    )


def _with_tokens(asked: Request) -> tuple[TrainingSpec, tuple[str, ...]]:
    """Take the usual number of tokens for pretraining where none is given."""
    training = asked.training
    if training.num_tokens is not None or training.method != "pretrain":
        return training, asked.defaults
    tokens = TOKENS_PER_PARAMETER * count_params(asked.model).total
    said = f"tokens: {TOKENS_PER_PARAMETER} per parameter"
    return training.model_copy(update={"num_tokens": float(tokens)}), (*asked.defaults, said)


# ------------------------------------------------------------------------------------- small parts


def _gpu_ids(names: Iterable[str] | None) -> tuple[str, ...]:
    """Ids of all GPUs that the names may mean."""
    return tuple(sorted(matching_ids(words(names, "--gpu"))))


def _int(options: Options, name: str, high: int) -> int | None:
    text = options[name]
    return None if text is None else units.parse_int(text, "--" + name.replace("_", "-"), high=high)


def _count(options: Options, name: str, high: float) -> float | None:
    text = options[name]
    return None if text is None else units.parse_count(text, "--" + name.replace("_", "-"), high=high)
