"""How a framework executes a step, as columns: kernels, overlap, overheads.

What a framework does stands in the ``speed`` tables of ``data/frameworks.toml``; explicit fields of
``TrainingSpec`` beat them. Bytes that kernels move per element stand in ``data/kernel_traffic.csv``.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal, TypeVar

import numpy as np

from planner.columns import Array
from planner.hardware.efficiency import KERNELS, PRECISIONS
from planner.training import frameworks
from planner.training.lora import LoraTargets, parse_targets
from planner.types import LoraSpec, Record, TrainingSpec

Kernels = Literal["eager", "torch", "fused", "compiled"]
# Bytes that an optimizer moves per parameter of its shard in one fused pass: reads of gradient, weight
# and states, writes of weight, states and the 16-bit copy (counted from the update rules).
_OPTIMIZER_BYTES = {
    "adamw": 30.0,
    "adamw-8bit": 20.0,
    "adamw-paged": 30.0,
    "adamw-paged-8bit": 20.0,
    "adafactor": 26.0,
    "sgd": 22.0,
    "lion": 22.0,
    "muon": 30.0,
}
# Dropout on attention scores: read, write and byte mask in each direction.
_DROPOUT_SCORE_BYTES = 11.0
_OPTIMIZER_BYTES_16BIT = 0.5  # all states in 16 bit move half
# Bytes moved per logit by the loss, forward and backward: every fp32 intermediate is written and read.
_LOSS_BYTES = {"plain": 40.0, "chunked": 34.0, "compiled": 10.0, "fused": 12.0, "fused-linear": 10.0}
# Scales per row leave the vendor's fastest kernels: no faster than 16 bit in pytorch/torchtitan
# benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md. Block scales: NVIDIA-NeMo/Megatron-Bridge tables,
# 2-6 % of a step.
_RECIPE_SHARE = {"rowwise": 0.6, "mx-or-subchannel": 0.95}
_IMPL_FACTOR = {"fused": 1.0, "foreach": 3.0, "for-loop": 3.5, "in-backward": 1.2, "paged": 1.3}
_IMPL_LAUNCHES = {"fused": 0.1, "foreach": 0.6, "for-loop": 12.0, "in-backward": 2.0, "paged": 2.0}


class SpeedProfile(Record):
    """What a framework does that decides time. Shares are 0 to 1; see the comments in frameworks.toml."""

    kernels: Kernels
    compile_by_default: bool
    attention: Literal["first", "sdpa", "newest", "eager"]
    flash_newest_since: str
    score_traffic_bytes: float
    launch_us: float
    graph_share: float
    overlap_data: float
    overlap_gather: float
    overlap_tensor: float
    overlap_pipeline: float
    overlap_expert: float
    overlap_context: float
    reduce_every_micro_batch: bool
    accumulate_bytes: float
    fp8_cast_bytes: float
    fp8_weight_bytes: float
    fp8_weights_kept: bool
    fp8_gather: bool
    grouped_experts: bool
    expert_imbalance: float
    selective_matmul: float
    selective_attention: float
    selective_memory: float
    shard_copy_bytes: float
    pads_vocab: bool
    clip_bytes: float
    finetune_sample_tokens: float
    step_overhead_s: float
    micro_batch_overhead_s: float
    idle_share: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes moved per element and kernels launched, forward and backward, of one kind of operation."""

    forward_bytes: Array
    backward_bytes: Array
    forward_launches: Array
    backward_launches: Array


@dataclass(frozen=True, slots=True)
class KernelColumns:
    """Traffic of each kind of operation in the kernels that the run executes."""

    rms_norm: Traffic
    layer_norm: Traffic
    residual: Traffic
    gated_ffn: Traffic
    plain_ffn: Traffic
    composed_gelu: Traffic
    rope: Traffic
    dropout: Traffic
    linear: Traffic


@dataclass(frozen=True, slots=True)
class HabitColumns:
    """What follows from the framework alone; the fields of ``SpeedProfile`` of the same names."""

    overlap_data: Array
    overlap_gather: Array
    overlap_tensor: Array
    overlap_pipeline: Array
    overlap_expert: Array
    overlap_context: Array
    reduce_every_micro_batch: Array
    fp8_weights_kept: Array
    grouped_experts: Array
    selective_matmul: Array  # share of a block's linears that selective recompute runs again
    selective_attention: Array
    selective_memory: Array
    shard_copy_bytes: Array  # moved per parameter and micro-batch to pack and unpack shards (ZeRO-3)
    pads_vocab: Array
    step_overhead_s: Array
    micro_batch_overhead_s: Array
    idle_share: Array  # of the step: data loader, host jitter, logging, garbage collection


