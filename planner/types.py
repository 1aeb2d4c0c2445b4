"""What is asked: every noun of a question, as frozen records. Read this first, then ``results.py``.

Units stand in the field name: ``_bytes``, ``_s``, ``_usd``, ``_per_s``. Money is ``Decimal``, memory is
bytes, time is seconds. A figure that is not known is ``None``: never zero, and never summed.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Method = Literal["pretrain", "full", "lora", "qlora"]
Precision = Literal["fp32", "tf32", "bf16", "bf16-pure", "fp16", "fp8"]
Optimizer = Literal[
    "adamw", "adamw-8bit", "adamw-paged", "adamw-paged-8bit", "adafactor", "sgd", "lion", "muon"
]
OptimizerImpl = Literal["fused", "foreach", "for-loop", "in-backward", "paged"]
Loss = Literal["plain", "compiled", "chunked", "fused", "fused-linear"]
Numerics = Literal["fp32", "fp32-weights-amp", "fsdp-mixed", "16bit-weights-fp32-master", "bf16-all"]
Attention = Literal["flash", "sdpa", "eager"]
Recompute = Literal["none", "selective", "full"]
Offload = Literal["none", "optimizer", "params+optimizer", "activations"]
Market = Literal["on-demand", "spot", "capacity-block", "community", "reserved", "owned"]
Verdict = Literal["ok", "tight", "over"]
RejectionReason = Literal[
    "memory", "budget", "deadline", "link", "price", "stage", "host-memory", "load", "illegal", "availability"
]
PeakAt = Literal["forward", "loss", "backward", "optimizer"]
MemoryKind = Literal["allocated", "reserved", "device"]


class Record(BaseModel):
    """Base of all records: frozen, closed for unknown keys, schema built on first use."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


class Band(Record):
    """An 80 % interval around the median: one run in ten lies below ``low``, one above ``high``."""

    low: float
    mid: float
    high: float

    def times(self, factor: float) -> Band:
        """The band of ``factor`` times as much; ``factor`` is not negative."""
        return Band(low=self.low * factor, mid=self.mid * factor, high=self.high * factor)


# ---------------------------------------------------------------------------------- the model


class Moe(Record):
    """Mixture of experts: which layers have experts and how wide each expert is.

    ``shared_ffn_size``: width of all shared experts together, ``None`` = shared_experts x expert_ffn_size.
    ``shared_gate``: a learned gate on the shared experts (Qwen2-MoE).
    ``dense_layers``: layers without experts.
    """

    num_experts: int = Field(ge=2)
    experts_per_token: int = Field(ge=1)
    expert_ffn_size: int = Field(ge=1)
    shared_experts: int = Field(default=0, ge=0)
    shared_ffn_size: int | None = Field(default=None, ge=1)
    shared_gate: bool = False
    dense_layers: int = Field(default=0, ge=0)
    expert_bias: bool = False
    router_bias: bool = False


