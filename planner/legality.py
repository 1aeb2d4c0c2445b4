"""Which layouts can run at all, and in words why one cannot.

One set of rules serves both sides: ``layouts`` never proposes what they refuse, ``check_layout`` refuses it
by name when the user asks for it. Rules are those of the frameworks (Megatron-LM ``arguments.py``, torchtitan
``parallel_dims.py``, DeepSpeed ``engine.py``) and of the hardware.
"""

from __future__ import annotations

from planner.errors import UserError
from planner.hardware import gpus
from planner.types import Gpu, Layout, ModelSpec, Optimizer, TrainingSpec

STATES_IN_8_BIT = ("adamw-8bit", "adamw-paged-8bit")


def tensor_reason(model: ModelSpec, tp: int) -> str | None:
    """Why ``tp`` cannot split this model's heads and feed-forward, or ``None``.

    Key/value heads are split, or replicated where ``tp`` is a multiple of them (Megatron-LM, torchtitan).
    """
    if tp == 1:
        return None
    if model.num_heads % tp:
        return f"{model.num_heads} attention heads are not divisible by --tp {tp}"
    if model.mla is None and model.num_kv_heads % tp and tp % model.num_kv_heads:
        return f"{model.num_kv_heads} key/value heads neither divide --tp {tp} nor are divided by it"
    for name, width in (("feed-forward", model.ffn_size), ("hidden", model.hidden_size)):
        if width % tp:
            return f"{name} size {width} is not divisible by --tp {tp}"
    return None


def pipeline_reason(model: ModelSpec, pp: int, interleave: int, grad_accum: int | None) -> str | None:
    """Why ``pp`` stages of ``interleave`` chunks cannot hold this model's layers, or ``None``.

    Stages may be uneven, and embedding and head may count as layers (Megatron-LM); interleaving needs
    micro-batches in multiples of ``pp`` (arXiv 2104.04473, 2.2).
    """
    if pp > model.num_layers or pp * interleave > model.num_layers + 2:
        chunks = f"--pp {pp}" if interleave == 1 else f"--pp {pp} with {interleave} chunks each"
        return f"{model.num_layers} layers are fewer than the stages of {chunks}"
    if interleave > 1 and pp == 1:
        return "--interleave needs --pp above 1"
    if interleave > 1 and grad_accum is not None and grad_accum % pp:
        return f"an interleaved pipeline needs accumulation ({grad_accum}) in multiples of --pp {pp}"
    return None


