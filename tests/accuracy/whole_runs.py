"""Whole trainings that somebody published, against predicted GPU hours: like with like, by kind of time.

A run is asked about twice: with the fields of its case alone, as somebody who reads of it would, and with the
framework or layout that a source tells. It is compared where its tokens and its model are known. Where the
source gives an upper bound of tokens (samples padded to the limit), the prediction is of the padded run and
is an upper bound too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from planner import api
from planner.errors import UserError
from planner.results import Estimate
from planner.runs import parse_run

FILE = Path(__file__).parent / "cases" / "whole_runs.jsonl"
NODE = 8
LONGEST_H = 60 * 24  # where the source names no GPUs, as many nodes as finish in 60 days
KINDS = {"pretrain": "pretrain", "full": "full-finetune", "lora": "lora", "qlora": "qlora"}
GOOD = 1.5
# What the source ran, where it or another case of the same run says so (throughput.jsonl: bloom-176b-main,
# glm-130b-a100-40-bsz6144, pythia-1b; README of tatsu-lab/stanford_alpaca; script of artidoro/qlora).
RAN: dict[str, dict] = {
    "bloom-176b-366b": {
        "framework": "Megatron-DeepSpeed", "attention": "eager", "recompute": "full", "micro_batch": 2,
        "layout": {"dp": 8, "tp": 4, "pp": 12, "sharding": "zero1"}, "grad_accum": 128,
        "interconnect": "NVLink + 4x Omni-Path 100 Gb/s",
    },
    "glm-130b-400b": {
        "framework": "Megatron-DeepSpeed 0.6.1", "recompute": "full", "micro_batch": 1, "grad_accum": 256,
        "layout": {"dp": 24, "tp": 4, "pp": 8, "sharding": "zero1"}, "interconnect": "NVLink + IB",
        "global_batch": 6144,
    },
    "gpt-neox-20b": {"framework": "GPT-NeoX 2022"},
    "pythia-1b-300b": {"framework": "GPT-NeoX 2023", "layout": {"tp": 1, "pp": 1, "sharding": "zero1"}},
    "pythia-12b-300b": {"framework": "GPT-NeoX 2023"},
    "smollm3-3b-11.2t": {"framework": "nanotron 2025"},
    "gpt2-1.5b-slw-128xv100": {"framework": "Megatron-DeepSpeed 2021"},
    "nemotron3-8b": {"framework": "NeMo 2023"},
    "nemotron4-15b": {"framework": "Megatron-LM 2024"},
    "sutra-smollm2-70m-1xl40s": {"compile": True, "attention": "flash"},
    "tylerromero-gpt2-124m-2x4090": {"framework": "nanoGPT 2025"},
    "guanaco-65b-qlora-1x48gb": {"framework": "HF Trainer 2023", "recompute": "full", "micro_batch": 1},
}  # fmt: skip
ALPACA = {
    "framework": "HF Trainer 2023", "micro_batch": 4,
    "layout": {"tp": 1, "pp": 1, "sharding": "zero3"}, "recompute": "none",
}  # fmt: skip
# Runs that cannot be compared like with like, in the words of the case's note.
UNLIKE = {
    "codefuse-13b": "inconsistent: 60 % HFU and 1T tokens cannot both hold",
    "refact-1.6b": "the source's number of GPUs is a typo",
    "nemotron4-15b": "calendar time, ramped from fewer GPUs: overstates the GPU hours",
    "llama3.2-1b": "logits of 8B and 70B teachers in training: more work than the model's own",
    "llama3.2-3b": "logits of 8B and 70B teachers in training: more work than the model's own",
}


@dataclass(frozen=True)
class Whole:
    """A published training with its estimate. ``ratio``: predicted over published GPU hours."""

    case: dict
    estimate: Estimate

    @property
    def ratio(self) -> float:
        return self.estimate.whole.gpu_hours.mid / self.case["measured"]["gpu_hours"]

    @property
    def held(self) -> bool:
        """Whether the 80 % interval holds the published GPU hours."""
        band = self.estimate.whole.gpu_hours
        return band.low <= self.case["measured"]["gpu_hours"] <= band.high

    @property
    def side(self) -> str:
        """``good`` within a factor of 1.5; an upper bound of tokens may predict up to twice the hours."""
        most = 2.0 if "token-upper-bound" in self.case["flags"] else GOOD
        if 1 / GOOD <= self.ratio <= most:
            return "good"
        return "published took longer" if self.ratio < 1 else "published was faster"


def cases() -> list[dict]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def why_not(case: dict) -> str | None:
    """Why a case cannot be compared, ``None`` where it can."""
    if not case.get("tokens") and not case.get("tokens_upper_bound"):
        return "tokens not published"
    if "params" not in case["model"]:
        return "model not described"
    return UNLIKE.get(case["id"])


def asked(case: dict) -> dict:
    """Run description with the case's own fields; no framework, no layout, nothing that we know beside it."""
    gpu_hours = case["measured"]["gpu_hours"]
    gpus = case.get("gpus") or NODE * 2 ** math.ceil(math.log2(max(1.0, gpu_hours / LONGEST_H / NODE)))
    fields = {
        "id": case["id"],
        "kind": KINDS[case["method"]],
        "model": case["model"],
        "gpu": case["gpu"],
        "gpus": gpus,
        "gpus_per_node": min(gpus, case.get("gpus_per_node") or NODE),
        "seq_len": case.get("seq_len", 2048),
        "precision": case["precision"],
        "tokens": case.get("tokens") or case["tokens_upper_bound"],
        "interconnect": case.get("interconnect"),
    }
    if case.get("global_batch_tokens"):
        fields["global_batch"] = round(case["global_batch_tokens"] / fields["seq_len"])
    return fields


def description(case: dict) -> dict:
    """Run description with what else a source says of the run: its framework or its layout."""
    known = asked(case)
    if case["id"].startswith("alpaca"):
        known |= ALPACA
    if "offload" in case["id"]:
        known |= {"offload": "params+optimizer", "micro_batch": 2}
    known |= RAN.get(case["id"], {})
    if "micro_batch" not in known or "global_batch" in known:
        return known
    return {**known, "global_batch": 128}  # of the recipe


@lru_cache(maxsize=2)
def wholes(describe: Callable[[dict], dict] = asked) -> tuple[tuple[Whole, ...], tuple[tuple[str, str], ...]]:
    """Runs that can be compared, and the others with the reason."""
    found, left_out = [], []
    for case in cases():
        reason = why_not(case)
        if reason is None:
            try:
                found.append(Whole(case, api.estimate([parse_run(describe(case))])[0]))
                continue
            except UserError as error:
                reason = f"refused: {error}"
        left_out.append((case["id"], reason))
    return tuple(found), tuple(left_out)
