"""Speed of the search: printed, nothing about time asserted."""

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from planner import layouts, memory, speed
from planner.api import suggest
from planner.hardware.links import machine_columns, take_machines
from planner.layouts import BatchRule, Nodes
from planner.model.presets import preset
from planner.model.shapes import shape_for
from planner.search.physics import physics_of
from planner.types import Goal, LayoutPins, Links, ModelSpec, Shape, TrainingSpec
from providers.catalog import shipped

pytestmark = pytest.mark.benchmark
CHUNK = 4096
SHAPE = Shape(
    gpu="H100-SXM5-80GB", gpus_per_node=8, num_nodes=8, links=Links(intra="nvlink4-nvswitch", inter="ib-ndr")
)


def best_of(runs: int, work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def table_of(model: ModelSpec, how: TrainingSpec, rows: int) -> np.ndarray:
    meshes = layouts.meshes(model, how, Nodes(8, 8, 8), LayoutPins(), "model-parallel")
    found, _ = layouts.expand(meshes, BatchRule(4096, exact=True), LayoutPins(), model, how.seq_len)
    return np.tile(found, rows // found.shape[1] + 1)[:, :rows]


def evaluate(model: ModelSpec, how: TrainingSpec, table: np.ndarray) -> None:
    physics = physics_of(model, how)
    machine = machine_columns([SHAPE, SHAPE], [how.precision] * 2)
    for start in range(0, table.shape[1], CHUNK):
        part = table[:, start : start + CHUNK]
        layout = layouts.columns_of(part)
        on = take_machines(machine, np.zeros(part.shape[1], dtype=np.int64))
        memory.estimate(physics.model, physics.training, layout, on)
        speed.estimate(physics.model, physics.training, physics.execution, layout, on)


@pytest.mark.parametrize("name", ["llama-3-70b", "deepseek-v3"])
def test_layouts_per_second_through_memory_and_speed(name: str) -> None:
    model, how = preset(name), TrainingSpec(seq_len=4096)
    rates = []
    for rows in (20_000, 40_000, 80_000):
        table = table_of(model, how, rows)
        seconds = best_of(5, lambda table=table: evaluate(model, how, table))
        rates.append(rows / seconds)
        print(f"\n{name}: {rows:,} layouts in {seconds:.3f} s = {rows / seconds:,.0f} a second")
    print(f"{name}: linear within {max(rates) / min(rates) - 1:.0%} from 20,000 to 80,000")
    assert rates


QUESTIONS = {
    "1B, $200": (shape_for(1e9), TrainingSpec(seq_len=2048), Goal(budget_usd="200")),
    "70B, 64 GPUs": (shape_for(7e10), TrainingSpec(seq_len=4096), Goal()),
    "DeepSeek-V3, 2,048 GPUs": (preset("deepseek-v3"), TrainingSpec(seq_len=4096), Goal(max_gpus=2048)),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_seconds_and_memory_of_a_whole_suggest(name: str) -> None:
    model, how, goal = QUESTIONS[name]
    offers = shipped()
    seconds = best_of(3, lambda: suggest(model, how, goal, offers))
    tracemalloc.start()
    found = suggest(model, how, goal, offers)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"\n{name}: {found.num_layouts:,} layouts in {seconds:.2f} s, {peak / 2**20:.0f} MiB at the peak")
    assert found.num_layouts > 0
