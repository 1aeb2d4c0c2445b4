"""Explained terms are the parts of the estimate: each is the product of its factors, and they add up."""

import math
from typing import Any

import pytest

from planner import api
from planner.results import Estimate, MemoryParts, SpeedParts
from planner.runs import parse_run
from planner.trust.explain import explain

RUNS: dict[str, dict[str, Any]] = {
    "one GPU": {"model": {"params": 1e9}, "gpu": "L4", "gpus": 1, "micro_batch": 1, "grad_accum": 4},
    "fsdp": {
        "model": {"name": "llama-3-8b"}, "gpu": "H100-SXM5-80GB", "gpus": 8,
        "micro_batch": 1, "grad_accum": 2, "layout": {"dp": 8, "tp": 1, "pp": 1, "sharding": "zero3"},
        "recompute": "full",
    },
    "pipeline of experts": {
        "model": {"name": "mixtral-8x7b"}, "gpu": "H100-SXM5-80GB", "gpus": 64,
        "micro_batch": 1, "grad_accum": 8,
        "layout": {"dp": 8, "tp": 2, "pp": 4, "ep": 8, "sharding": "zero1"},
        "recompute": "full",
    },
    "qlora": {
        "kind": "qlora", "model": {"name": "llama-3-8b"}, "gpu": "RTX 4090", "gpus": 1, "micro_batch": 1,
        "grad_accum": 16,
    },
}  # fmt: skip


def estimate(name: str) -> Estimate:
    plain = {"kind": "pretrain", "seq_len": 2048, "precision": "bf16-mixed", "gpus_per_node": 1}
    line = {**plain, **RUNS[name]}
    return api.estimate([parse_run({**line, "gpus_per_node": min(8, line["gpus"])})])[0]


@pytest.mark.parametrize("name", RUNS)
def test_explained_terms_add_up_to_the_middle_of_the_estimate(name: str) -> None:
    answer = estimate(name)
    assert answer.memory is not None
    assert answer.speed is not None
    terms = explain(answer)
    in_memory = sum(term.value for term in terms if term.kind == "memory")
    in_time = sum(term.value for term in terms if term.kind == "time")
    assert in_memory == pytest.approx(answer.memory.device_bytes.mid, rel=1e-6)
    assert in_time == pytest.approx(answer.speed.step_s.mid, rel=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_a_term_is_the_product_of_its_factors(name: str) -> None:
    for term in explain(estimate(name)):
        assert bool(term.factors) == (term.value != 0), term
        if term.factors:
            assert math.isclose(term.product, term.value, rel_tol=1e-9), term


def test_every_part_is_explained_once() -> None:
    names = [(term.kind, term.name) for term in explain(estimate("fsdp"))]
    wanted = [("memory", name) for name in MemoryParts.model_fields]
    assert names == wanted + [("time", name) for name in SpeedParts.model_fields]


def test_counts_are_those_of_the_run() -> None:
    terms = {(term.kind, term.name): term for term in explain(estimate("pipeline of experts"))}
    logits = terms["memory", "logits"]
    assert not logits.factors or logits.factors[0].value == 2048 * 32000 / 2
    assert terms["memory", "communication"].factors[0].value == 4
    assert terms["time", "bubble"].factors[0].value == 3
