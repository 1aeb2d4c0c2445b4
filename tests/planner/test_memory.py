"""Properties of memory that hold whatever the figures are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import memory
from planner.api import estimate
from planner.columns import MemoryColumns
from planner.hardware.links import machine_columns
from planner.layouts import layout_columns
from planner.memory.states import StateBytes, first_stage, stage_params, state_bytes
from planner.model import model_columns
from planner.model.shapes import shape_for
from planner.results import MemoryParts
from planner.runs import parse_run
from planner.training.numerics import training_columns
from planner.types import Layout, LoraSpec, Mla, ModelSpec, Moe, TrainingSpec
from tests.planner.memory_tools import GIB, a_model, a_shape, a_training, memory_of

FRAMEWORKS = (
    "plan",
    "torchtitan 2024-12",
    "Megatron-LM 2024",
    "Hugging Face Trainer 2024",
    "DeepSpeed",
    "litgpt 2024",
)
layouts = st.fixed_dictionaries(
    {
        "dp": st.sampled_from([1, 2, 8, 64]),
        "tp": st.sampled_from([1, 2, 8]),
        "pp": st.sampled_from([1, 2, 4]),
        "zero_stage": st.sampled_from([0, 1, 2, 3]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "micro_batch": st.sampled_from([1, 2, 8]),
        "grad_accum": st.sampled_from([1, 4]),
        "sequence_parallel": st.booleans(),
    }
)
trainings = st.fixed_dictionaries(
    {
        "framework": st.sampled_from(FRAMEWORKS),
        "precision": st.sampled_from(["fp32", "bf16", "bf16-pure", "fp16", "fp8"]),
        "seq_len": st.sampled_from([512, 2048, 8192]),
        "loss": st.sampled_from([None, "plain", "compiled", "chunked", "fused", "fused-linear"]),
        "attention": st.sampled_from(["flash", "eager"]),
        "optimizer": st.sampled_from(
            ["adamw", "adamw-8bit", "adamw-paged", "adafactor", "sgd", "lion", "muon"]
        ),
    }
)
MODELS = (
    a_model(),
    a_model(
        norm="layer", gated_ffn=False, bias="all", positional="learned", max_position=8192, num_kv_heads=32
    ),
    a_model(
        moe=Moe(num_experts=8, experts_per_token=2, expert_ffn_size=2048, shared_experts=1, dense_layers=1)
    ),
    a_model(
        head_dim=96, num_kv_heads=32, mla=Mla(q_rank=512, kv_rank=256, nope_dim=64, rope_dim=32, v_dim=64)
    ),
    a_model(sliding_window=1024, qk_norm="per-head", tied_embeddings=True),
)
models = st.sampled_from(MODELS)


def _states(model: ModelSpec, training: TrainingSpec, layout: Layout) -> StateBytes:
    m, t, columns = model_columns([model]), training_columns([training]), layout_columns([layout])
    formats = t.sharded if layout.zero_stage == 3 else t.unsharded
    return state_bytes(m, t, formats, columns, stage_params(m, t, columns, first_stage(m, t, columns)))


def _figures(found: MemoryColumns) -> tuple[float, float, float]:
    return float(found.allocated), float(found.reserved), float(found.device)


def test_100m_parameters_in_fp32_with_adam_are_04_04_08_gb() -> None:
    model, layout = shape_for(1e8), Layout(grad_accum=2)
    training = a_training(precision="fp32", seq_len=128)
    found = _states(model, training, layout)
    assert float(found.weights) / 1e9 == pytest.approx(0.4, rel=0.03)
    assert float(found.gradients) / 1e9 == pytest.approx(0.4, rel=0.03)
    assert float(found.optimizer) / 1e9 == pytest.approx(0.8, rel=0.03)


@pytest.mark.parametrize(
    ("framework", "precision", "bytes_per_param"),
    [
        ("Megatron-LM 2024", "bf16", 18.0),
        ("plan", "bf16", 16.0),
        ("plan", "bf16-pure", 8.0),
        ("Megatron-DeepSpeed 2022-02", "bf16", 24.0),
    ],
)
def test_states_take_the_known_bytes_per_parameter(
    framework: str, precision: str, bytes_per_param: float
) -> None:
    model = a_model()
    found = _states(model, a_training(framework=framework, precision=precision), Layout())
    params = float(model_columns([model]).params_total)
    total = float(found.weights + found.gradients + found.optimizer)
    assert total / params == pytest.approx(bytes_per_param, rel=1e-6)


def test_distributed_optimizer_takes_6_bytes_and_12_over_n() -> None:
    model, layout = a_model(), Layout(dp=8, zero_stage=1)
    found = _states(model, a_training(framework="Megatron-LM 2024"), layout)
    params = float(model_columns([model]).params_total)
    assert float(found.weights + found.gradients + found.optimizer) / params == pytest.approx(6 + 12 / 8)


@settings(max_examples=60, deadline=None)
@given(models, trainings, layouts)
def test_every_figure_is_finite_and_the_parts_add_up(
    model: ModelSpec, training: dict[str, Any], layout: dict[str, Any]
) -> None:
    found = memory_of(model, a_training(**training), Layout(**layout))
    parts = {name: float(getattr(found, name)) for name in MemoryParts.model_fields}
    assert all(np.isfinite(value) and value >= 0 for value in parts.values())
    assert sum(parts.values()) == pytest.approx(float(found.device))
    outside = parts["communication"] + parts["context"]
    assert sum(parts.values()) - outside == pytest.approx(float(found.reserved))
    assert float(found.reserved) - parts["allocator_slack"] == pytest.approx(float(found.allocated))
    assert np.isfinite([found.host, found.load]).all()
    assert min(found.host, found.load) > 0


@settings(max_examples=60, deadline=None)
@given(models, trainings, layouts, st.sampled_from(["micro_batch", "seq_len", "num_layers"]))
def test_more_work_never_lowers_memory(
    model: ModelSpec, training: dict[str, Any], layout: dict[str, Any], what: str
) -> None:
    less = memory_of(model, a_training(**training), Layout(**layout))
    if what == "num_layers":
        model = model.model_copy(update={"num_layers": 2 * model.num_layers})
    elif what == "seq_len":
        training = {**training, "seq_len": 2 * training["seq_len"]}
    else:
        layout = {**layout, "micro_batch": 2 * layout["micro_batch"]}
    more = memory_of(model, a_training(**training), Layout(**layout))
    for before, after in zip(_figures(less), _figures(more), strict=True):
        assert after >= before * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(models, trainings, layouts)
def test_more_shards_never_raise_states(
    model: ModelSpec, training: dict[str, Any], layout: dict[str, Any]
) -> None:
    spec = a_training(**training)
    few = _states(model, spec, Layout(**layout))
    many = _states(model, spec, Layout(**{**layout, "dp": 2 * layout["dp"]}))
    for before, after in (
        (few.weights, many.weights),
        (few.gradients, many.gradients),
        (few.optimizer, many.optimizer),
    ):
        assert float(after) <= float(before)


@settings(max_examples=60, deadline=None)
@given(models, trainings, layouts)
def test_more_pipeline_stages_never_raise_parameter_bytes(
    model: ModelSpec, training: dict[str, Any], layout: dict[str, Any]
) -> None:
    spec, few = a_training(**training), {**layout, "pp": 1, "grad_accum": 8}
    bytes_by_stages = [
        float(memory_of(model, spec, Layout(**{**few, "pp": pp})).parameters) for pp in (1, 2, 4, 8)
    ]
    assert bytes_by_stages == sorted(bytes_by_stages, reverse=True)


@settings(max_examples=60, deadline=None)
@given(models, trainings, layouts)
def test_recompute_never_raises_memory(
    model: ModelSpec, training: dict[str, Any], layout: dict[str, Any]
) -> None:
    spec = a_training(**training)
    none, full = (
        memory_of(model, spec, Layout(**{**layout, "recompute": recompute})) for recompute in ("none", "full")
    )
    one_block = float(none.allocated) / model.num_layers
    assert float(full.allocated) <= float(none.allocated) + one_block


@settings(max_examples=60, deadline=None)
@given(models, trainings, layouts, st.sampled_from(["optimizer", "params+optimizer", "activations"]))
def test_offload_never_raises_device_memory(
    model: ModelSpec, training: dict[str, Any], layout: dict[str, Any], offload: str
) -> None:
    spec = a_training(**training)
    stays = memory_of(model, spec, Layout(**layout))
    moved = memory_of(model, spec, Layout(**layout, offload=offload))
    assert float(moved.device) <= float(stays.device) * (1 + 1e-9)
    assert float(moved.host) >= float(stays.host)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([MODELS[0], MODELS[1], MODELS[4]]),
    layouts,
    st.sampled_from(["bf16", "fp16", "bf16-pure"]),
)
def test_lora_never_needs_more_than_full_fine_tuning(
    model: ModelSpec, layout: dict[str, Any], precision: str
) -> None:
    full = memory_of(model, a_training(method="full", precision=precision), Layout(**layout))
    for lora in (LoraSpec(rank=16), LoraSpec(rank=16, base_bits=4, quant="nf4")):
        adapted = a_training(method="lora", precision=precision, lora=lora)
        assert float(memory_of(model, adapted, Layout(**layout)).device) <= float(full.device)


def test_frozen_layers_lower_memory() -> None:
    model = a_model()
    free, frozen = (
        memory_of(model, a_training(method="full", frozen_layers=k), Layout(micro_batch=4)) for k in (0, 8)
    )
    assert float(frozen.allocated) < float(free.allocated)


def test_first_stage_holds_the_micro_batches_and_last_the_logits() -> None:
    wide = a_model(num_layers=32, vocab_size=256, hidden_size=4096, ffn_size=16384, head_dim=128)
    spec = a_training(framework="Megatron-LM 2024", seq_len=4096)
    first = memory_of(wide, spec, Layout(pp=8, grad_accum=16))
    assert float(first.logits) == 0
    many_words = wide.model_copy(update={"vocab_size": 256_000, "num_layers": 8})
    last = memory_of(many_words, spec, Layout(pp=8, grad_accum=16))
    assert float(last.logits) > 0


def test_a_sharded_optimizer_is_not_resident_when_offloaded() -> None:
    found = memory_of(
        a_model(), a_training(framework="DeepSpeed"), Layout(dp=2, zero_stage=2, offload="optimizer")
    )
    assert float(found.optimizer) == 0
    assert float(found.host) > 0


def test_a_full_card_flushes_its_cache_before_it_runs_out() -> None:
    model, spec = a_model(num_layers=32), a_training(framework="Hugging Face Trainer 2024")
    found = memory_of(model, spec, Layout(micro_batch=4), a_shape("A100-SXM-80GB"))
    usable = float(machine_columns([a_shape("A100-SXM-80GB")], ["bf16"]).usable_memory_bytes)
    assert float(found.allocated) < usable
    assert float(found.device) <= usable


def test_loading_on_every_rank_takes_host_memory_for_each() -> None:
    model = a_model()
    loads, made = (
        memory_of(model, a_training(method=method, framework="Hugging Face Trainer 2024"), Layout(dp=8))
        for method in ("full", "pretrain")
    )
    params = float(model_columns([model]).params_total)
    assert float(loads.host - made.host) == pytest.approx(8 * 2 * params)


def test_a_batch_of_runs_equals_each_run() -> None:
    specs = [a_training(framework=name, precision="bf16") for name in FRAMEWORKS]
    plans = [
        Layout(dp=2, tp=2, pp=pp, zero_stage=stage, grad_accum=4)
        for pp, stage in ((1, 0), (2, 1), (4, 2), (1, 3), (2, 3), (4, 0))
    ]
    together = memory.estimate(
        model_columns([*MODELS, MODELS[0]]),
        training_columns(specs),
        layout_columns(plans),
        machine_columns([a_shape()] * 6, ["bf16"] * 6),
    )
    for i, (model, spec, plan) in enumerate(zip([*MODELS, MODELS[0]], specs, plans, strict=True)):
        assert float(together.device[i]) == pytest.approx(float(memory_of(model, spec, plan).device))


def test_sequence_split_over_context_parallel_ranks_lowers_activations() -> None:
    whole, split = (
        memory_of(a_model(), a_training(seq_len=8192, precision="bf16-pure"), Layout(cp=cp)) for cp in (1, 4)
    )
    assert float(split.activations) < 0.3 * float(whole.activations)


def test_experts_are_spread_over_expert_parallel_ranks() -> None:
    model = MODELS[2]
    here, spread = (memory_of(model, a_training(), Layout(dp=8, ep=ep)) for ep in (1, 8))
    experts = 4 * float(model_columns([model]).params_experts_layer) * 15
    assert float(here.parameters - spread.parameters) == pytest.approx(experts * 7 / 8)


def test_context_and_communicators_count_only_towards_the_device() -> None:
    alone, many = (memory_of(a_model(), a_training(), Layout(dp=dp)) for dp in (1, 8))
    assert float(alone.communication) == 0
    assert float(many.communication) > 0
    assert float(alone.context) > 0.2 * GIB


def test_parameters_offloaded_from_one_gpu_still_pass_through_it():
    layout = {"dp": 1, "tp": 1, "pp": 1, "cp": 1, "sharding": "zero3"}
    line = {
        "kind": "lora",
        "model": {"params": 8e9},
        "gpu": "RTX 4090",
        "gpus": 1,
        "seq_len": 512,
        "micro_batch": 1,
        "grad_accum": 1,
        "layout": layout,
        "recompute": "full",
        "loss": "fused-linear",
        "offload": "params+optimizer",
        "lora": {"rank": 8, "base_bits": 16},
    }
    (found,) = estimate([parse_run(line)])
    model = model_columns([found.run.model])
    block = float(model.params_attention_layer + model.params_ffn_dense_layer)
    assert found.memory is not None
    assert found.memory.parts_bytes.gathered >= 2 * block
