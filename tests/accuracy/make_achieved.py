"""Write ``planner/data/achieved.csv``: the share of the predicted speed that described runs reach.

Each measured speed is asked about again without its layout, and without its software too: what is left is
what a published training says of itself. Measured over predicted tokens a second is the share. Tables of
those who sell the GPUs are left out: they show what tuning reaches, not what trainings ran at. Sources weigh
the same. ``test_achieved.py`` says what the shares are worth for a source that they were not made of.

``PYTHONPATH=.:tests/accuracy python tests/accuracy/make_achieved.py``, after any change of speed.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

import scoring

from planner import api
from planner.errors import UserError
from planner.hardware.gpus import gpu
from planner.runs import achieved, parse_run
from planner.types import Run

FILE = Path(achieved.__file__).parents[1] / "data" / "achieved.csv"
HEAD = (
    "named",
    "architectures",
    "norm",
    "low",
    "mid",
    "high",
    "num_sources",
    "num_runs",
    "date",
    "source",
    "note",
)
DATE = "2026-11-30"
SOURCE = "tests/accuracy/cases: measured speeds, asked about without what is not named"
ALWAYS = (
    "id", "kind", "model", "gpu", "gpus", "gpus_per_node", "interconnect", "seq_len", "precision", "lora",
    "optimizer",
)  # fmt: skip
SOFTWARE = ("framework", "compile", "attention", "loss", "numerics", "optimizer_impl", "fused_kernels")
SELLERS = ("NVIDIA", "yanring/Megatron-MoE-ModelZoo")
# Architectures and norm of runs whose shares are one, as far as sources of each can say. Only Ampere was used
# both before and after flash attention: blocks with RMSNorm are of 2023 and later (LLaMA).
Generation = tuple[tuple[str, ...], str]
OTHERS: Generation = ((achieved.ANY,), achieved.ANY)
GENERATIONS: dict[str, tuple[Generation, ...]] = {
    "nothing": (
        (("Volta", "Turing"), achieved.ANY), (("Ampere",), "layer"), (("Ampere",), "rms"), OTHERS,
    ),
    "framework": (OTHERS,),
}  # fmt: skip


@dataclass(frozen=True)
class Reached:
    """Share of one measured run. ``generation``: of its GPU and model, as the table groups them."""

    source: str
    generation: Generation
    share: float


def described(case: scoring.Case, named: str) -> dict:
    """What a published training says: the run without its layout, and without its software."""
    keys = ALWAYS + (SOFTWARE if named == "framework" else ())
    said = {key: case.description[key] for key in keys if case.description.get(key) is not None}
    batch = case.description.get("global_batch")
    ranks = (case.description.get("layout") or {}).get("dp")
    if batch is None and ranks and case.description.get("micro_batch"):
        batch = ranks * case.description["micro_batch"] * (case.description.get("grad_accum") or 1)
    return said | ({"global_batch": batch} if batch else {})


@lru_cache(maxsize=2)
def reached(named: str) -> tuple[Reached, ...]:
    """Shares of all measured speeds that can be asked about so."""
    cases, requests = [], []
    for case in (*scoring.cases("throughput"), *scoring.cases("validation")):
        if case.measured.get("tokens_per_s_per_gpu") and not case.group.startswith(SELLERS):
            try:
                requests.append(parse_run(described(case, named)))
                cases.append(case)
            except UserError:
                continue  # the number of GPUs followed from the layout
    found = []
    for case, estimate in zip(cases, api.estimate_each(requests), strict=True):
        if not isinstance(estimate, UserError):
            share = case.measured["tokens_per_s_per_gpu"] / estimate.speed.tokens_per_s_per_gpu.mid
            found.append(Reached(case.group, generation(named, estimate.run), share))
    return tuple(found)


def generation(named: str, run: Run) -> Generation:
    architecture = gpu(run.shape.gpu).architecture
    return next(
        (
            each
            for each in GENERATIONS[named]
            if architecture in each[0] and each[1] in (achieved.ANY, run.model.norm)
        ),
        OTHERS,
    )


def middle(rows: Sequence[Reached]) -> float:
    """Median over sources of the median of each."""
    of_source: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        of_source[row.source].append(row.share)
    return median(median(shares) for shares in of_source.values())


def quantile(rows: Sequence[Reached], at: float) -> float:
    """Share that a part ``at`` of the runs do not reach; every source weighs the same."""
    count: dict[str, int] = defaultdict(int)
    for row in rows:
        count[row.source] += 1
    seen = 0.0
    for row in sorted(rows, key=lambda row: row.share):
        seen += 1 / count[row.source] / len(count)
        if seen >= at:
            return row.share
    return max(row.share for row in rows)


def rows(of: Callable[[str], tuple[Reached, ...]] = reached) -> list[dict[str, object]]:
    """Rows of the file."""
    found = []
    for named, generations in GENERATIONS.items():
        for each in generations:
            inside = [row for row in of(named) if row.generation == each]
            found.append(
                {
                    "named": named,
                    "architectures": "; ".join(each[0]),
                    "norm": each[1],
                    "low": f"{quantile(inside, 0.1):.2f}",
                    "mid": f"{middle(inside):.2f}",
                    "high": f"{quantile(inside, 0.9):.2f}",
                    "num_sources": len({row.source for row in inside}),
                    "num_runs": len(inside),
                    "date": DATE,
                    "source": SOURCE,
                    "note": "tables of those who sell the GPUs left out; sources weigh the same",
                }
            )
    return found


def refresh() -> None:
    """Write the file."""
    found = rows()  # before the file is emptied
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    refresh()
    print(FILE.read_text(encoding="utf-8"))
