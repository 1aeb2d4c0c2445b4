"""Bytes per parameter of every state, and per element of what a step computes with.

FP32, autocast over FP32 weights, FSDP mixed precision, 16-bit weights with an FP32 master, all 16 bit;
frozen and quantised bases of adapters. ``numerics.py`` gathers them with the rest of a training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array
from planner.training.frameworks import MemoryProfile
from planner.types import LoraSpec, Numerics, Optimizer, TrainingSpec

GROUP_8BIT = 2048  # elements that share one fp32 scale in bitsandbytes' 8-bit optimizers


@dataclass(frozen=True, slots=True)
class FormatColumns:
    """Bytes per trainable parameter of each state, and bytes per element of what the step computes with."""

    weight: Array  # as kept between steps
    gradient: Array
    master: Array  # fp32 copy that the optimizer updates, 0 where it updates the weights
    moments: Array  # optimizer states of block weights
    moments_root: Array  # the same of embedding and head
    step_temporary: Array  # scratch of the optimizer step, per parameter
    step_params: Array  # parameters that the step works on at once under ZeRO-3
    low_copy: Array  # 8-bit copies of block weights that stay through the step
    compute: Array  # activations and gathered weights
    linear_input: Array  # what a trained linear keeps of its input
    residual: Array  # block inputs
    casts: Array  # 1 = autocast over fp32 weights: every linear keeps its own 16-bit input
    cast_cache: Array  # bytes of autocast's cached 16-bit copy of a weight
    frozen_cast: Array  # the same of a frozen weight, kept for backward
    head_cast: Array  # the same of the output projection
    adapter_copy: Array  # bytes per element of an adapter's own copy of its input; 0 = shares the module's
    adapter_backward: Array  # bytes per element of block gradients that stay to the end of backward
    adapter_value: Array  # bytes per element of what lies between an adapter's two matrices
    base_linear: Array  # frozen weights of blocks, quantised or not
    base_other: Array  # frozen embedding, head and norms


def numerics_of(training: TrainingSpec, profile: MemoryProfile, *, sharded: bool) -> Numerics:
    """Decide the number format: as asked, else by precision and the framework's profile."""
    if training.numerics is not None:
        return training.numerics
    if training.precision in ("fp32", "tf32"):
        return "fp32"
    if training.precision == "bf16-pure":
        return "bf16-all"
    return profile.numerics_sharded if sharded else profile.numerics


_WEIGHT = {"fp32": 4, "fp32-weights-amp": 4, "fsdp-mixed": 4, "16bit-weights-fp32-master": 2, "bf16-all": 2}
COMPUTE_BYTES = {
    "fp32": 4,
    "fp32-weights-amp": 2,
    "fsdp-mixed": 2,
    "16bit-weights-fp32-master": 2,
    "bf16-all": 2,
}


def format_columns(
    training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile, *, sharded: bool
) -> FormatColumns:
    """Build the formats of one training, for sharded (ZeRO-3, FSDP) or unsharded weights."""
    numerics = numerics_of(training, profile, sharded=sharded)
    mastered = numerics == "16bit-weights-fp32-master" and lora is None
    amp = numerics == "fp32-weights-amp" and lora is None
    weight = float(adapter_bytes(training, lora, profile) if lora else _WEIGHT[numerics])
    compute = float(COMPUTE_BYTES[numerics])
    state = 4.0 if mastered else weight
    moments, moments_root = moment_bytes(training.optimizer, state)
    base_linear, base_other = (
        _base_bytes(training, lora, profile, compute, sharded=sharded) if lora else (weight, weight)
    )
    wide_residual = amp or (lora is not None and base_other == 4)
    frozen_cast = lora is not None and base_linear == 4 and compute == 2
    low = training.precision == "fp8" and lora is None
    copy = _adapter_copy(training, lora, profile, sharded=sharded)
    return FormatColumns(
        weight=scalar(weight),
        gradient=scalar(_master_gradient(training, profile) if mastered else weight),
        master=scalar(4.0 if mastered else 0.0),
        moments=scalar(moments),
        moments_root=scalar(moments_root),
        step_temporary=scalar(_step_bytes(training, profile, state, mastered=mastered)),
        step_params=scalar(profile.step_copy_params if mastered and sharded else np.inf),
        low_copy=scalar(profile.fp8_weight_bytes if low else 0.0),
        compute=scalar(compute),
        linear_input=scalar(profile.fp8_input_bytes if low and profile.fp8_input_bytes else compute),
        residual=scalar(4.0 if wide_residual else compute),
        casts=scalar(amp),
        cast_cache=scalar(2.0 if amp else 0.0),
        frozen_cast=scalar(2.0 if frozen_cast else 0.0),
        head_cast=scalar(2.0 if amp or (lora is not None and base_other == 4) else 0.0),
        adapter_copy=scalar(copy),
        adapter_backward=scalar(profile.adapter_backward_bytes if lora is not None and sharded else 0.0),
        adapter_value=scalar(4.0 if copy == 4 else 2.0),
        base_linear=scalar(base_linear),
        base_other=scalar(base_other),
    )


