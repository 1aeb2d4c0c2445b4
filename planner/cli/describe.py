"""Words for the nouns: a model's shape, an offer, a layout, a link. Used by every screen."""

from __future__ import annotations

from planner import units
from planner.cli.text import keep
from planner.model.count import count_params
from planner.results import Candidate
from planner.types import Layout, ModelSpec, Offer, Run, TrainingSpec

_ZERO = {0: "ddp", 1: "zero-1", 2: "zero-2", 3: "fsdp"}
_PRECISION = {
    "fp32": "fp32",
    "tf32": "tf32",
    "bf16": "bf16 autocast",
    "bf16-pure": "pure bf16",
    "fp16": "fp16 autocast",
    "fp8": "fp8",
}
PART_LETTERS = (
    ("P", "parameters"),
    ("G", "gradients"),
    ("O", "optimizer"),
    ("A", "activations"),
    ("L", "logits"),
    ("F", "gathered"),
    ("C", "communication"),
    ("X", "context"),
    ("S", "allocator_slack"),
)


def num_params(spec: ModelSpec) -> int:
    """Count all parameters of a model, exactly."""
    return round(count_params(spec).total)


def model(spec: ModelSpec) -> str:
    """Describe a model: ``1.00 B parameters: 17 layers × 2048, 16 heads, SwiGLU 5632, vocab 32,000``."""
    heads = f"{spec.num_heads} heads"
    if spec.num_kv_heads != spec.num_heads and spec.mla is None:
        heads += f" ({spec.num_kv_heads} kv)"
    if spec.mla is not None:
        heads += " (latent attention)"
    ffn = f"{'SwiGLU' if spec.gated_ffn else 'MLP'} {spec.ffn_size}"
    if spec.moe is not None:
        moe = spec.moe
        ffn = f"{moe.num_experts} experts of {moe.expert_ffn_size}, {moe.experts_per_token} a token"
    tied = ", tied" if spec.tied_embeddings else ""
    size = units.count(num_params(spec))
    return (
        f"{size} parameters: {spec.num_layers} layers × {spec.hidden_size}, {heads}, "
        f"{ffn}, vocab {units.whole(spec.vocab_size)}{tied}"
    )


def training(spec: TrainingSpec, params: int) -> str:
    """Describe what is asked of a training, defaults included."""
    parts = [f"{units.count(spec.num_tokens)} tokens" if spec.num_tokens else "tokens not given"]
    if spec.num_tokens is not None and spec.method == "pretrain":
        parts[0] += f" ({spec.num_tokens / params:.3g} per parameter)"
    parts.append(f"sequence {spec.seq_len}")
    if spec.global_batch_tokens is not None:
        parts.append(f"global batch {units.count(spec.global_batch_tokens)} tokens")
    parts += [_PRECISION[spec.precision], spec.optimizer]
    if spec.method != "pretrain":
        parts.append(method(spec))
    if spec.framework != "plan":
        parts.append(f"as {spec.framework} does it")
    return ", ".join(parts)


def method(spec: TrainingSpec) -> str:
    """Describe the method: ``full fine-tuning``, ``LoRA rank 16 on all-linear``."""
    if spec.lora is None:
        return {"pretrain": "pretraining", "full": "full fine-tuning"}.get(spec.method, spec.method)
    name = "QLoRA" if spec.method == "qlora" else "LoRA"
    base = f", {spec.lora.quant or f'{spec.lora.base_bits}-bit'} base" if spec.lora.base_bits < 16 else ""
    return f"{name} rank {spec.lora.rank} on {spec.lora.targets}{base}"


def gpus(run: Run) -> str:
    """Name the GPUs of a run: ``8× H100-SXM5-80GB``."""
    first, _, rest = f"{run.shape.num_gpus}× {run.shape.gpu}".partition(" ")
    return f"{keep(first + ' ')}{rest}"


def offer(candidate: Candidate) -> str:
    """Name what is rented: ``2 × aws p5.48xlarge spot``. On demand is not said."""
    nodes = keep(f"{candidate.num_nodes} × ") if candidate.num_nodes > 1 else ""
    return nodes + machine(candidate.offer)


def machine(offer_: Offer) -> str:
    """Name one node: ``aws p5.48xlarge spot``."""
    market = "" if offer_.market == "on-demand" else f" {offer_.market}"
    return f"{offer_.provider} {offer_.instance_type}{market}"


def sharding(layout: Layout) -> str:
    """Name how states are spread over the data-parallel ranks, empty where there is one rank."""
    ranks = layout.dp * layout.cp
    if ranks == 1:
        return ""
    if layout.zero_stage == 3 and layout.shard_group not in (None, ranks):
        return f"hsdp {layout.shard_group}"
    return _ZERO[layout.zero_stage]


def layout(value: Layout) -> str:
    """Describe a layout: ``fsdp tp 8 mbs 1 × acc 16 recompute full``. Degrees of one are not said."""
    parts = [sharding(value)]
    degrees = (("tp", value.tp), ("pp", value.pp), ("cp", value.cp), ("ep", value.ep))
    parts += [keep(f"{name} {degree}") for name, degree in degrees if degree > 1]
    if value.interleave > 1:
        parts.append(f"interleave {value.interleave}")
    parts.append(keep(f"mbs {value.micro_batch} × acc {value.grad_accum}"))
    if value.recompute != "none":
        parts.append(keep(f"recompute {value.recompute}"))
    if value.offload != "none":
        parts.append(f"offload {value.offload}")
    if value.activation_offload:
        parts.append("offload activations")
    return " ".join(p for p in parts if p)


def limiting_link(candidate: Candidate) -> str:
    """Name the link that costs a multi-GPU run most, with its share of the step."""
    if candidate.run.shape.num_gpus == 1:
        return "–"
    name = candidate.speed.limiting_link
    if name is None:
        return "no link waited for"
    return f"{name} {keep(units.percent(candidate.speed.limiting_link_share))}"
