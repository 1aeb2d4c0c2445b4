"""The run that a plan describes, read from the plain dictionary of its JSON.

The records mirror ``planner.types`` field by field, with the same defaults; a test compares them. A key that
is not known here is refused: a field that the planner has learned and this step has not must not be ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

R = TypeVar("R")


class RefusedError(ValueError):
    """The step cannot run what the plan says. The message names it; nothing else is run in its place."""


@dataclass(frozen=True, slots=True)
class Moe:
    """Mixture of experts; as ``planner.types.Moe``."""

    num_experts: int
    experts_per_token: int
    expert_ffn_size: int
    shared_experts: int = 0
    shared_ffn_size: int | None = None
    shared_gate: bool = False
    dense_layers: int = 0
    expert_bias: bool = False
    router_bias: bool = False


@dataclass(frozen=True, slots=True)
class Mla:
    """Multi-head latent attention; as ``planner.types.Mla``."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


@dataclass(frozen=True, slots=True)
class Model:
    """Architecture; as ``planner.types.ModelSpec``, where each field is explained."""

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    kind: str = "decoder"
    gated_ffn: bool = True
    tied_embeddings: bool = False
    norm: str = "rms"
    bias: str = "none"
    positional: str = "rope"
    max_position: int | None = None
    moe: Moe | None = None
    mla: Mla | None = None
    sliding_window: int | None = None
    local_layers: int | None = None
    norms_per_layer: int = 2
    post_norm: bool = False
    final_norm: bool = True
    embedding_norm: bool = False
    norm_affine: bool = True
    norm_bias: bool = True
    qk_norm: str = "none"
    parallel_block: bool = False
    lm_head_bias: bool = False
    attention_sinks: bool = False
    embed_dim: int | None = None
    type_vocab_size: int = 0
    position_offset: int = 0
    mlm_head: bool = False
    value_embeds: int = 0
    extra_params: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Lora:
    """Low-rank adapters; as ``planner.types.LoraSpec``."""

    rank: int = 16
    targets: str = "all-linear"
    dropout: float = 0.0
    adapter_bits: int | None = None
    base_bits: int = 16
    quant: str | None = None


@dataclass(frozen=True, slots=True)
class Training:
    """What is done; as ``planner.types.TrainingSpec``."""

    seq_len: int
    method: str = "pretrain"
    precision: str = "bf16"
    optimizer: str = "adamw"
    num_tokens: float | None = None
    global_batch_tokens: int | None = None
    framework: str = "plan"
    loss: str | None = None
    numerics: str | None = None
    optimizer_impl: str | None = None
    attention: str | None = None
    compile: bool | None = None
    fused_kernels: bool | None = None
    fp8_recipe: str | None = None
    moe_token_drop: bool | None = None
    dropout: float | None = None
    frozen_layers: int = 0
    lora: Lora | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """How the run is spread over GPUs; as ``planner.types.Layout``."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    zero_stage: int = 0
    shard_group: int | None = None
    sequence_parallel: bool = True
    interleave: int = 1
    recompute: str = "none"
    recompute_fraction: float = 1.0
    micro_batch: int = 1
    grad_accum: int = 1
    offload: str = "none"
    activation_offload: bool = False
    tp_overlap: bool | None = None
    dispatcher: str | None = None
    a2a_overlap: bool | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One training run: what is trained, how, and spread how."""

    model: Model
    training: Training
    layout: Layout

    @property
    def world_size(self) -> int:
        """Ranks that the layout takes."""
        layout = self.layout
        return layout.dp * layout.tp * layout.pp * layout.cp

    @property
    def lora(self) -> Lora | None:
        """Adapters where the method trains some, with the planner's defaults where they are not said."""
        if self.training.method not in ("lora", "qlora"):
            return self.training.lora
        return self.training.lora or Lora()

    @property
    def sharded(self) -> bool:
        """Whether weights are sharded (ZeRO stage 3, FSDP)."""
        return self.layout.zero_stage == 3

    @property
    def numerics(self) -> str:
        """Number formats: as asked, else the planner's rule for its profile ``plan``."""
        training = self.training
        if training.numerics is not None:
            return training.numerics
        if training.precision in ("fp32", "tf32"):
            return "fp32"
        if training.precision == "bf16-pure":
            return "bf16-all"
        return "fsdp-mixed" if self.sharded else "fp32-weights-amp"


def read_plan(plan: Mapping[str, Any]) -> Run:
    """Read the run of a plan: ``candidate.run`` of a saved plan, ``run`` of an emitted one, or a bare run."""
    run = plan.get("run") or (plan.get("candidate") or {}).get("run") or plan
    if not isinstance(run, Mapping) or not {"model", "training", "layout"} <= set(run):
        raise RefusedError("no run in this plan: it needs model, training and layout")
    model, training = dict(run["model"]), dict(run["training"])
    for key, kind in (("moe", Moe), ("mla", Mla)):
        model[key] = _record(kind, model[key], f"model.{key}") if model.get(key) else None
    if training.get("lora"):
        training["lora"] = _record(Lora, training["lora"], "training.lora")
    return Run(
        model=_record(Model, model, "model"),
        training=_record(Training, training, "training"),
        layout=_record(Layout, run["layout"], "layout"),
    )


def _record(kind: type[R], values: Mapping[str, Any], where: str) -> R:
    """Build ``kind`` from ``values``; an unknown or missing key is refused by name."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    unknown = [key for key in values if key not in known]
    missing = [n for n, f in known.items() if f.default is MISSING and n not in values]
    if unknown or missing:
        said = f"unknown field {unknown[0]!r}" if unknown else f"no field {missing[0]!r}"
        raise RefusedError(f"{where}: {said}; the plan and clusters.probe are of different versions")
    return kind(**values)