def _step_bytes(training: TrainingSpec, profile: MemoryProfile, state: float, *, mastered: bool) -> float:
    """Scratch of the optimizer step: foreach AdamW's temporary list, DeepSpeed's fp32 copy of the
    gradients.
    """
    if mastered:
        return profile.step_copy_bytes
    impl = training.optimizer_impl or profile.optimizer_impl
    return state if impl == "foreach" and training.optimizer == "adamw" else 0.0


def _master_gradient(training: TrainingSpec, profile: MemoryProfile) -> float:
    """DeepSpeed's bf16 optimizer keeps 16-bit gradients and an fp32 accumulation of them."""
    own = profile.gradient_bytes_bf16_optimizer
    return own if own and training.precision == "bf16" else profile.gradient_bytes_master


def moment_bytes(optimizer: Optimizer, state: float) -> tuple[float, float]:
    """Optimizer bytes per parameter of block weights, and of embedding and head.

    AdamW keeps two moments in the dtype it updates; sgd (with momentum) and Lion (arXiv 2302.06675) one;
    Muon one for matrices and AdamW elsewhere; Adafactor (arXiv 1804.04235) a row and a column of each
    matrix, here as nothing. bitsandbytes 8-bit (arXiv 2110.02861) keeps two bytes and a scale per block,
    embeddings in 32 bit.
    """
    if optimizer in ("adamw-8bit", "adamw-paged-8bit"):
        return 2 * (1 + 4 / GROUP_8BIT), 8.0
    if optimizer == "adafactor":
        return 0.0, 0.0
    if optimizer in ("sgd", "lion"):
        return state, state
    if optimizer == "muon":
        return state, 2 * state
    return 2 * state, 2 * state


# bitsandbytes NF4: an absmax per 64 weights, in fp32 or (double quantisation, arXiv 2305.14314) in 8 bit;
# GPTQ: a 16-bit scale and a 4-bit zero per 128 weights; bitsandbytes int8: a scale per row
_QUANT_BYTES = {
    ("nf4", 4): 0.5 + 4 / 64,
    ("nf4-dq", 4): 0.5 + 1 / 64 + 4 / (64 * 256),
    ("gptq", 4): 0.5 + 2.5 / 128,
    ("gptq", 8): 1.0 + 3.0 / 128,
    ("nf4", 8): 1.0,
    ("nf4-dq", 8): 1.0,
}


def _base_bytes(
    training: TrainingSpec, lora: LoraSpec, profile: MemoryProfile, compute: float, *, sharded: bool
) -> tuple[float, float]:
    """Bytes per frozen parameter of linears in blocks, and of everything else."""
    mixed = training.precision in ("bf16", "fp16", "fp8") and training.numerics is None
    plain = profile.base_bytes_mixed if mixed else compute
    if lora.base_bits == 16:
        return plain, plain
    linear = _QUANT_BYTES[lora.quant or "nf4", lora.base_bits]
    prepared = profile.kbit_preparation and lora.quant != "gptq" and not sharded
    return linear, 4.0 if prepared else compute


def adapter_bytes(training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile) -> float:
    """Bytes per adapter parameter."""
    if lora is not None and lora.adapter_bits is not None:
        return lora.adapter_bits / 8
    if training.precision in ("fp32", "tf32"):
        return 4.0
    if training.numerics == "bf16-all":
        return 2.0
    return (profile.adapter_bits_pure if training.precision == "bf16-pure" else profile.adapter_bits) / 8


def _adapter_copy(
    training: TrainingSpec, lora: LoraSpec | None, profile: MemoryProfile, *, sharded: bool
) -> float:
    """Bytes per element of the copy that an adapter keeps of its input.

    An fp32 adapter keeps a 16-bit one under autocast, an fp32 one without; FSDP mixed precision casts
    the adapter instead. Dropout makes a copy in any case.
    """
    if lora is None:
        return 0.0
    dropped = 2.0 if (lora.dropout or profile.lora_dropout) > 0 else 0.0
    wide = adapter_bytes(training, lora, profile) == 4
    cast_away = sharded and not profile.adapter_copies_sharded
    if not wide or cast_away or training.precision in ("fp32", "tf32"):
        return dropped
    autocast = profile.adapter_autocast and training.precision in ("bf16", "fp16", "fp8")
    return 2.0 if autocast else 4.0


def scalar(value: float) -> Array:
    """Shape ``()``."""
    return np.asarray(value, dtype=np.float64)
