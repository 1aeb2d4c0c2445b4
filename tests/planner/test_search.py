"""The search: a winner of every family, and no shortcut that changes the answer."""

import numpy as np
import pytest

from planner import layouts, memory, speed
from planner.hardware.links import machine_columns, take_machines
from planner.layouts import BatchRule, Nodes, expand, meshes
from planner.model.presets import preset
from planner.model.shapes import shape_for
from planner.search.families import FAMILIES, family_codes
from planner.search.physics import communication_share, physics_of
from planner.search.search import SLOW_LINK_SHARE, search, tensor_reach
from planner.search.state import NOISE, OK, TIGHT, Found
from planner.training.defaults import batch_rule, complete_training
from planner.trust import nearness
from planner.trust.features import table_features
from planner.types import Layout, LayoutPins, Links, ModelSpec, Shape, TrainingSpec

FREE = LayoutPins()
NVLINK = Links(intra="nvlink4-nvswitch", inter="ib-ndr", inter_gbit_per_s=3200.0)
SLOW = Links(intra="nvlink4-nvswitch", inter="ethernet", inter_gbit_per_s=100.0)
EFA = Links(intra="nvlink3-nvswitch", inter="efa-v1", inter_gbit_per_s=400.0)
PCIE = Links(intra="pcie4-p2p", inter="ethernet", inter_gbit_per_s=25.0)
MACHINES = (
    ("H100-SXM5-80GB", 8, NVLINK),
    ("H100-SXM5-80GB", 8, SLOW),
    ("A100-SXM4-40GB", 8, EFA),
    ("L40S", 4, PCIE),
    ("L40S", 1, PCIE),
    ("RTX 4090", 4, PCIE),
)
SHAPES = tuple(
    Shape(gpu=gpu, gpus_per_node=n, num_nodes=nodes, links=links, host_memory_bytes=n * 200 * 2**30)
    for gpu, n, links in MACHINES
    for nodes in (1, 2, 4, 8, 16)
)
QUESTIONS = (
    (shape_for(1e9), 2048, None),
    (shape_for(1e9), 8192, 256),
    (shape_for(3e9), 2048, 1024),
    (shape_for(3e9), 32768, 64),
    (shape_for(7e9), 2048, 1024),
    (shape_for(7e9), 8192, 256),
    (preset("llama-3-70b"), 8192, 1024),
    (preset("llama-3-70b"), 2048, 128),
    (preset("mixtral-8x7b"), 2048, 1024),
)


def searched(
    model: ModelSpec,
    seq_len: int,
    sequences: int | None,
    shapes: tuple[Shape, ...] = SHAPES,
    pins: LayoutPins = FREE,
    free_optimizer: bool = True,
) -> Found:
    batch = None if sequences is None else sequences * seq_len
    asked = TrainingSpec(seq_len=seq_len, global_batch_tokens=batch)
    how, _ = complete_training(model, asked)
    return search(
        model,
        how,
        batch_rule(asked, how),
        pins,
        shapes,
        0.2,
        free_optimizer=free_optimizer,
        allow_slow_link=False,
    )


def test_every_family_wins_somewhere() -> None:
    winners: dict[str, str] = {}
    for model, seq_len, sequences in QUESTIONS:
        picks = searched(model, seq_len, sequences).picks
        for i in np.nonzero(picks.grade == OK)[0]:
            code = family_codes(picks.table[:, i : i + 1])[0]
            name = "8-bit optimizer" if picks.variant[i] else FAMILIES[code]
            shape = SHAPES[picks.shape[i]]
            where = f"{model.name}, sequence {seq_len}, {shape.num_nodes} x {shape.gpus_per_node} {shape.gpu}"
            winners.setdefault(name, where)
    print("\n" + "\n".join(f"{name}: {where}" for name, where in winners.items()))
    assert set(winners) == set(FAMILIES)