class Mla(Record):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). ``q_rank`` 0: q is not compressed."""

    q_rank: int = Field(ge=0)
    kv_rank: int = Field(ge=1)
    nope_dim: int = Field(ge=1)
    rope_dim: int = Field(ge=0)
    v_dim: int = Field(ge=1)


class ModelSpec(Record):
    """Architecture of a Transformer. Field names follow Hugging Face where it has one.

    ``bias``: linears that carry one; ``attention`` = q, k, v and output; ``output+ffn`` = all but q, k, v.
    ``norms_per_layer`` 1: attention and feed-forward share it. ``norm_bias``: for ``layer`` norms only.
    ``qk_norm``: weights of the norms on q and k: one head_dim (``per-head``), all heads (``full``), or none.
    ``sliding_window``: tokens a query sees at most, in ``local_layers`` of the layers (``None`` = in all).
    ``embed_dim``: width of the token table where projections lead from and to the model's (OPT-350M).
    ``value_embeds``: layers with a token table of their own added to v (nanochat).
    ``extra_params``: learned scalars and gates that no other field counts; they multiply nothing large.
    """

    name: str
    kind: Literal["decoder", "encoder"] = "decoder"
    num_layers: int = Field(ge=1)
    hidden_size: int = Field(ge=1)
    num_heads: int = Field(ge=1)
    num_kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    ffn_size: int = Field(ge=0)
    gated_ffn: bool = True
    vocab_size: int = Field(ge=1)
    tied_embeddings: bool = False
    norm: Literal["rms", "layer"] = "rms"
    bias: Literal["none", "qkv", "attention", "ffn", "output+ffn", "all"] = "none"
    positional: Literal["rope", "learned", "alibi", "none"] = "rope"
    max_position: int | None = Field(default=None, ge=1)
    moe: Moe | None = None
    mla: Mla | None = None
    sliding_window: int | None = Field(default=None, ge=1)
    local_layers: int | None = Field(default=None, ge=0)
    norms_per_layer: int = Field(default=2, ge=0, le=8)
    post_norm: bool = False
    final_norm: bool = True
    embedding_norm: bool = False
    norm_affine: bool = True
    norm_bias: bool = True
    qk_norm: Literal["none", "per-head", "full", "no-weights"] = "none"
    parallel_block: bool = False
    lm_head_bias: bool = False
    attention_sinks: bool = False
    embed_dim: int | None = Field(default=None, ge=1)
    type_vocab_size: int = Field(default=0, ge=0)
    position_offset: int = Field(default=0, ge=0)
    mlm_head: bool = False
    value_embeds: int = Field(default=0, ge=0)
    extra_params: int = Field(default=0, ge=0)
    source: str = ""


# ---------------------------------------------------------------------------------- the training


class LoraSpec(Record):
    """Low-rank adapters (arXiv 2106.09685) and the format of the frozen base (QLoRA, arXiv 2305.14314)."""

    rank: int = Field(default=16, ge=1, le=4096)
    targets: str = "all-linear"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    adapter_bits: Literal[16, 32] | None = None
    base_bits: Literal[4, 8, 16] = 16
    quant: Literal["nf4", "nf4-dq", "gptq"] | None = None


class TrainingSpec(Record):
    """What the user wants done. ``None`` = follows from ``framework``'s profile (``frameworks.py``)."""

    method: Method = "pretrain"
    precision: Precision = "bf16"
    optimizer: Optimizer = "adamw"
    seq_len: int = Field(ge=1)
    num_tokens: float | None = Field(default=None, gt=0)
    global_batch_tokens: int | None = Field(default=None, ge=1)
    framework: str = "plan"
    loss: Loss | None = None
    numerics: Numerics | None = None
    optimizer_impl: OptimizerImpl | None = None
    attention: Attention | None = None
    compile: bool | None = None
    fused_kernels: bool | None = None
    fp8_recipe: str | None = None
    moe_token_drop: bool | None = None
    dropout: float | None = None
    frozen_layers: int = Field(default=0, ge=0)
    lora: LoraSpec | None = None


# ---------------------------------------------------------------------------------- the layout


class Layout(Record):
    """How a run is spread over a shape. GPUs = dp x tp x pp x cp; experts are spread over ``ep`` of them.

    ``shard_group``: ranks over which ZeRO / FSDP shards, ``None`` = all dp x cp.
    ``interleave``: model chunks a pipeline rank holds (1 = plain 1F1B).
    """

    dp: int = Field(default=1, ge=1)
    tp: int = Field(default=1, ge=1)
    pp: int = Field(default=1, ge=1)
    cp: int = Field(default=1, ge=1)
    ep: int = Field(default=1, ge=1)
    etp: int | None = None
    zero_stage: Literal[0, 1, 2, 3] = 0
    shard_group: int | None = None
    sequence_parallel: bool = True
    interleave: int = Field(default=1, ge=1)
    recompute: Recompute = "none"
    recompute_fraction: float = Field(default=1.0, ge=0, le=1)
    micro_batch: int = Field(default=1, ge=1)
    grad_accum: int = Field(default=1, ge=1)
    offload: Offload = "none"
    activation_offload: bool = False
    tp_overlap: bool | None = None
    dispatcher: Literal["alltoall", "deepep"] | None = None
    a2a_overlap: bool | None = None


