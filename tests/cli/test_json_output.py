"""The documents that scripts rely on."""

import json
from decimal import Decimal

import jsonschema
import pytest

from planner.cli import json_output
from planner.results import Candidate, Estimate, Suggestion
from planner.types import Layout, ModelSpec, Shape, TrainingSpec

BAND = {
    "type": "object",
    "required": ["low", "mid", "high"],
    "additionalProperties": False,
    "properties": {k: {"type": "number"} for k in ("low", "mid", "high")},
}


def parts(*names: str) -> dict:
    return {
        "type": "object",
        "required": list(names),
        "additionalProperties": False,
        "properties": {n: {"type": "number", "minimum": 0} for n in names},
    }


MEMORY = {
    "type": "object",
    "required": [
        "allocated_gib",
        "reserved_gib",
        "device_gib",
        "parts_gib",
        "peak_at",
        "usable_gib",
        "fits",
        "safe",
    ],
    "properties": {
        "allocated_gib": BAND,
        "reserved_gib": BAND,
        "device_gib": BAND,
        "parts_gib": parts(
            "parameters",
            "gradients",
            "optimizer",
            "activations",
            "logits",
            "gathered",
            "communication",
            "context",
            "allocator_slack",
        ),
        "peak_at": {"enum": ["forward", "loss", "backward", "optimizer"]},
        "usable_gib": {"type": ["number", "null"]},
        "fits": {"type": ["boolean", "null"]},
        "safe": {"type": ["boolean", "null"]},
    },
}
SPEED = {
    "type": "object",
    "required": ["step_s", "tokens_per_s_per_gpu", "mfu", "hfu", "parts_s"],
    "properties": {
        "step_s": BAND,
        "tokens_per_s_per_gpu": BAND,
        "mfu": {"type": "number"},
        "hfu": {"type": "number"},
        "parts_s": parts(
            "matmul", "attention", "memory_bound", "exposed_communication", "bubble", "optimizer", "overhead"
        ),
    },
}
LAYOUT = {
    "type": "object",
    "required": ["dp", "tp", "pp", "cp", "ep", "zero_stage", "recompute", "micro_batch", "grad_accum"],
}
MONEY = {"type": ["string", "null"], "pattern": r"^\d+(\.\d+)?$"}
CANDIDATE = {
    "type": "object",
    "required": [
        "id",
        "rank",
        "verdict",
        "offer",
        "shape",
        "layout",
        "memory",
        "speed",
        "hours",
        "cost_usd",
        "cost_lines",
        "warnings",
    ],
    "properties": {
        "id": {"type": "string", "pattern": "^p-"},
        "rank": {"type": "integer"},
        "verdict": {"enum": ["ok", "tight", "over"]},
        "offer": {
            "type": "object",
            "required": [
                "provider",
                "instance_type",
                "region",
                "market",
                "usd_per_hour",
                "price_seen",
                "source",
            ],
            "properties": {"usd_per_hour": MONEY, "price_seen": {"type": ["string", "null"]}},
        },
        "shape": {"type": "object", "required": ["gpu", "gpus_per_node", "num_nodes"]},
        "layout": LAYOUT,
        "memory": MEMORY,
        "speed": SPEED,
        "hours": BAND,
        "cost_usd": BAND,
        "cost_lines": {"type": "array", "items": {"type": "object", "properties": {"usd_per_unit": MONEY}}},
        "warnings": {"type": "array", "items": {"type": "string"}},
    },
}
NEAREST = {
    "type": "object",
    "required": ["description", "gpu", "num_gpus", "layout", "needed_gib", "usable_gib", "hours", "cost_usd"],
    "properties": {"description": {"type": "string"}, "layout": {"anyOf": [LAYOUT, {"type": "null"}]}},
}
SUGGEST = {
    "type": "object",
    "required": [
        "schema_version",
        "model",
        "training",
        "budget_usd",
        "candidates",
        "rejections",
        "skipped_providers",
        "num_offers",
        "num_layouts",
    ],
    "properties": {
        "schema_version": {"const": 1},
        "model": {"type": "object", "required": ["num_params"]},
        "training": {"type": "object", "required": ["num_tokens", "seq_len", "precision"]},
        "budget_usd": MONEY,
        "candidates": {"type": "array", "items": CANDIDATE},
        "rejections": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["reason", "count", "nearest", "rescue"],
                "properties": {"nearest": NEAREST, "rescue": {"type": ["string", "null"]}},
            },
        },
        "skipped_providers": {
            "type": "array",
            "items": {"type": "object", "required": ["provider", "reason"]},
        },
        "num_offers": {"type": "integer"},
        "num_layouts": {"type": "integer"},
    },
}
ESTIMATE = {
    "type": "object",
    "required": ["id", "error", "memory", "speed", "layout", "warnings"],
    "properties": {
        "id": {"type": "string"},
        "error": {"type": ["string", "null"]},
        "memory": {"anyOf": [MEMORY, {"type": "null"}]},
        "speed": {"anyOf": [SPEED, {"type": "null"}]},
    },
}


def document(record: json_output.Record) -> dict:
    return json.loads(record.model_dump_json())


def test_suggestion_follows_the_contract(suggestion: Suggestion) -> None:
    jsonschema.validate(document(json_output.suggest_document(suggestion)), SUGGEST)


def test_estimate_follows_the_contract(estimate: Estimate) -> None:
    jsonschema.validate(document(json_output.estimate_document(estimate)), ESTIMATE)


def test_failed_line_follows_the_contract() -> None:
    answer = document(json_output.error_document("a", "unknown GPU 'H1000'", "plan gpus"))
    jsonschema.validate(answer, ESTIMATE)
    assert answer["error"] == "unknown GPU 'H1000'; hint: plan gpus"
    assert answer["memory"] is None


def test_documents_follow_their_own_schema(suggestion: Suggestion, estimate: Estimate) -> None:
    for record in (json_output.suggest_document(suggestion), json_output.estimate_document(estimate)):
        jsonschema.validate(document(record), type(record).model_json_schema(mode="serialization"))


def test_parts_of_memory_add_up_to_the_device_figure(candidates: tuple[Candidate, ...]) -> None:
    memory = document(json_output.candidate_document(candidates[0]))["memory"]
    assert sum(memory["parts_gib"].values()) == pytest.approx(memory["device_gib"]["mid"])
    assert memory["device_gib"]["mid"] == pytest.approx(candidates[0].memory.device_bytes.mid / 2**30)


def test_money_is_written_in_digits(suggestion: Suggestion) -> None:
    goal = suggestion.goal.model_copy(update={"budget_usd": Decimal("2E+2")})
    answer = document(json_output.suggest_document(suggestion.model_copy(update={"goal": goal})))
    assert answer["budget_usd"] == "200"
    assert answer["candidates"][0]["offer"]["usd_per_hour"] == "1.70"


def test_candidate_holds_the_records_it_was_made_of(candidates: tuple[Candidate, ...]) -> None:
    line = document(json_output.candidate_document(candidates[1]))
    line["model"].pop("num_params")
    run = candidates[1].run
    assert ModelSpec.model_validate(line["model"]) == run.model
    assert TrainingSpec.model_validate(line["training"]) == run.training
    assert Layout.model_validate(line["layout"]) == run.layout
    assert Shape.model_validate(line["shape"]) == run.shape


def test_unknown_cost_is_null_and_not_in_the_sum(candidates: tuple[Candidate, ...]) -> None:
    lines = document(json_output.candidate_document(candidates[0]))["cost_lines"]
    assert [line["usd"] is None for line in lines] == [False, True]
