"""How trainings and frameworks become columns of execution."""

import csv
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from planner.hardware.efficiency import KERNELS, PRECISIONS
from planner.training import execution, frameworks
from planner.training.execution import ExecutionColumns, KernelColumns, execution_columns, speed_profile
from planner.types import LoraSpec, TrainingSpec


def arrays(record) -> Iterator[np.ndarray]:
    """All arrays of a record of columns, those of the records in it too."""
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value):
            yield from arrays(value)
        else:
            yield value


def columns(**given) -> ExecutionColumns:
    return execution_columns([TrainingSpec(**{"seq_len": 2048, **given})])


@pytest.mark.parametrize("profile", frameworks.profile_ids())
def test_every_profile_says_how_it_executes(profile):
    execution.SpeedProfile.model_validate(frameworks.table(profile, "speed"))


@pytest.mark.parametrize("profile", frameworks.profile_ids())
def test_shares_of_every_profile_are_between_none_and_all(profile):
    speed = execution.SpeedProfile.model_validate(frameworks.table(profile, "speed"))
    shares = {name: value for name, value in speed if name.startswith("overlap_") or name.endswith("_share")}
    assert {name: value for name, value in shares.items() if not 0 <= value <= 1} == {}


def test_one_training_gives_scalars_and_many_give_columns():
    one, many = columns(), execution_columns([TrainingSpec(seq_len=512), TrainingSpec(seq_len=1024)])
    assert {value.shape for value in arrays(one)} == {()}
    assert {value.shape for value in arrays(many)} == {(2,)}


def test_no_training_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        execution_columns([])


def test_compiling_moves_fewer_bytes_than_eager_kernels():
    eager, compiled = columns(framework="HF Trainer"), columns(framework="HF Trainer", compile=True)
    for item in ("rms_norm", "residual", "gated_ffn", "rope"):
        assert getattr(compiled.kernels, item).forward_bytes < getattr(eager.kernels, item).forward_bytes
    assert compiled.loss_bytes < eager.loss_bytes


def test_fused_kernels_of_the_training_beat_the_profile():
    plain, fused = columns(framework="HF Trainer"), columns(framework="HF Trainer", fused_kernels=True)
    assert fused.kernels.rms_norm.forward_bytes < plain.kernels.rms_norm.forward_bytes


def test_attention_of_the_training_beats_the_profile():
    assert columns(framework="HF run_clm 2021").eager_attention == 1
    assert columns(framework="HF run_clm 2021", attention="flash").eager_attention == 0
    assert columns(attention="eager").eager_attention == 1


def test_fp8_applies_to_the_linears_only():
    found = columns(precision="fp8")
    assert PRECISIONS[int(found.precision_index)] == "fp8"
    assert PRECISIONS[int(found.half_index)] == "bf16"
    assert found.fp8_cast_bytes > 0
    assert columns(precision="bf16").fp8_cast_bytes == 0


def test_fp8_with_scales_per_row_is_slower_than_per_tensor():
    assert columns(precision="fp8", fp8_recipe="rowwise").linear_share < 1
    assert columns(precision="fp8", fp8_recipe="tensorwise").linear_share == 1
    assert columns(precision="bf16", fp8_recipe="rowwise").linear_share == 1


def test_fp16_computes_attention_in_fp16_and_fp32_in_fp32():
    assert PRECISIONS[int(columns(precision="fp16").half_index)] == "fp16"
    assert PRECISIONS[int(columns(precision="fp32").half_index)] == "fp32"


def test_a_fused_optimizer_moves_fewer_bytes_than_a_loop_over_tensors():
    moved = [columns(optimizer_impl=impl).optimizer_bytes for impl in ("fused", "foreach", "for-loop")]
    assert moved == sorted(moved)
    assert columns(optimizer="adamw-8bit").optimizer_bytes < columns(optimizer="adamw").optimizer_bytes


def test_adapters_sit_on_the_targets_only():
    found = columns(method="lora", lora=LoraSpec(rank=8, targets="q,v"))
    assert [float(getattr(found.adapters, m)) for m in ("q", "k", "v", "o", "up")] == [1, 0, 1, 0, 0]
    assert found.frozen_base == 1
    assert found.dequantise_bytes == 0


def test_a_quantised_base_is_unpacked_each_pass():
    four = columns(method="qlora", lora=LoraSpec(base_bits=4, quant="nf4"))
    double = columns(method="qlora", lora=LoraSpec(base_bits=4, quant="nf4-dq"))
    assert 0 < four.dequantise_bytes < double.dequantise_bytes


def test_an_unknown_framework_executes_as_generic_pytorch():
    generic = execution.SpeedProfile.model_validate(frameworks.table(frameworks.GENERIC, "speed"))
    assert speed_profile("a framework nobody knows") == generic


def test_every_kernel_class_counts_every_operation():
    with Path(execution.__file__).parents[1].joinpath("data", "kernel_traffic.csv").open() as file:
        rows = list(csv.DictReader(file))
    kernels = {r["kernels"] for r in rows}
    items = {f.name for f in fields(KernelColumns)}
    assert {(r["kernels"], r["item"]) for r in rows} == {(k, i) for k in kernels for i in items}
    assert all(r["source"] and r["date"] for r in rows)


def test_attention_kernels_are_known():
    for profile in frameworks.profile_ids():
        assert frameworks.table(profile, "speed")["attention"] in (*KERNELS, "eager")


def test_columns_hold_numbers_only():
    found = columns(method="qlora", lora=LoraSpec(base_bits=4), precision="fp16")
    assert all(np.isfinite(value) and value >= 0 for value in arrays(found))
