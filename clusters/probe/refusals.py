"""What the step cannot run, in words. Nothing that is refused here is ever replaced by something else."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from .lora import unknown_target
from .spec import Model, Run

OPTIMIZERS = ("adamw", "adamw-8bit", "adafactor", "sgd", "muon")
IMPLEMENTATIONS = (None, "fused", "foreach", "for-loop")
NORMS = (0, 1, 2, 4)


def refusal(run: Run, device_type: str, world_size: int | None = None) -> str | None:
    """Say the first reason why this step cannot run ``run`` on these devices, ``None`` where it can."""
    return next(reasons(run, device_type, world_size), None)


def reasons(run: Run, device_type: str, world_size: int | None = None) -> Iterator[str]:
    """Every reason why this step cannot run ``run``. ``world_size``: ranks that there are, if known."""
    if world_size is not None and world_size != run.world_size:
        yield f"the layout takes {run.world_size} ranks, there are {world_size}"
    yield from _model(run)
    yield from _training(run)
    yield from _optimizer(run, device_type)
    yield from _layout(run, device_type)
    if run.layout.tp > 1:
        yield from _tensor_parallel(run)
    if run.lora is not None:
        yield from _adapters(run)


def _model(run: Run) -> Iterator[str]:
    model = run.model
    if model.kind == "encoder" and not model.mlm_head:
        yield "an encoder without its MLM head has no loss to train on"
    if model.attention_sinks:
        yield "attention sinks are not in this step's attention"
    if model.value_embeds or model.extra_params:
        yield "value embeddings and loose scalars (nanochat) are not in this step's model"
    if model.norms_per_layer not in NORMS or (model.norms_per_layer == 1 and not model.parallel_block):
        yield f"{model.norms_per_layer} norms per layer are not in this step's block"
    if model.moe is not None and model.moe.expert_bias:
        yield "experts with biases are not in this step's grouped experts"
    if model.positional == "rope" and (model.mla.rope_dim if model.mla else model.head_dim) % 2:
        yield "rotary positions need an even head size"
    if model.positional == "learned" and run.training.seq_len > (model.max_position or 0):
        yield f"sequence {run.training.seq_len} is longer than the {model.max_position} learned positions"


def _training(run: Run) -> Iterator[str]:
    training = run.training
    if training.framework.strip().lower() != "plan" and not training.framework.lower().startswith("plan "):
        yield f"framework {training.framework!r}: this step runs the numerics of 'plan' only"
    if training.precision == "fp8" or training.fp8_recipe is not None:
        yield "fp8 is not in this step"
    if training.precision == "fp16" and run.sharded:
        yield "fp16 with sharded weights needs a sharded loss scaler: use bf16"
    allowed = {"fp32", "bf16-all", "fsdp-mixed" if run.sharded else "fp32-weights-amp"}
    if run.numerics not in allowed:
        yield f"numerics {run.numerics!r} with ZeRO stage {run.layout.zero_stage} are not in this step"
    if training.loss not in (None, "plain"):
        yield f"loss {training.loss!r} is not in this step: it runs the plain cross-entropy"
    if training.compile:
        yield "torch.compile is not used by this step"
    if training.fused_kernels:
        yield "fused third-party kernels are not used by this step"
    if training.moe_token_drop:
        yield "this step's experts drop no tokens"
    if training.dropout:
        yield "dropout is not in this step's blocks"


def _optimizer(run: Run, device_type: str) -> Iterator[str]:
    name, impl = run.training.optimizer, run.training.optimizer_impl
    if name not in OPTIMIZERS:
        yield f"optimizer {name!r} is not in this step ({', '.join(OPTIMIZERS)})"
    if impl not in IMPLEMENTATIONS:
        yield f"optimizer implementation {impl!r} is not in this step"
    if name == "adamw-8bit":
        if importlib.util.find_spec("bitsandbytes") is None:
            yield "adamw-8bit needs bitsandbytes, which is not installed here"
        if device_type != "cuda":
            yield "adamw-8bit needs an NVIDIA GPU"
        if run.sharded or run.layout.tp > 1:
            yield "adamw-8bit does not work on sharded weights"
    if name in ("muon", "adafactor") and (run.sharded or run.layout.tp > 1 or run.layout.zero_stage):
        yield f"{name} is run unsharded only by this step"


def _layout(run: Run, device_type: str) -> Iterator[str]:
    layout = run.layout
    if layout.pp > 1:
        yield from _pipeline(run)
    for degree, name in ((layout.cp, "context"), (layout.ep, "expert")):
        if degree > 1:
            yield f"{name} parallel ({degree}) is not in this step"
    if layout.zero_stage == 2:
        yield "ZeRO stage 2 is not in PyTorch: use --zero 1 (sharded optimizer) or --zero 3 (FSDP2)"
    if layout.zero_stage == 1 and layout.tp > 1:
        yield "ZeRO stage 1 with tensor parallel is not in this step: use --zero 3"
    if layout.zero_stage == 0 and layout.tp > 1 and layout.dp > 1:
        yield "tensor parallel with unsharded data parallel is not in this step: use --zero 3"
    group = layout.shard_group
    if group not in (None, layout.dp) and (layout.dp % (group or 1) or not run.sharded):
        yield f"a shard group of {group} needs ZeRO stage 3 and must divide dp {layout.dp}"
    if layout.offload not in ("none", "params+optimizer"):
        yield f"offload {layout.offload!r} is not in this step"
    if layout.offload == "params+optimizer" and (not run.sharded or device_type == "cpu"):
        yield "offloaded parameters need ZeRO stage 3 on a GPU"
    if layout.activation_offload:
        yield "activation offload is not in this step"
    if layout.tp_overlap:
        yield "overlapped tensor parallel (async TP) is not in this step"


def _pipeline(run: Run) -> Iterator[str]:
    layout, model = run.layout, run.model
    stages = layout.pp * layout.interleave
    if stages > model.num_layers:
        yield f"{model.num_layers} layers are fewer than the {stages} stages of the pipeline"
    if layout.interleave > 1 and layout.grad_accum % layout.pp:
        yield f"an interleaved pipeline needs accumulation in multiples of pp {layout.pp}"
    if layout.grad_accum < stages:
        yield f"{layout.grad_accum} micro-batches are fewer than the {stages} stages of PyTorch's 1F1B"
    if model.tied_embeddings:
        yield "a pipeline with tied embeddings (one table on two stages) is not in this step"
    if layout.zero_stage == 1 or (layout.dp > 1 and layout.zero_stage == 0):
        yield f"a pipeline with ZeRO stage {layout.zero_stage} and dp {layout.dp}: use --zero 3"
    if run.training.precision == "fp16":
        yield "fp16 with a pipeline needs a shared loss scaler: use bf16"
    if run.lora is not None or run.training.frozen_layers:
        yield "a pipeline with frozen weights is not in this step"


def _tensor_parallel(run: Run) -> Iterator[str]:
    model, tp = run.model, run.layout.tp
    for count, what in (
        (model.num_heads, "attention heads"),
        (model.num_kv_heads, "key/value heads"),
        (model.ffn_size, "feed-forward columns"),
    ):
        if count % tp:
            yield f"{count} {what} are not divisible by tp {tp}"
    if run.layout.sequence_parallel and run.training.seq_len % tp:
        yield f"sequence {run.training.seq_len} is not divisible by tp {tp} (sequence parallel)"
    odd = _not_split(model)
    if odd:
        yield f"tensor parallel of {odd} is not in this step"
    if run.training.precision == "fp16":
        yield "fp16 with tensor parallel needs a sharded loss scaler: use bf16"


def _not_split(model: Model) -> str | None:
    """Name a part of the model that no tensor-parallel plan is written for."""
    parts = {
        "experts": model.moe is not None,
        "latent attention": model.mla is not None,
        "an encoder": model.kind == "encoder",
        "ALiBi": model.positional == "alibi",
        "a narrow token table": model.embed_dim is not None,
        "a norm over all heads": model.qk_norm == "full",
    }
    return next((name for name, has in parts.items() if has), None)


def _adapters(run: Run) -> Iterator[str]:
    lora = run.lora
    assert lora is not None
    if run.training.method not in ("lora", "qlora"):
        yield f"adapters with method {run.training.method!r}"
    if run.training.method == "qlora" or lora.base_bits != 16 or lora.quant is not None:
        yield "a quantized base (QLoRA) is not in this step"
    if run.layout.tp > 1:
        yield "adapters with tensor parallel are not in this step"
    if run.model.moe is not None or run.model.mla is not None:
        yield "adapters on experts or latent attention are not in this step"
    bad = unknown_target(lora.targets)
    if bad:
        yield f"LoRA target {bad!r} is not in this step"
    if "head" in lora.targets and run.model.tied_embeddings:
        yield "an adapter on a tied output projection is not in this step"
    if run.training.frozen_layers:
        yield "frozen layers beside adapters are not in this step"
