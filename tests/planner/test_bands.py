"""Bands: the nearest class with enough measured runs, wider where none is near, and said so."""

import csv
from importlib.resources import files

import pytest

from planner import bands
from planner.bands import FEWEST_RUNS, band, method_class, scale_of, spread, warnings
from planner.gpus import gpus

QUANTITIES = ("memory", "step")
SCALES = ("one-gpu", "one-node", "multi-node")


def rows() -> list[dict[str, str]]:
    text = files("planner").joinpath("data/bands.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def test_every_row_of_the_table_names_a_class_and_brackets_one() -> None:
    names = {g.id for g in gpus()} | {g.gpu_class for g in gpus()} | {"*"}
    for row in rows():
        assert row["quantity"] in QUANTITIES
        assert row["gpu"] in names
        assert row["method"] in ("whole", "adapters", "*")
        assert row["scale"] in (*SCALES, "*")
        assert 0 < float(row["low"]) <= 1 <= float(row["high"]) < 10
        assert int(row["num_runs"]) >= 0
        assert row["source"]


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("method", ["pretrain", "qlora"])
def test_every_gpu_has_a_band_of_every_kind(quantity: str, scale: str, method: str) -> None:
    for card in gpus():
        found = spread(quantity, card.id, method, scale)  # type: ignore[arg-type]
        assert 0 < found.low <= 1 <= found.high
        made = band(10.0, found)
        assert made.low <= made.mid == 10.0 <= made.high


def test_a_class_with_few_runs_falls_back_to_a_wider_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(num_runs: int, low: float) -> bands._Row:
        return bands._Row(low=low, high=1 / low, num_runs=num_runs, num_sources=3)

    table = {
        ("step", "T4", "*", "*"): row(FEWEST_RUNS - 1, 0.9),
        ("step", "datacenter", "*", "*"): row(FEWEST_RUNS, 0.8),
        ("step", "*", "*", "*"): row(100, 0.7),
    }
    monkeypatch.setattr(bands, "_table", lambda: table)
    spread.cache_clear()
    few, none = spread("step", "T4", "pretrain", "one-gpu"), spread("step", "L4", "pretrain", "one-gpu")
    spread.cache_clear()
    assert (few.low, few.basis, few.measured_on_gpu) == (0.8, "datacenter", FEWEST_RUNS - 1)
    assert none.low < few.low
    assert none.measured_on_gpu == 0


def test_a_gpu_that_nobody_measured_is_said_and_has_a_wider_band() -> None:
    unseen = [g.id for g in gpus() if spread("step", g.id, "pretrain", "one-gpu").measured_on_gpu == 0]
    assert unseen
    assert "no measured run" in warnings(unseen[0], "pretrain", "one-gpu")[0]


@pytest.mark.parametrize(
    ("num_gpus", "num_nodes", "scale"), [(1, 1, "one-gpu"), (8, 1, "one-node"), (2, 2, "multi-node")]
)
def test_the_scale_of_a_run_is_how_far_its_gpus_are_apart(num_gpus: int, num_nodes: int, scale: str) -> None:
    assert scale_of(num_gpus, num_nodes) == scale


def test_adapters_are_a_class_of_their_own() -> None:
    assert {method_class(m) for m in ("lora", "qlora")} == {"adapters"}
    assert {method_class(m) for m in ("pretrain", "full")} == {"whole"}