class LayoutPins(Record):
    """The parts of a layout that the user fixed; ``None`` = the search decides. Meanings as in ``Layout``."""

    dp: int | None = Field(default=None, ge=1)
    tp: int | None = Field(default=None, ge=1)
    pp: int | None = Field(default=None, ge=1)
    cp: int | None = Field(default=None, ge=1)
    ep: int | None = Field(default=None, ge=1)
    etp: int | None = Field(default=None, ge=1)
    zero_stage: Literal[0, 1, 2, 3] | None = None
    shard_group: int | None = Field(default=None, ge=1)
    sequence_parallel: bool | None = None
    interleave: int | None = Field(default=None, ge=1)
    recompute: Recompute | None = None
    micro_batch: int | None = Field(default=None, ge=1)
    grad_accum: int | None = Field(default=None, ge=1)
    offload: Offload | None = None
    recompute_fraction: float | None = Field(default=None, ge=0, le=1)
    activation_offload: bool | None = None
    tp_overlap: bool | None = None
    dispatcher: Literal["alltoall", "deepep"] | None = None
    a2a_overlap: bool | None = None


# ---------------------------------------------------------------------------------- the machine


class Gpu(Record):
    """One accelerator model; a row of ``data/gpus.csv``. FLOPS are dense, with FP32 accumulation."""

    id: str
    aliases: tuple[str, ...]
    ray_accelerator_type: str
    gpu_class: Literal["consumer", "workstation", "datacenter"]
    vendor: Literal["nvidia", "amd", "intel"]
    architecture: str
    form_factor: str
    marketing_memory_gb: int
    usable_memory_bytes: int
    usable_memory_basis: Literal["reported", "estimated"]
    memory_bandwidth_bytes_per_s: float
    fp32_flops_per_s: float
    tf32_flops_per_s: float | None
    fp16_flops_per_s: float | None
    bf16_flops_per_s: float | None
    fp8_flops_per_s: float | None
    nvlink_bytes_per_s: float
    link_kind: str
    pcie_gen: float
    pcie_lanes: int
    ecc: bool
    pcie_peer: bool
    tdp_w: int
    compute_capability: str
    source: str
    source_date: str
    crosscheck: str
    note: str


class Links(Record):
    """How GPUs of a shape reach each other: the ids are rows of ``data/links.csv``."""

    intra: str
    inter: str
    inter_gbit_per_s: float | None = None


class Shape(Record):
    """GPU model x GPUs per node x nodes x links. Host figures are ``None`` where nobody says them."""

    gpu: str
    gpus_per_node: int = Field(ge=1)
    num_nodes: int = Field(default=1, ge=1)
    links: Links
    vcpus: int | None = None
    host_memory_bytes: int | None = None

    @property
    def num_gpus(self) -> int:
        """GPUs of all nodes."""
        return self.gpus_per_node * self.num_nodes


class Run(Record):
    """One training run: the unit that memory and speed are estimated for."""

    id: str
    model: ModelSpec
    training: TrainingSpec
    layout: Layout
    shape: Shape


class Offer(Record):
    """One node of a shape, priced, in a place and a market. The price is of the node, never of a GPU."""

    provider: str
    instance_type: str
    region: str
    zone: str | None = None
    market: Market
    gpu: str
    gpus_per_node: int
    links: Links
    vcpus: int | None = None
    host_memory_bytes: int | None = None
    local_disk_bytes: int | None = None
    usd_per_hour: Decimal | None
    unknown_why: str | None = None
    min_billing_s: int | None = None
    billing_increment_s: int | None = None
    not_included: tuple[str, ...] = ()
    max_nodes: int | None = None
    price_seen: datetime | None = None
    price_age_months: int | None = None  # begun months, when it was asked for; None = not known
    source: str
    source_licence: str | None = None
    origin: Literal["shipped", "live", "own"] = "shipped"
    available: bool | None = None
    note: str = ""


class Goal(Record):
    """What bounds a search: money, time, and which offers may be considered."""

    budget_usd: Decimal | None = Field(default=None, gt=0)
    deadline_s: float | None = Field(default=None, gt=0)
    headroom: float = Field(default=0.2, ge=0, lt=1)
    gpus: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    market: Literal["any", "on-demand", "spot"] = "any"
    max_gpus: int = Field(default=64, ge=1)
    stage: Literal["experiment", "production"] = "experiment"
    sort: Literal["cost", "time"] = "cost"
    allow_slow_link: bool = False
    checkpoints: bool = True
