"""Groups of measured runs, and the count of what was fitted, are what the files say."""

import csv
import math
import tomllib
from importlib.resources import files

import pytest

from planner import accuracy
from planner.accuracy import KEYS, error, fitted, macro_median, table
from planner.features import Features
from planner.residuals import Residual, shipped_rows

SPEED_KEYS = (
    "launch_us", "graph_share", "overlap_data", "overlap_gather", "overlap_tensor", "overlap_pipeline", "overlap_expert",
    "overlap_context", "step_overhead_s", "micro_batch_overhead_s", "idle_share", "expert_imbalance",
)  # fmt: skip
MEMORY_KEYS = ("extra_bytes_per_param", "kbit_saved_hidden", "kbit_saved_ffn", "fragmentation")


def a_row(source: str, log_ratio: float, quantity: str = "step", **changed: object) -> Residual:
    plain = dict(
        gpu="L4", method="full", precision="bf16", framework="plan", zero_stage=0, recompute=0, tp=1, pp=1, cp=1, ep=1,
        offload=0, moe=0, params=1e9, gpus=1.0, nodes=1.0, seq_len=2048.0, micro_tokens=2048.0,
    )  # fmt: skip
    return Residual(quantity, source, Features(**{**plain, **changed}), log_ratio)


def read(name: str) -> str:
    return files("planner").joinpath(f"data/{name}").read_text(encoding="utf-8")


def test_a_step_that_took_longer_than_predicted_is_a_speed_predicted_too_high() -> None:
    assert error(a_row("a", math.log(1.25))) == pytest.approx(0.25)
    assert error(a_row("a", math.log(1.25), "device")) == pytest.approx(-0.2)


def test_a_source_of_many_runs_does_not_drown_one_of_few() -> None:
    rows = [a_row("many", 0.0) for _ in range(96)] + [a_row("few", math.log(1.5)) for _ in range(4)]
    assert macro_median(rows) == pytest.approx(0.25)
    assert macro_median(rows[:3]) is None


def test_every_group_of_every_kind_is_in_the_table() -> None:
    rows = table(shipped_rows())
    assert {row.by for row in rows} == set(KEYS)
    assert {row.quantity for row in rows} == {"memory", "time"}
    for quantity in ("memory", "time"):
        everything = next(row for row in rows if row.quantity == quantity and row.by == "all")
        assert all(row.num_runs <= everything.num_runs for row in rows if row.quantity == quantity)


def counted(name: str) -> int:
    """Constants that a data file says are fitted, or may be."""
    if name.startswith("data/efficiency_sustained"):
        return sum(
            r["basis"] == "fitted" for r in csv.DictReader(read("efficiency_sustained.csv").splitlines())
        )
    if name.startswith("data/efficiency_attention"):
        rows = [
            r for r in csv.DictReader(read("efficiency_attention.csv").splitlines()) if r["basis"] == "fitted"
        ]
        return sum(not math.isnan(number(cell)) for row in rows for cell in row.values())
    if name.startswith("data/frameworks.toml, keys of speed"):
        return profile_values("speed", SPEED_KEYS)
    if name.startswith("data/frameworks.toml, keys of memory"):
        return profile_values("memory", MEMORY_KEYS)
    rows = list(csv.DictReader(read("nearness.csv").splitlines()))
    return sum(bool(row[c]) and float(row[c]) != 0 for row in rows for c in ("memory", "step", "own"))


def number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def profile_values(section: str, keys: tuple[str, ...]) -> int:
    profiles = tomllib.loads(read("frameworks.toml"))["profile"].values()
    return sum(key in profile.get(section, {}) for profile in profiles for key in keys)


def test_the_count_of_fitted_constants_is_what_the_files_hold() -> None:
    for row in fitted():
        assert row.where
        assert row.fitted_on
        if row.where.startswith("data/") and "links" not in row.where:
            assert row.num == counted(row.where), f"{row.name}: {counted(row.where)} in {row.where}"
    assert sum(row.num for row in fitted()) < len(shipped_rows()) + 882


def test_groups_are_by_size_layout_and_scale() -> None:
    run = a_row("a", 0.0, params=2e9, gpus=16.0, nodes=2.0, tp=2, pp=4, zero_stage=1).features
    assert (accuracy.size(run), accuracy.layout(run), accuracy.scale(run)) == (
        "1 to 10 B", "tp + pp", "multi-node",
    )  # fmt: skip