@dataclass(frozen=True, slots=True)
class AdapterColumns:
    """Adapters of LoRA; masks say which linears of a block carry one."""

    rank: Array
    input_bytes: Array  # moved per element of an adapted linear's input and output, each direction
    output_bytes: Array
    q: Array
    k: Array
    v: Array
    o: Array
    gate: Array
    up: Array
    down: Array
    head: Array


@dataclass(frozen=True, slots=True)
class ExecutionColumns:
    """What ``planner.speed`` needs to know of a training and its framework. Shape () or (n,)."""

    seq_len: Array
    attention_tokens: Array  # that attention spans: the sequence, or a sample packed into it
    precision_index: Array  # of the linears, into efficiency.PRECISIONS
    linear_share: Array  # of the rate of that precision that the fp8 recipe's kernels reach
    half_index: Array  # of attention and the head
    activation_bytes: Array  # per element: 2, or 4 in fp32 / tf32
    linear_bytes: Array  # operand bytes per element of the linears: 1 with fp8
    kernels: KernelColumns
    has_dropout: Array
    loss_bytes: Array  # moved per logit
    vocab_parallel: Array
    eager_attention: Array
    attention_kernel: Array  # into efficiency.KERNELS
    score_bytes: Array  # moved per attention score, forward and backward, where scores are materialised
    launch_s: Array  # CPU seconds per kernel launch
    habits: HabitColumns
    reduce_bytes: Array  # per gradient element on the wire, ZeRO-3 / FSDP
    whole_reduce_bytes: Array  # the same where weights are whole: fp32 gradients under autocast
    gather_bytes: Array  # per parameter on the wire
    cast_bytes: Array  # moved per parameter and micro-batch to make low-precision copies of weights
    fp8_weight_bytes: Array  # moved per parameter and micro-batch (once a step where kept) to cast weights
    accumulate_bytes: Array  # moved per parameter and micro-batch to add up gradients
    fp8_cast_bytes: Array  # moved per element of a linear's input or output gradient
    expert_imbalance: Array  # tokens of the fullest expert over the mean
    optimizer_bytes: Array  # moved per parameter of the shard
    optimizer_launches: Array  # per parameter tensor
    newton_schulz: Array  # 1 = muon
    frozen_base: Array  # 1 = LoRA or QLoRA
    frozen_layers: Array
    dequantise_bytes: Array  # moved per quantised weight and pass
    quantised: Array
    adapters: AdapterColumns


_Columns = TypeVar("_Columns", ExecutionColumns, KernelColumns, HabitColumns, AdapterColumns, Traffic)


def execution_columns(trainings: Sequence[TrainingSpec]) -> ExecutionColumns:
    """Columns of shape ``()`` for one training, ``(n,)`` for n."""
    if not trainings:
        raise ValueError("execution_columns needs at least one training")
    rows = [_columns_of(training) for training in trainings]
    return rows[0] if len(rows) == 1 else _stack(rows)


def _stack(rows: Sequence[_Columns]) -> _Columns:
    """One record of arrays from many of scalars; records inside are stacked alike."""
    columns: list[Any] = []
    for field in fields(rows[0]):
        values = [getattr(row, field.name) for row in rows]
        columns.append(_stack(values) if is_dataclass(values[0]) else np.array(values))
    return type(rows[0])(*columns)


@lru_cache(maxsize=512)
def speed_profile(framework: str) -> SpeedProfile:
    """Speed part of the profile that ``framework`` matches."""
    profile_id = frameworks.match_id(framework) or frameworks.GENERIC
    return SpeedProfile.model_validate(frameworks.table(profile_id, "speed"))


@lru_cache(maxsize=1)
def _traffic() -> dict[tuple[str, str], Traffic]:
    text = files("planner").joinpath("data/kernel_traffic.csv").read_text(encoding="utf-8")
    return {
        (row["kernels"], row["item"]): Traffic(*(_scalar(float(row[f.name])) for f in fields(Traffic)))
        for row in csv.DictReader(text.splitlines())
    }


