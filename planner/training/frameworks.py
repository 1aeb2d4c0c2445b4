"""Framework profiles: what a training framework does by default, as data.

A run names its framework in free text ("torchtitan 2024-12", "HF Trainer + fms-acceleration 2024"). One
ordered table of patterns, with date ranges, turns that text into a profile id; ``data/frameworks.toml``
says what a profile does. Explicit fields of ``TrainingSpec`` (numerics, loss, optimizer_impl, ...) beat
the profile.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from planner.types import Loss, Numerics, OptimizerImpl, Recompute

GENERIC = "generic"
_DATA = Path(__file__).parents[1] / "data" / "frameworks.toml"
_ISO_DATE = re.compile(r"\b(20\d\d)(?:-(\d\d))?\b")
_SHORT_VERSION = re.compile(r"\b(2\d)\.(0[1-9]|1[0-2])\b")


@dataclass(frozen=True, slots=True)
class MemoryProfile:
    """What decides peak memory. Bytes are per element unless the name says otherwise; see frameworks.toml."""

    # number formats
    numerics: Numerics
    numerics_sharded: Numerics
    gradient_bytes_master: float
    gradient_bytes_bf16_optimizer: float
    reduce_bytes: float
    extra_bytes_per_param: float
    extra_sharded_bytes_per_param: float
    # the optimizer and data parallelism
    fp8_weight_bytes: float
    fp8_input_bytes: float
    optimizer_impl: OptimizerImpl
    step_copy_bytes: float
    step_copy_params: float
    bucket_copies: float
    bucket_params: float
    live_params: float
    gathered_blocks: float
    root_gathered: Literal["none", "head", "all"]
    unsharded_gradients: Literal["never", "accumulating", "always"]
    wraps_frozen: bool
    keeps_gradients: bool
    # a block
    fused_norm: bool
    fused_gated: bool
    plain_ffn_copies: float
    kv_repeated: bool
    separate_linears: bool
    score_bytes: float
    dropout: float
    selective: Literal["op", "attention", "block"]
    selective_fraction: float
    moe_copies: float
    grouped_experts: bool
    expert_output_kept: bool
    # the loss
    loss: Loss
    loss_upcast: bool
    loss_plain_bytes: float
    loss_parallel_bytes: float
    loss_by_model: bool
    loss_compiled_bytes: float
    loss_fused_bytes: float
    logits_kept: bool
    compiles_loss: bool
    loss_chunks: float
    chunks_head: bool
    vocab_parallel: bool
    ties_embeddings: bool
    # pipeline
    embedding_counts_as_layer: bool
    pipeline_keeps_gathered: bool
    naive_pipeline: bool
    # adapters
    base_bytes_mixed: float
    adapter_bits: Literal[16, 32]
    adapter_bits_pure: Literal[16, 32]
    adapter_autocast: bool
    adapter_copies_sharded: bool
    adapter_backward_bytes: float
    kbit_preparation: bool
    kbit_keeps_inputs_until: str
    keeps_last_graph: bool
    merged_qkv: bool
    qkv_storage_kept: bool
    adapter_output_kept: bool
    lora_dropout: float
    lora_targets: str
    # the allocator, loading, and the printed figure
    expandable_segments: bool
    fragmentation: float
    context_mib: float
    groups_beside: Literal[0, 1, 2]
    switch_buffers: bool
    loads_on_every_rank: bool


@dataclass(frozen=True, slots=True)
class LayoutHabits:
    """What a framework does about the layout where a run does not say; ``[profile.X.layout]``.

    ``pipeline_splits_batch``: the batch of a rank is cut into as many micro-batches as there are stages.
    ``sequence_parallel``: tensor parallel splits what lies between its matrices too (arXiv 2205.05198).
    ``expert_tensor_parallel``: it splits experts too where there is expert parallelism as well.
    """

    recompute: Recompute | None = None
    pipeline_splits_batch: bool = False
    sequence_parallel: bool = True
    expert_tensor_parallel: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """A framework at a time. ``known`` is false where no pattern fits and the generic profile stands in."""

    id: str
    title: str
    source: str
    known: bool
    memory: MemoryProfile
    layout: LayoutHabits


def match(framework: str) -> Profile:
    """Profile of a free-text framework name; the generic one, with ``known`` false, where no pattern fits."""
    profile_id = match_id(framework)
    return profile(profile_id or GENERIC, known=profile_id is not None)


def warning(framework: str) -> str | None:
    """Say that the framework is not in the table, ``None`` where it is."""
    if match_id(framework) is not None:
        return None
    return f"framework {framework!r} has no profile: generic PyTorch defaults are assumed"


@lru_cache(maxsize=4096)
def match_id(framework: str) -> str | None:
    """Id of the first pattern row that fits text and date; a date that is not said counts as today."""
    text = framework.strip().lower()
    when = date_of(text)
    for row in _tables()["pattern"]:
        if row.get("since", "") <= when < row.get("until", "9999") and re.search(row["regex"], text):
            return str(row["profile"])
    return None


def date_of(text: str) -> str:
    """``"YYYY-MM"`` found in a framework name. A bare year counts as its middle; nothing found as ``"9998"``.

    Releases numbered by year and month ("NeMo 25.09") are read too.
    """
    iso = _ISO_DATE.search(text)
    if iso:
        return f"{iso[1]}-{iso[2] or '06'}"
    short = _SHORT_VERSION.search(text)
    return f"20{short[1]}-{short[2]}" if short else "9998"


@lru_cache(maxsize=256)
def profile(profile_id: str, *, known: bool = True) -> Profile:
    """Profile of this id, with what it inherits filled in."""
    head = _tables()["profile"][profile_id]
    return Profile(
        id=profile_id,
        title=head["title"],
        source=head["source"],
        known=known,
        memory=MemoryProfile(**table(profile_id, "memory")),
        layout=LayoutHabits(**table(profile_id, "layout")),
    )


def profile_ids() -> tuple[str, ...]:
    """Ids of all profiles, in file order."""
    return tuple(_tables()["profile"])


def table(profile_id: str, section: str) -> Mapping[str, Any]:
    """``[profile.<id>.<section>]``: the base's rows, overlaid by the profile's own."""
    head = _tables()["profile"][profile_id]
    base = table(head["base"], section) if "base" in head else {}
    return {**base, **head.get(section, {})}


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    return tomllib.loads(_DATA.read_text(encoding="utf-8"))