@pytest.mark.parametrize(
    "model", [shape_for(1e9), preset("llama-3-8b"), preset("mixtral-8x7b")], ids=lambda m: m.name
)
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[2], SHAPES[15]], ids=lambda s: f"{s.num_nodes}x{s.gpu}")
def test_shortcuts_find_what_trying_everything_finds(model: ModelSpec, shape: Shape) -> None:
    """Within the noise that lets a simpler layout win; small models are split only where need be."""
    how = TrainingSpec(seq_len=4096, global_batch_tokens=4096 * 512)
    batch = BatchRule(512, exact=True)
    physics = physics_of(model, how)
    tables = [
        expand(
            meshes(model, how, Nodes(shape.gpus_per_node, shape.num_nodes, tensor_reach(shape)), FREE, scope),
            batch,
            FREE,
            model,
            4096,
        )[0]
        for scope in ("data-parallel", "model-parallel")
    ]
    table = np.concatenate(tables, axis=1)
    machine = take_machines(
        machine_columns([shape, shape], [how.precision] * 2), np.zeros(table.shape[1], dtype=np.int64)
    )
    layout = layouts.columns_of(table)
    peak = memory.estimate(physics.model, physics.training, layout, machine)
    time = speed.estimate(physics.model, physics.training, physics.execution, layout, machine)
    usable = machine.usable_memory_bytes
    fits = (peak.device <= usable) & (peak.load <= usable) & (communication_share(time) <= SLOW_LINK_SHARE)
    kinds, of = table_features(model, how, [shape] * 2, table, np.zeros_like(layout.dp, int), figure="device")
    band = nearness.spreads("device", kinds, nearness.shipped())
    safe = fits & (peak.device * (band.high / band.middle)[of] <= usable)  # goes before what may not fit
    counts = safe if np.any(safe) else fits
    best = np.min(np.where(counts, time.step_s / time.tokens_per_step, np.inf))
    picks = searched(model, 4096, 512, (shape,), free_optimizer=False).picks
    plain = (picks.grade <= TIGHT) & (picks.preference == 0)
    assert np.any(plain) == np.isfinite(best)
    if np.isfinite(best) and float(physics.model.params_total) > 3e9:
        found = (picks.step_s / picks.tokens_per_step)[plain].min()
        assert found <= best * NOISE * 1.0001


def test_a_shape_in_company_has_the_same_picks_as_alone() -> None:
    model = preset("llama-3-8b")
    together = searched(model, 4096, 512).picks
    for i in (0, 7, 16, 29):
        alone = searched(model, 4096, 512, SHAPES[i : i + 1]).picks
        ours = together.shape == i
        np.testing.assert_array_equal(together.table[:, ours], alone.table)
        np.testing.assert_allclose(together.step_s[ours], alone.step_s, rtol=1e-12)


def test_pins_hold_in_every_pick() -> None:
    pins = LayoutPins(tp=2, recompute="full", micro_batch=2)
    picks = searched(preset("llama-3-8b"), 4096, 512, SHAPES[:3], pins).picks
    assert len(picks.shape)
    for i in range(len(picks.shape)):
        layout = layouts.layout_of(picks.table, i)
        assert (layout.tp, layout.recompute, layout.micro_batch) == (2, "full", 2)


def test_tensor_parallel_is_never_proposed_over_a_slow_link() -> None:
    found = searched(preset("llama-3-70b"), 4096, 1024, SHAPES[15:20])
    assert np.all(found.picks.table[layouts.ROW["tp"]] == 1)


def test_8_bit_states_are_tried_only_where_the_optimizer_is_free() -> None:
    model = shape_for(7e9)
    free = searched(model, 2048, 1024, SHAPES[25:30])
    fixed = searched(model, 2048, 1024, SHAPES[25:30], free_optimizer=False)
    assert np.any(free.picks.variant > 0)
    assert not np.any(fixed.picks.variant > 0)
    assert fixed.by_family.get("8-bit optimizer") is None


def test_where_nothing_fits_the_nearest_layout_is_kept() -> None:
    alone = Shape(gpu="RTX 4090", gpus_per_node=1, links=PCIE, host_memory_bytes=2**30)
    found = searched(preset("llama-3-70b"), 4096, 64, (alone,))
    assert len(found.picks.shape) == 0
    assert np.isfinite(found.misses.device_bytes[0])
    assert isinstance(layouts.layout_of(found.misses.table, 0), Layout)