def _scalar(value: float) -> Array:
    return np.asarray(value, dtype=np.float64)


def kernels_of(training: TrainingSpec, profile: SpeedProfile) -> Kernels:
    """Kernel class: ``compile`` and ``fused_kernels`` of the training beat the profile."""
    compiled = profile.compile_by_default if training.compile is None else training.compile
    if compiled:
        return "compiled"
    if training.fused_kernels is None:
        return profile.kernels
    if training.fused_kernels:
        return "fused"
    return "eager" if profile.kernels == "eager" else "torch"


def attention_of(training: TrainingSpec, profile: SpeedProfile) -> tuple[bool, str]:
    """(scores materialised, kernel of ``efficiency.KERNELS``). A profile that says eager is beaten by an
    explicit flash, which means the newest kernels of a dated framework from ``flash_newest_since`` on.
    """
    chosen = training.attention
    if chosen == "flash" and profile.flash_newest_since <= frameworks.date_of(training.framework) < "9998":
        return False, "newest"
    eager = profile.attention == "eager" if chosen is None else chosen == "eager"
    kernel = profile.attention if profile.attention in KERNELS else "sdpa"
    return eager, kernel


def _kernels(kernels: Kernels) -> KernelColumns:
    return KernelColumns(*(_traffic()[kernels, f.name] for f in fields(KernelColumns)))


def _habits(speed: SpeedProfile) -> HabitColumns:
    return HabitColumns(*(_scalar(getattr(speed, f.name)) for f in fields(HabitColumns)))


def _adapters(
    training: TrainingSpec, lora: LoraSpec | None, memory: frameworks.MemoryProfile
) -> AdapterColumns:
    targets = parse_targets(lora.targets) if lora else LoraTargets()
    masks = (targets.q, targets.k, targets.v, targets.o, targets.gate, targets.up, targets.down, targets.head)
    moved = _adapter_bytes(training, lora, memory)
    return AdapterColumns(_scalar(lora.rank if lora else 0), *map(_scalar, moved), *map(_scalar, masks))


