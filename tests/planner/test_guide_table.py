"""``plan table``: every figure is the planner's own estimate, and the rule of thumb is judged by it."""

import pytest

from planner import api
from planner.guide.table import PRECISIONS, RULE_GB, Assumed, MemoryTable, holds, memory_table
from planner.hardware.gpus import gpu, gpus
from planner.memory import device
from planner.runs import parse_run
from planner.training import formats, numerics
from planner.units import GIB

ASSUMED = Assumed(seq_len=2048, micro_batch=1, optimizer="adamw", headroom=0.2)


@pytest.fixture(scope="module")
def found() -> MemoryTable:
    return memory_table((), ASSUMED)


def cells(found: MemoryTable) -> dict[tuple[str, str], object]:
    return {(row.range, cell.precision): cell for row in found.rows for cell in row.cells}


def test_without_sizes_the_four_ranges_of_the_rule_stand_there_in_three_precisions(found: MemoryTable):
    assert [row.range for row in found.rows] == ["< 10 M", "10–100 M", "100 M–1 B", "> 1 B"]
    assert all(tuple(c.precision for c in row.cells) == PRECISIONS for row in found.rows)


def test_sizes_that_are_asked_for_keep_their_order_and_fall_into_their_ranges():
    found = memory_table((7e9, 350e6), ASSUMED)
    assert [row.range for row in found.rows] == ["> 1 B", "100 M–1 B"]
    assert found.rows[1].num_params == pytest.approx(350e6, rel=0.03)


def test_a_coefficient_of_memory_changes_the_table(found: MemoryTable, monkeypatch: pytest.MonkeyPatch):
    before = cells(found)
    monkeypatch.setattr(device, "EXPANDABLE_BASE", 2 * device.EXPANDABLE_BASE)
    after = cells(memory_table((), ASSUMED))
    assert all(after[key].device_bytes.mid > before[key].device_bytes.mid for key in before)


def test_a_format_of_memory_changes_the_states(found: MemoryTable, monkeypatch: pytest.MonkeyPatch):
    before = cells(found)
    numerics._row.cache_clear()
    monkeypatch.setitem(formats._WEIGHT, "fp32-weights-amp", 2)
    changed = cells(memory_table((), ASSUMED))
    numerics._row.cache_clear()
    assert changed["> 1 B", "bf16"].states_bytes < before["> 1 B", "bf16"].states_bytes
    assert changed["> 1 B", "fp32"] == before["> 1 B", "fp32"]


def test_autocast_keeps_the_states_of_fp32_and_pure_bf16_halves_them(found: MemoryTable):
    for row in found.rows:
        fp32, autocast, pure = row.cells
        assert fp32.states_bytes == autocast.states_bytes == pytest.approx(2 * pure.states_bytes)
        assert fp32.states_bytes == pytest.approx(16 * row.num_params)
        assert autocast.sequence_bytes < fp32.sequence_bytes


def test_recompute_never_needs_more(found: MemoryTable):
    assert all(c.least_bytes.mid <= c.device_bytes.mid for row in found.rows for c in row.cells)


def test_mixed_precision_of_a_billion_parameters_does_not_fit_the_rule_and_the_reason_is_its_weights(
    found: MemoryTable,
):
    rule = cells(found)["100 M–1 B", "bf16"].rule
    assert (rule.gb, rule.says) == (12, "too low")
    assert "autocast keeps FP32 weights" in rule.why
    assert "16 B a parameter" in rule.why


def test_the_open_end_of_the_rule_is_far_below_the_states_of_seven_billion(found: MemoryTable):
    rule = cells(found)["> 1 B", "fp32"].rule
    assert rule.open_ended
    assert rule.says == "too low"
    assert "states alone" in rule.why


def test_every_figure_of_the_rule_is_judged_with_a_reason(found: MemoryTable):
    judged = [(c.precision, c.rule.gb) for row in found.rows for c in row.cells if c.rule is not None]
    assert judged == [
        (p, gb) for pair in zip(*RULE_GB.values(), strict=True) for p, gb in zip(RULE_GB, pair, strict=True)
    ]
    assert all(c.rule.why for row in found.rows for c in row.cells if c.rule is not None)


def test_the_class_named_holds_the_run_and_none_with_less_memory_does(found: MemoryTable):
    for row in found.rows:
        for cell in row.cells:
            least = cell.gpu_class.memory_gb
            assert all(gpu(name).marketing_memory_gb == least for name in cell.gpu_class.examples)
            smaller = [g for g in gpus() if g.marketing_memory_gb < 0.8 * least]
            assert all(g.usable_memory_bytes < cell.device_bytes.high / 0.7 for g in smaller)


def test_what_no_card_holds_is_spread_over_several():
    (row,) = memory_table((70e9,), ASSUMED).rows
    counts = [c.gpu_class.num_gpus for c in row.cells]
    assert all(n > 1 for n in counts)
    assert counts == sorted(counts, reverse=True)


def test_what_too_many_cards_do_not_hold_has_no_class():
    (row,) = memory_table((1e12,), ASSUMED).rows
    assert row.cells[0].gpu_class is None


def test_headroom_asks_for_a_larger_card():
    (tight,) = memory_table((1e9,), ASSUMED.model_copy(update={"headroom": 0.0})).rows
    (roomy,) = memory_table((1e9,), ASSUMED.model_copy(update={"headroom": 0.5})).rows
    assert roomy.cells[1].gpu_class.memory_gb > tight.cells[1].gpu_class.memory_gb


def test_a_card_holds_a_run_only_with_its_whole_band(found: MemoryTable):
    (answer,) = api.estimate([parse_run({"model": {"params": 1e9}, "gpu": "H200-SXM-141GB", "gpus": 1,
                                         "seq_len": 2048})])  # fmt: skip
    assert holds(answer.memory, 2 * answer.memory.device_bytes.high, 0.2)
    assert not holds(answer.memory, answer.memory.device_bytes.mid, 0.0)
    assert GIB == 2**30