def context_reason(model: ModelSpec, seq_len: int, cp: int, tp: int) -> str | None:
    """Why ``cp`` (and sequence parallel over ``tp``) cannot split the sequence, or ``None``."""
    if cp > 1 and seq_len % (2 * cp):
        return f"sequence {seq_len} is not divisible by 2 x --cp {cp} (load-balanced causal halves)"
    if cp > 1 and model.kind == "encoder":
        return "context parallel is for decoders (ring attention with a causal mask)"
    if (seq_len // cp) % tp:
        return f"sequence {seq_len // cp} of a rank is not divisible by --tp {tp} (sequence parallel)"
    return None


def expert_reason(model: ModelSpec, layout: Layout) -> str | None:
    """Why the experts cannot be spread over ``ep`` groups of ``etp`` GPUs, or ``None``."""
    ep, etp = layout.ep, expert_tensor_degree(layout)
    if model.moe is None:
        return None if ep == 1 and layout.etp in (None, 1) else f"{model.name} has no experts for --ep {ep}"
    if model.moe.num_experts % ep:
        return f"{model.moe.num_experts} experts are not divisible by --ep {ep}"
    if model.moe.expert_ffn_size % etp:
        return f"expert feed-forward size {model.moe.expert_ffn_size} is not divisible by --etp {etp}"
    ranks = layout.dp * layout.cp * layout.tp
    if ranks % (ep * etp):
        return f"--ep {ep} x --etp {etp} does not divide the {ranks} GPUs of a pipeline stage"
    return None


def expert_tensor_degree(layout: Layout) -> int:
    """Tensor-parallel degree of the experts: as asked, else 1 with expert parallel, else the model's."""
    if layout.etp is not None:
        return layout.etp
    return 1 if layout.ep > 1 else layout.tp


def sharding_reason(training: TrainingSpec, layout: Layout) -> str | None:
    """Why ZeRO stage, shard group, offload and the other degrees do not go together, or ``None``."""
    ranks = layout.dp * layout.cp
    if layout.shard_group is not None and ranks % layout.shard_group:
        return f"shard group {layout.shard_group} does not divide the {ranks} data-parallel ranks"
    if layout.zero_stage == 2 and layout.pp > 1:
        return "ZeRO stage 2 shards gradients at each micro-batch: pipeline stages need --zero 0, 1 or 3"
    if layout.pp > 1 and layout.zero_stage == 3 and training.framework.lower().startswith("deepspeed"):
        return "DeepSpeed's pipeline engine needs ZeRO stage 0 or 1"
    if layout.offload == "params+optimizer" and layout.zero_stage != 3:
        return "parameters are offloaded by --zero 3 only"
    return None


def method_reason(training: TrainingSpec, layout: Layout) -> str | None:
    """Why the method cannot run on these degrees, or ``None``."""
    split = max(layout.tp, layout.pp, layout.cp, layout.ep) > 1
    if training.method == "qlora" and split:
        return "no framework splits a quantised base by --tp, --pp, --cp or --ep: use data parallel or FSDP"
    return None


def optimizer_reason(gpu: Gpu, optimizer: Optimizer) -> str | None:
    """Why ``optimizer`` cannot run on ``gpu``, or ``None``: 8-bit states are CUDA kernels (bitsandbytes)."""
    if optimizer in STATES_IN_8_BIT and gpu.vendor != "nvidia":
        return f"8-bit optimizer states need an NVIDIA GPU, {gpu.id} is none"
    return None


def degrees_reason(
    model: ModelSpec, training: TrainingSpec, layout: Layout, grad_accum: int | None
) -> str | None:
    """Name the first rule of model, method and framework that the layout breaks, or ``None``.

    ``grad_accum`` is ``None`` while micro-batch and accumulation are still to be chosen.
    """
    return (
        tensor_reason(model, layout.tp)
        or pipeline_reason(model, layout.pp, layout.interleave, grad_accum)
        or context_reason(model, training.seq_len, layout.cp, layout.tp if layout.sequence_parallel else 1)
        or expert_reason(model, layout)
        or sharding_reason(training, layout)
        or method_reason(training, layout)
    )


def check_layout(
    model: ModelSpec, training: TrainingSpec, layout: Layout, gpu: Gpu, gpus_per_node: int, num_nodes: int
) -> None:
    """Refuse a layout that cannot run on ``num_nodes`` nodes of ``gpus_per_node`` GPUs.

    Raises ``UserError`` with the first rule that it breaks.
    """
    asked = gpus_per_node * num_nodes
    used = layout.dp * layout.tp * layout.pp * layout.cp
    if used != asked:
        raise UserError(
            f"dp {layout.dp} x tp {layout.tp} x pp {layout.pp} x cp {layout.cp} = {used} GPUs, not {asked}",
            "leave one degree out and it follows from the others",
        )
    reason = (
        gpus.supports(gpu, training.precision)
        or optimizer_reason(gpu, training.optimizer)
        or degrees_reason(model, training, layout, layout.grad_accum)
    )
    if reason:
        raise UserError(f"{reason} ({model.name} on {asked}x {gpu.id})", _hint(reason))


def _hint(reason: str) -> str:
    """Give a flag that avoids the refusal."""
    if "fp8" in reason or "tf32" in reason:
        return "--precision bf16"
    if "bf16" in reason:
        return "--precision fp16"
    if "8-bit" in reason:
        return "--optimizer adamw"
    return "leave that degree out and the search picks a legal one"
