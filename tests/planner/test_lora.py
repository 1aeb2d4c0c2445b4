"""Adapters: their targets, their parameters, the bytes of the frozen base."""

from __future__ import annotations

import numpy as np
import pytest

from planner.errors import UserError
from planner.layouts import layout_columns
from planner.memory.states import first_stage, stage_params
from planner.model import model_columns
from planner.training import lora
from planner.training.numerics import training_columns
from planner.types import Layout, LoraSpec, Moe
from tests.planner.memory_tools import a_model, a_training, memory_of


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("q,v", {"q", "v"}),
        ("q_proj, v_proj", {"q", "v"}),
        ("attention", {"q", "k", "v", "o"}),
        ("all-linear", {"q", "k", "v", "o", "gate", "up", "down"}),
        ("all-linear+head", {"q", "k", "v", "o", "gate", "up", "down", "head"}),
        ("c_attn", {"q", "k", "v"}),
    ],
)
def test_targets_are_read_as_people_write_them(text: str, targets: set[str]) -> None:
    found = lora.parse_targets(text)
    assert {name for name in lora.TARGETS if getattr(found, name)} == targets


@pytest.mark.parametrize("text", ["", "q,nose", "all_linears"])
def test_an_unknown_target_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        lora.parse_targets(text)


def test_adapter_parameters_of_a_known_model() -> None:
    """Llama-3.2-1B, rank 16 on all linears: 11.27 M (counted by peft 0.21.2)."""
    model = model_columns([a_model(tied_embeddings=True)])
    training = training_columns([a_training(method="lora", lora=LoraSpec(rank=16))])
    layout = layout_columns([Layout()])
    params = stage_params(model, training, layout, first_stage(model, training, layout))
    assert float(params.dense) == pytest.approx(11.27e6, rel=1e-3)


def test_experts_each_carry_an_adapter() -> None:
    moe = a_model(moe=Moe(num_experts=8, experts_per_token=2, expert_ffn_size=1024))
    training = training_columns([a_training(method="lora", lora=LoraSpec(rank=4, targets="up,down"))])
    model, layout = model_columns([moe]), layout_columns([Layout()])
    params = stage_params(model, training, layout, first_stage(model, training, layout))
    assert float(params.dense) == 16 * 8 * 4 * 2 * (2048 + 1024)


@pytest.mark.parametrize(
    ("base_bits", "quant", "bytes_per_param"),
    [(16, None, 2.0), (8, None, 1.0), (4, "nf4", 0.5625), (4, "nf4-dq", 0.5159), (4, "gptq", 0.5195)],
)
def test_the_frozen_base_takes_the_bytes_of_its_format(
    base_bits: int, quant: str | None, bytes_per_param: float
) -> None:
    spec = LoraSpec.model_validate({"rank": 8, "base_bits": base_bits, "quant": quant})
    columns = training_columns([a_training(method="qlora", lora=spec)])
    assert float(columns.unsharded.base_linear) == pytest.approx(bytes_per_param, rel=1e-3)
    assert float(columns.unsharded.base_other) == 2.0


def test_rank_zero_work_is_not_free() -> None:
    small, large = (
        float(memory_of(a_model(), a_training(method="lora", lora=LoraSpec(rank=r)), Layout()).allocated)
        for r in (8, 256)
    )
    assert large > small


def test_adapters_train_a_sliver_of_the_states() -> None:
    full = memory_of(a_model(), a_training(method="full"), Layout(grad_accum=2))
    adapted = memory_of(a_model(), a_training(method="lora", lora=LoraSpec()), Layout(grad_accum=2))
    assert float(adapted.gradients + adapted.optimizer) < 0.05 * float(full.gradients + full.optimizer)
    assert np.isfinite(adapted.allocated)
