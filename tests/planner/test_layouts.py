"""Layouts: every one legal, every legal one there, the same as records and as columns."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UserError
from planner.hardware.gpus import gpu
from planner.layouts import (
    ROW,
    BatchRule,
    Nodes,
    expand,
    layout_columns,
    layout_of,
    layout_row,
    meshes,
    smallest,
)
from planner.legality import check_layout, degrees_reason
from planner.model.presets import preset
from planner.search.families import FAMILIES, family_codes
from planner.types import Layout, LayoutPins, LoraSpec, ModelSpec, TrainingSpec

FREE = LayoutPins()
SCOPES = ("data-parallel", "model-parallel", "offload")
LLAMA = preset("llama-3-8b")
MIXTRAL = preset("mixtral-8x7b")


def training(**changed: Any) -> TrainingSpec:
    return TrainingSpec(**{"seq_len": 4096, **changed})


def all_layouts(
    model: ModelSpec, per_node: int, nodes: int, sequences: int = 256, pins: LayoutPins = FREE, **changed: Any
) -> list[Layout]:
    how = training(**changed)
    found = []
    for scope in SCOPES:
        table = meshes(model, how, Nodes(per_node, nodes, per_node), pins, scope)
        rows, _ = expand(table, BatchRule(sequences, exact=True), pins, model, how.seq_len)
        found += [layout_of(rows, i) for i in range(rows.shape[1])]
    return found


@given(
    st.builds(
        Layout,
        dp=st.integers(1, 64),
        tp=st.sampled_from([1, 2, 4, 8]),
        pp=st.sampled_from([1, 2, 4]),
        cp=st.sampled_from([1, 2]),
        ep=st.sampled_from([1, 2, 8]),
        etp=st.sampled_from([None, 1, 2]),
        zero_stage=st.integers(0, 3),
        interleave=st.sampled_from([1, 2]),
        recompute=st.sampled_from(["none", "selective", "full"]),
        micro_batch=st.integers(1, 64),
        grad_accum=st.integers(1, 64),
        offload=st.sampled_from(["none", "optimizer", "params+optimizer"]),
        activation_offload=st.booleans(),
        tp_overlap=st.sampled_from([None, True, False]),
        dispatcher=st.sampled_from([None, "deepep"]),
    )
)
def test_a_layout_survives_the_way_into_columns_and_back(layout: Layout) -> None:
    table = np.array([layout_row(layout)]).T
    np.testing.assert_array_equal(layout_row(layout_of(table, 0)), layout_row(layout))


def test_one_layout_gives_arrays_of_shape_nothing_and_many_give_a_column() -> None:
    assert layout_columns([Layout()]).dp.shape == ()
    assert layout_columns([Layout(), Layout(dp=2)]).dp.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("per_node", "nodes"), [(1, 1), (8, 1), (8, 4), (1, 8), (3, 1), (4, 2)])
@pytest.mark.parametrize("model", [LLAMA, MIXTRAL], ids=lambda m: m.name)
def test_every_layout_uses_all_gpus_makes_the_batch_and_is_legal(
    model: ModelSpec, per_node: int, nodes: int
) -> None:
    card = gpu("H100-SXM5-80GB")
    for layout in all_layouts(model, per_node, nodes, sequences=384):
        assert layout.dp * layout.micro_batch * layout.grad_accum == 384
        assert layout.tp <= per_node
        check_layout(model, training(), layout, card, per_node, nodes)


def test_no_layout_is_listed_twice() -> None:
    rows = [layout_row(x) for x in all_layouts(MIXTRAL, 8, 2)]
    assert len(rows) > 1000
    assert len({str(r) for r in rows}) == len(rows)


def test_every_family_is_searched() -> None:
    found: set[str] = set()
    for model, per_node, nodes, seq_len in ((LLAMA, 1, 1, 4096), (MIXTRAL, 8, 4, 4096), (LLAMA, 8, 4, 32768)):
        for scope in SCOPES:
            how = training(seq_len=seq_len)
            table = meshes(model, how, Nodes(per_node, nodes, per_node), FREE, scope)
            rows, _ = expand(table, BatchRule(512, exact=False), FREE, model, seq_len)
            found |= {FAMILIES[c] for c in family_codes(rows)}
    assert found == set(FAMILIES) - {"8-bit optimizer"}


def test_the_smallest_form_has_most_recompute_and_the_least_micro_batch() -> None:
    how = training()
    table = meshes(LLAMA, how, Nodes(8, 1, 8), FREE, "data-parallel")
    batch = BatchRule(64, exact=True)
    least, source = smallest(table, batch, FREE)
    every, of = expand(table, batch, FREE, LLAMA, how.seq_len)
    assert source.tolist() == list(range(table.shape[1]))
    for mesh in source:
        assert least[ROW["micro_batch"], mesh] == every[ROW["micro_batch"], of == mesh].min()
        assert least[ROW["recompute"], mesh] == every[ROW["recompute"], of == mesh].max()


@given(
    micro=st.sampled_from([1, 2, 4]),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_what_is_pinned_stays(micro: int, zero: int, recompute: str) -> None:
    pins = LayoutPins(micro_batch=micro, zero_stage=zero, recompute=recompute)
    found = [x for x in all_layouts(LLAMA, 8, 1, pins=pins) if x.offload == "none"]
    assert found
    assert {(x.micro_batch, x.zero_stage, x.recompute) for x in found} == {(micro, zero, recompute)}


def test_a_batch_that_was_asked_for_is_never_rounded_and_a_default_one_may_be() -> None:
    how = training()
    table = meshes(LLAMA, how, Nodes(3, 1, 3), FREE, "data-parallel")
    asked, _ = expand(table, BatchRule(256, exact=True), FREE, LLAMA, how.seq_len)
    default, _ = expand(table, BatchRule(256, exact=False), FREE, LLAMA, how.seq_len)
    assert asked.shape[1] == 0
    made = default[ROW["dp"]] * default[ROW["micro_batch"]] * default[ROW["grad_accum"]]
    assert default.shape[1] > 0
    assert np.all(np.abs(made / 256 - 1) <= 0.25)


def test_micro_batches_hold_the_odd_part_of_the_batch() -> None:
    sizes = {x.micro_batch for x in all_layouts(LLAMA, 8, 1, sequences=8 * 6)}
    assert {3, 6} <= sizes
    assert not {5, 7} & sizes


ILLEGAL = [
    (LLAMA, Layout(tp=3), "32 attention heads"),
    (LLAMA, Layout(tp=16, dp=1), None),
    (LLAMA, Layout(pp=64), "32 layers"),
    (LLAMA, Layout(pp=4, interleave=2, grad_accum=3), "multiples of --pp 4"),
    (LLAMA, Layout(interleave=2), "--pp above 1"),
    (LLAMA, Layout(cp=3), "not divisible by 2 x --cp"),
    (LLAMA, Layout(dp=4, ep=4), "no experts"),
    (MIXTRAL, Layout(dp=3, ep=3), "8 experts"),
    (MIXTRAL, Layout(dp=2, ep=8), "does not divide the 2 GPUs"),
    (LLAMA, Layout(dp=8, zero_stage=3, shard_group=3), "shard group 3"),
    (LLAMA, Layout(pp=2, dp=2, zero_stage=2), "ZeRO stage 2"),
    (LLAMA, Layout(offload="params+optimizer"), "--zero 3"),
    (preset("bert-base"), Layout(cp=2), "decoders"),
]


@pytest.mark.parametrize(("model", "layout", "says"), ILLEGAL)
def test_an_illegal_layout_is_refused_with_its_reason(
    model: ModelSpec, layout: Layout, says: str | None
) -> None:
    how = training(seq_len=512 if model.kind == "encoder" else 4096)
    reason = degrees_reason(model, how, layout, layout.grad_accum)
    assert (reason is None) == (says is None)
    assert says is None or says in str(reason)


def test_a_quantised_base_is_not_split() -> None:
    how = training(method="qlora", lora=LoraSpec(base_bits=4, quant="nf4"))
    assert "quantised base" in str(degrees_reason(LLAMA, how, Layout(tp=2), 1))
    assert degrees_reason(LLAMA, how, Layout(dp=2, zero_stage=3), 1) is None


@pytest.mark.parametrize(
    ("card", "precision", "optimizer", "says"),
    [
        ("V100-SXM2-32GB", "bf16", "adamw", "bf16"),
        ("T4", "bf16", "adamw", "bf16"),
        ("A100-SXM4-80GB", "fp8", "adamw", "fp8"),
        ("MI300X", "bf16", "adamw-8bit", "NVIDIA"),
    ],
)
def test_what_the_gpu_cannot_do_is_refused(card: str, precision: str, optimizer: str, says: str) -> None:
    how = training(precision=precision, optimizer=optimizer)
    with pytest.raises(UserError, match=says):
        check_layout(LLAMA, how, Layout(), gpu(card), 1, 1)


def test_degrees_that_do_not_make_the_gpus_are_refused() -> None:
    with pytest.raises(UserError, match="= 4 GPUs, not 8"):
        check_layout(LLAMA, training(), Layout(dp=2, tp=2), gpu("H100-SXM5-80GB"), 8, 1)