@lru_cache(maxsize=4096)
def _columns_of(training: TrainingSpec) -> ExecutionColumns:
    speed = speed_profile(training.framework)
    memory = frameworks.match(training.framework).memory
    kernels = kernels_of(training, speed)
    eager, kernel = attention_of(training, speed)
    pure16 = training.precision == "bf16-pure" or (training.numerics or memory.numerics) == "bf16-all"
    wide, fp8 = training.precision in ("fp32", "tf32"), training.precision == "fp8"
    half = {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16"}.get(training.precision, "bf16")
    linears = {"bf16-pure": "bf16"}.get(training.precision, training.precision)
    loss = training.loss or ("compiled" if kernels == "compiled" and memory.loss == "plain" else memory.loss)
    dropout = memory.dropout if training.dropout is None else training.dropout
    lora = training.lora or (LoraSpec() if training.method in ("lora", "qlora") else None)
    launch_us = speed.launch_us * (1 - speed.graph_share) * (0.8 if kernels == "compiled" else 1.0)
    return ExecutionColumns(
        seq_len=_scalar(training.seq_len),
        attention_tokens=_scalar(_attention_tokens(training, speed)),
        precision_index=np.asarray(PRECISIONS.index(linears)),
        linear_share=_scalar(_RECIPE_SHARE.get(training.fp8_recipe or "", 1.0) if fp8 else 1.0),
        half_index=np.asarray(PRECISIONS.index(half)),
        activation_bytes=_scalar(4 if wide else 2),
        linear_bytes=_scalar(1 if fp8 else 4 if wide else 2),
        kernels=_kernels(kernels),
        has_dropout=_scalar(dropout > 0),
        loss_bytes=_scalar(_LOSS_BYTES[loss]),
        vocab_parallel=_scalar(memory.vocab_parallel),
        eager_attention=_scalar(eager),
        attention_kernel=np.asarray(KERNELS.index(kernel)),
        score_bytes=_scalar(speed.score_traffic_bytes + (_DROPOUT_SCORE_BYTES if dropout > 0 else 0)),
        launch_s=_scalar(launch_us * 1e-6),
        habits=_habits(speed),
        reduce_bytes=_scalar(2.0 if pure16 else memory.reduce_bytes),
        whole_reduce_bytes=_scalar(_whole_reduce_bytes(training, memory, pure16=pure16, wide=wide)),
        gather_bytes=_scalar(4.0 if wide else 1.0 if speed.fp8_gather and fp8 else 2.0),
        cast_bytes=_scalar(_cast_bytes(training, memory, pure16=pure16, wide=wide)),
        fp8_weight_bytes=_scalar(speed.fp8_weight_bytes if fp8 else 0.0),
        accumulate_bytes=_scalar(min(6.0, speed.accumulate_bytes) if pure16 else speed.accumulate_bytes),
        fp8_cast_bytes=_scalar(speed.fp8_cast_bytes if fp8 else 0.0),
        expert_imbalance=_scalar(1.0 if training.moe_token_drop else speed.expert_imbalance),
        optimizer_bytes=_scalar(_optimizer_bytes(training, memory, pure16=pure16) + speed.clip_bytes),
        optimizer_launches=_scalar(_IMPL_LAUNCHES[training.optimizer_impl or memory.optimizer_impl]),
        newton_schulz=_scalar(training.optimizer == "muon"),
        frozen_base=_scalar(training.method in ("lora", "qlora")),
        frozen_layers=_scalar(training.frozen_layers),
        dequantise_bytes=_scalar(_dequantise_bytes(lora)),
        quantised=_scalar(lora is not None and lora.base_bits < 16),
        adapters=_adapters(training, lora, memory),
    )


def _whole_reduce_bytes(
    training: TrainingSpec, memory: frameworks.MemoryProfile, *, pure16: bool, wide: bool
) -> float:
    """Bytes of a gradient on the wire where weights are whole: that of its weight, or the framework's."""
    if pure16:
        return 2.0
    amp = (training.numerics or memory.numerics) == "fp32-weights-amp"
    return 4.0 if wide or amp else memory.reduce_bytes


def _attention_tokens(training: TrainingSpec, speed: SpeedProfile) -> float:
    """Tokens that attention spans: a sample, where fine-tuning packs samples with a mask between them."""
    tuned = training.method != "pretrain"
    return min(training.seq_len, speed.finetune_sample_tokens) if tuned else training.seq_len


def _optimizer_bytes(training: TrainingSpec, memory: frameworks.MemoryProfile, *, pure16: bool) -> float:
    """Bytes that the optimizer moves per parameter: one fused pass, or several by implementation."""
    passes = _IMPL_FACTOR[training.optimizer_impl or memory.optimizer_impl]
    return _OPTIMIZER_BYTES[training.optimizer] * passes * (_OPTIMIZER_BYTES_16BIT if pure16 else 1.0)


def _cast_bytes(
    training: TrainingSpec, memory: frameworks.MemoryProfile, *, pure16: bool, wide: bool
) -> float:
    """Bytes moved per parameter and micro-batch to cast fp32 weights under autocast: read 4, write 2."""
    numerics = training.numerics or memory.numerics
    return 6.0 if numerics == "fp32-weights-amp" and not pure16 and not wide else 0.0


def _adapter_bytes(
    training: TrainingSpec, lora: LoraSpec | None, memory: frameworks.MemoryProfile
) -> tuple[float, float]:
    """Bytes moved per element of input and output of an adapted linear, in each direction.

    16 bit: dropout (read, write, mask), the read of A; the write of B, scale, add. fp32 adapters without
    autocast compute in fp32 and cast both ways (huggingface/peft tuners/lora/layer.py).
    """
    if lora is None:
        return 0.0, 0.0
    dropout = max(lora.dropout, memory.lora_dropout) > 0
    wide = (lora.adapter_bits or memory.adapter_bits) == 32 and training.precision in ("bf16-pure", "fp32")
    if wide:
        return (19.0 if dropout else 10.0), 28.0
    return (7.0 if dropout else 2.0), 12.0


def _dequantise_bytes(lora: LoraSpec | None) -> float:
    """Bytes moved per weight and pass to turn a quantised base into 16 bit: read, write, and kernels
    below copy speed.
    """
    if lora is None or lora.base_bits == 16:
        return 0.0
    if lora.base_bits == 8:
        return 6.0
    return {"gptq": 12.0, "nf4-dq": 6.0}.get(lora.quant or "nf4", 5.0)
