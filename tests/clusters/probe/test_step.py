"""The training step: its parameters, its numerics, and the same training under every layout."""

import dataclasses
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic_core import PydanticUndefined

from clusters.probe import checkpoint, model, parallel, pipeline, refusals, spec, step
from planner import types
from planner.memory.activations import block_bytes
from planner.model import model_columns
from planner.model.count import count_params
from planner.model.presets import preset, preset_names
from planner.model.shapes import shape_for
from planner.training import lora as planner_lora
from planner.training.numerics import training_columns

ROOT = Path(__file__).parents[3]
SMALL = {
    "name": "small",
    "num_layers": 2,
    "hidden_size": 64,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "ffn_size": 128,
    "vocab_size": 257,
}
GPT2 = {
    "norm": "layer",
    "bias": "all",
    "positional": "learned",
    "max_position": 32,
    "gated_ffn": False,
    "tied_embeddings": True,
    "num_kv_heads": 4,
}
BERT = {
    **GPT2,
    "kind": "encoder",
    "mlm_head": True,
    "post_norm": True,
    "final_norm": False,
    "embedding_norm": True,
    "type_vocab_size": 2,
}
MOE = {"moe": {"num_experts": 4, "experts_per_token": 2, "expert_ffn_size": 32, "shared_experts": 1}}
MLA = {"mla": {"q_rank": 16, "kv_rank": 16, "nope_dim": 8, "rope_dim": 8, "v_dim": 8}}
GEMMA = {"norms_per_layer": 4, "qk_norm": "per-head", "tied_embeddings": True, "sliding_window": 8}
CPU = torch.device("cpu")
torch.set_num_threads(1)  # tensors are small: threads only wait for each other


def plan(model_: dict | None = None, training: dict | None = None, **layout: Any) -> dict:
    training = {"seq_len": 32, "precision": "fp32", **(training or {})}
    return {"run": {"model": {**SMALL, **(model_ or {})}, "training": training, "layout": layout}}


def built(*args: Any, rate: float = 3e-3, **layout: Any) -> step.Trainer:
    return step.build(spec.read_plan(plan(*args, **layout)), CPU, learning_rate=rate)


def losses(trainer: step.Trainer, steps: int = 3, first: int = 0) -> list[float]:
    return [
        step.train_step(trainer, step.synthetic_batches(trainer, number % 2)).item()
        for number in range(first, first + steps)
    ]


def run_of(model_: types.ModelSpec, **training: Any) -> spec.Run:
    training = {"seq_len": 64, **training}
    return spec.read_plan({"model": model_.model_dump(), "training": training, "layout": {}})


# ------------------------------------------------------------------------------ the model is the plan's


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_has_exactly_the_parameters_that_the_planner_counts(name):
    run = run_of(preset(name))
    if refusals.refusal(run, "cpu"):
        pytest.skip("refused by name")
    assert model.count_on_meta(run) == count_params(preset(name)).total


def test_only_models_with_unusual_parts_are_refused():
    refused = {name for name in preset_names() if refusals.refusal(run_of(preset(name)), "cpu")}
    assert refused == {"gpt-oss-20b", "gpt-oss-120b", "nanochat-d20-main", "nanochat-d32-main"}


@pytest.mark.parametrize("params", [1e6, 2e7, 3e8, 1e9, 8e9, 7e10, 1e12])
def test_a_shape_of_params_has_exactly_the_parameters_that_the_planner_counts(params):
    shape = shape_for(params)
    assert model.count_on_meta(run_of(shape)) == count_params(shape).total


@pytest.mark.parametrize(
    ("ours", "planners"),
    [
        (spec.Model, types.ModelSpec),
        (spec.Moe, types.Moe),
        (spec.Mla, types.Mla),
        (spec.Training, types.TrainingSpec),
        (spec.Lora, types.LoraSpec),
        (spec.Layout, types.Layout),
    ],
)
def test_a_record_has_the_fields_and_defaults_of_the_planners(ours, planners):
    mine = {f.name: f.default for f in dataclasses.fields(ours)}
    theirs = {
        name: dataclasses.MISSING if field.default is PydanticUndefined else field.default
        for name, field in planners.model_fields.items()
    }
    assert mine == theirs


def test_a_saved_plan_an_emitted_one_and_a_bare_run_are_the_same_run():
    bare = plan()["run"]
    assert (
        spec.read_plan(bare) == spec.read_plan({"run": bare}) == spec.read_plan({"candidate": {"run": bare}})
    )


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"model": SMALL, "training": {"seq_len": 8, "warp": 9}, "layout": {}}, "unknown field 'warp'"),
        ({"model": {"name": "x"}, "training": {"seq_len": 8}, "layout": {}}, "no field 'num_layers'"),
        ({"candidate": {}}, "no run in this plan"),
    ],
)
def test_a_plan_that_this_step_does_not_know_is_refused(broken, words):
    with pytest.raises(spec.RefusedError, match=words):
        spec.read_plan(broken)


# --------------------------------------------------------------------------------------- one rank trains


@pytest.mark.parametrize(
    ("model_", "training"),
    [
        pytest.param({}, {}, id="llama"),
        pytest.param({}, {"precision": "bf16"}, id="llama-bf16"),
        pytest.param({}, {"precision": "bf16-pure"}, id="llama-bf16-pure"),
        pytest.param({}, {"precision": "fp16"}, id="llama-fp16"),
        pytest.param({}, {"attention": "eager"}, id="eager"),
        pytest.param({}, {"optimizer": "sgd"}, id="sgd"),
        pytest.param({}, {"optimizer": "muon"}, id="muon"),
        pytest.param({}, {"optimizer": "adafactor"}, id="adafactor"),
        pytest.param({}, {"optimizer_impl": "foreach"}, id="foreach"),
        pytest.param({}, {"frozen_layers": 1}, id="frozen-layer"),
        pytest.param(GPT2, {"precision": "bf16"}, id="gpt2"),
        pytest.param(BERT, {"precision": "bf16"}, id="bert"),
        pytest.param({"positional": "alibi", "embedding_norm": True}, {}, id="bloom"),
        pytest.param(GEMMA, {"precision": "bf16"}, id="gemma"),
        pytest.param({"parallel_block": True, "norms_per_layer": 1}, {}, id="gpt-j"),
        pytest.param({"embed_dim": 32, "post_norm": True}, {}, id="opt-350m"),
        pytest.param({"qk_norm": "full"}, {"precision": "bf16"}, id="qk-norm-full"),
        pytest.param(MOE, {"precision": "bf16"}, id="moe"),
        pytest.param(MLA, {}, id="mla"),
        pytest.param({}, {"method": "lora", "precision": "bf16"}, id="lora"),
        pytest.param({}, {"method": "lora", "lora": {"targets": "q_proj,v_proj+head"}}, id="lora-head"),
    ],
)
def test_the_loss_starts_at_chance_and_falls(model_, training):
    trainer = built(model_, training)
    batches = step.synthetic_batches(trainer, 0)
    seen = [step.train_step(trainer, batches).item() for _ in range(5)]
    assert seen[0] == pytest.approx(math.log(SMALL["vocab_size"]), rel=0.03)
    assert seen[4] < seen[0]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model_", [{}, GPT2, MOE, GEMMA], ids=["llama", "gpt2", "moe", "gemma"])
def test_recompute_does_not_change_the_loss(model_, precision):
    training = {"precision": precision}
    expected = losses(built(model_, training))
    assert losses(built(model_, training, recompute="full")) == expected
    assert losses(built(model_, training, recompute="full", recompute_fraction=0.5)) == expected
    assert losses(built(model_, training, recompute="selective")) == expected


def kept_bytes(trainer: step.Trainer) -> int:
    """Bytes that autograd keeps of a forward pass, each storage once, weights left out."""
    kept: dict[int, int] = {}
    weights = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    tokens, targets = step.synthetic_batches(trainer, 0)[0]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        step.forward_loss(trainer, tokens, targets)
    return sum(kept.values())


WIDE = {"hidden_size": 256, "head_dim": 64, "ffn_size": 640}


def kept_bytes_of_a_layer(model_: dict, training: dict) -> float:
    """What one more layer adds, from two depths; autocast's 16-bit copies of its weights left out."""
    few, many = (built({**WIDE, **model_, "num_layers": n}, training, micro_batch=2) for n in (2, 4))
    layer = (kept_bytes(many) - kept_bytes(few)) / 2
    linears = [p.numel() for p in many.model.blocks["3"].parameters() if p.requires_grad and p.dim() > 1]
    return layer - (2 * sum(linears) if training["precision"] == "bf16" else 0)


@pytest.mark.parametrize("training", [{}, {"method": "lora"}, {"precision": "bf16-pure"}], ids=str)
@pytest.mark.parametrize(
    "model_", [{}, GPT2, {"norms_per_layer": 4}, MOE], ids=["llama", "gpt2", "gemma", "moe"]
)
def test_a_layer_keeps_the_activations_that_the_planner_predicts(model_, training):
    training = {"seq_len": 32, "precision": "bf16", **training}
    if training.get("method") == "lora" and model_ is MOE:
        pytest.skip("refused by name")
    block = block_bytes(
        columns := model_columns([types.ModelSpec(**{**SMALL, **WIDE, **model_})]),
        numbers := training_columns([types.TrainingSpec(**training)]),
        numbers.unsharded,
    )
    per_token = block.moe if columns.num_experts > 0 else block.dense
    predicted = 2 * 32 * float(per_token.wide + per_token.split)
    allowed = 0.1 if model_ is MOE else 0.05  # a router and a shared expert cast their inputs too
    assert kept_bytes_of_a_layer(model_, training) == pytest.approx(predicted, rel=allowed)


def test_recompute_keeps_less_and_selective_lies_between():
    none, full = kept_bytes(built({"num_layers": 4})), kept_bytes(built({"num_layers": 4}, recompute="full"))
    half = kept_bytes(built({"num_layers": 4}, recompute="full", recompute_fraction=0.5))
    assert full < half < none


HELD = """
import json, sys, torch
from clusters.probe import spec, step
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
torch.set_num_threads(1)
trainer = step.build(spec.read_plan(json.load(sys.stdin)), torch.device("cpu"))
batch = step.synthetic_batches(trainer, 0)[0]
before = resident()
loss = step.forward_loss(trainer, *batch)
print(resident() - before)
"""


def held_bytes(case: dict) -> int:
    """Memory that a forward pass leaves behind, in a process that gives back what it frees."""
    frugal = {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
    }
    done = subprocess.run(
        [sys.executable, "-c", HELD],
        input=json.dumps(case),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), **frugal},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads resident memory from /proc")
def test_selective_recompute_holds_what_the_planner_predicts():
    """Of all that autograd hooks see, selective recompute shows only its input: the process tells."""
    wide = {**WIDE, "num_layers": 8, "num_kv_heads": 4}
    training = {"seq_len": 512, "precision": "fp32"}
    full, selective = (
        held_bytes(plan(wide, training, micro_batch=4, recompute=name)) for name in ("full", "selective")
    )
    numbers = training_columns([types.TrainingSpec(**training)])
    columns = model_columns([types.ModelSpec(**{**SMALL, **wide})])
    kept = block_bytes(columns, numbers, numbers.unsharded).dense_selective
    predicted = 8 * 4 * 512 * (float(kept.wide + kept.split) - 4 * WIDE["hidden_size"])
    assert selective - full == pytest.approx(predicted, rel=0.1)


def test_accumulation_equals_a_larger_batch():
    small, large = built(grad_accum=4, micro_batch=1), built(grad_accum=1, micro_batch=4)
    for number in range(3):
        parts = step.synthetic_batches(small, number)
        whole = tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
        assert step.train_step(small, parts).item() == pytest.approx(
            step.train_step(large, [whole]).item(), rel=1e-5
        )


def test_micro_batches_that_the_layout_does_not_have_are_an_error():
    trainer = built(grad_accum=2)
    with pytest.raises(ValueError, match="1 micro-batches for 2"):
        step.train_step(trainer, step.synthetic_batches(trainer, 0)[:1])


def test_evaluation_changes_nothing():
    trainer = built()
    batches = step.synthetic_batches(trainer, 0)
    before = step.evaluate(trainer, batches).item()
    assert step.evaluate(trainer, batches).item() == before
    assert step.train_step(trainer, batches).item() == pytest.approx(before, rel=1e-6)


# ------------------------------------------------------------------------------------------- numerics


def dtypes(trainer: step.Trainer) -> set[torch.dtype]:
    return {p.dtype for p in trainer.model.parameters()}


def moments(trainer: step.Trainer) -> set[torch.dtype]:
    losses(trainer, steps=1)
    states = [s for part in trainer.optimizer.parts for s in part.state.values()]
    return {t.dtype for state in states for t in state.values() if torch.is_tensor(t) and t.dim()}


def logits(trainer: step.Trainer) -> torch.Tensor:
    tokens, _ = step.synthetic_batches(trainer, 0)[0]
    with step._autocast(trainer):
        return trainer.model(tokens)


def test_bf16_on_one_rank_is_autocast_over_fp32_weights():
    trainer = built({}, {"precision": "bf16"})
    assert dtypes(trainer) == moments(trainer) == {torch.float32}
    assert logits(trainer).dtype == torch.bfloat16


def test_bf16_pure_keeps_everything_in_16_bit():
    trainer = built({}, {"precision": "bf16-pure"})
    assert dtypes(trainer) == moments(trainer) == {torch.bfloat16}


def test_adapters_are_fp32_on_a_frozen_bf16_base():
    trainer = built({}, {"method": "lora", "precision": "bf16"})
    trained = {p.dtype for p in trainer.model.parameters() if p.requires_grad}
    frozen = {p.dtype for p in trainer.model.parameters() if not p.requires_grad}
    assert (trained, frozen) == ({torch.float32}, {torch.bfloat16})


@pytest.mark.parametrize("targets", ["all-linear", "q_proj,v_proj", "attention", "mlp"])
def test_adapters_have_the_parameters_that_the_planner_counts(targets):
    trainer = built({}, {"method": "lora", "lora": {"rank": 4, "targets": targets}})
    columns, chosen = model_columns([types.ModelSpec(**SMALL)]), planner_lora.parse_targets(targets)
    attention = planner_lora.attention_params(columns, 4, chosen.q, chosen.k, chosen.v, chosen.o)
    ffn = planner_lora.ffn_params(columns, 4, columns.ffn, chosen.gate, chosen.up, chosen.down)
    trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    assert trained == SMALL["num_layers"] * (attention + ffn)


def test_the_optimizer_is_fused_unless_told_otherwise():
    fused, plain = built(), built({}, {"optimizer_impl": "for-loop"})
    assert fused.optimizer.parts[0].defaults["fused"] is True
    assert plain.optimizer.parts[0].defaults["fused"] is False


# ----------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("training", [{}, {"precision": "fp16"}, {"optimizer": "muon"}], ids=str)
def test_a_restored_training_goes_on_as_if_it_had_not_stopped(tmp_path, training):
    whole = losses(built({}, training), steps=4)
    first = built({}, training)
    losses(first, steps=2)
    checkpoint.save(first, tmp_path, 2)
    again = built({}, training)
    assert checkpoint.load(again, tmp_path) == 2
    assert losses(again, steps=2, first=2) == whole[2:]


# -------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("model_", "training", "layout", "words"),
    [
        ({}, {}, {"dp": 2}, "the layout takes 2 ranks, there are 1"),
        ({}, {}, {"pp": 2}, "1 micro-batches are fewer than the 2 stages"),
        ({}, {}, {"pp": 4, "grad_accum": 4}, "2 layers are fewer than the 4 stages"),
        ({}, {}, {"pp": 2, "grad_accum": 3, "interleave": 2}, "accumulation in multiples of pp 2"),
        (GPT2, {}, {"pp": 2, "grad_accum": 2}, "a pipeline with tied embeddings"),
        ({}, {}, {"pp": 2, "grad_accum": 2, "dp": 2}, "a pipeline with ZeRO stage 0 and dp 2"),
        ({}, {"frozen_layers": 1}, {"pp": 2, "grad_accum": 2}, "a pipeline with frozen weights"),
        ({}, {}, {"cp": 2}, "context parallel"),
        (MOE, {}, {"ep": 2, "dp": 2}, "expert parallel"),
        ({}, {}, {"zero_stage": 2, "dp": 2}, "ZeRO stage 2"),
        ({}, {}, {"tp": 2, "dp": 2}, "tensor parallel with unsharded data parallel"),
        ({"num_kv_heads": 1}, {}, {"tp": 2}, "1 key/value heads are not divisible by tp 2"),
        ({}, {"seq_len": 31}, {"tp": 2}, "sequence 31 is not divisible by tp 2"),
        (MOE, {}, {"tp": 2}, "tensor parallel of experts"),
        ({}, {}, {"dp": 4, "shard_group": 3, "zero_stage": 3}, "shard group of 3"),
        ({}, {}, {"offload": "optimizer"}, "offload 'optimizer'"),
        ({}, {}, {"activation_offload": True}, "activation offload"),
        ({}, {"precision": "fp8"}, {}, "fp8"),
        ({}, {"optimizer": "lion"}, {}, "optimizer 'lion'"),
        ({}, {"optimizer": "adamw-8bit"}, {}, "bitsandbytes"),
        ({}, {"optimizer_impl": "in-backward"}, {}, "'in-backward'"),
        ({}, {"loss": "chunked"}, {}, "loss 'chunked'"),
        ({}, {"compile": True}, {}, "torch.compile"),
        ({}, {"framework": "torchtitan"}, {}, "framework 'torchtitan'"),
        ({}, {"numerics": "16bit-weights-fp32-master"}, {}, "16bit-weights-fp32-master"),
        ({}, {"method": "qlora"}, {}, "QLoRA"),
        ({}, {"method": "lora", "lora": {"targets": "q,w9"}}, {}, "LoRA target 'w9'"),
        ({"attention_sinks": True}, {}, {}, "attention sinks"),
        ({**GPT2, "max_position": 16}, {}, {}, "sequence 32 is longer than the 16 learned positions"),
        ({"kind": "encoder"}, {}, {}, "without its MLM head"),
    ],
)
def test_what_cannot_be_run_is_refused_in_words(model_, training, layout, words):
    run = spec.read_plan(plan(model_, training, **layout))
    assert any(words in reason for reason in refusals.reasons(run, "cpu", 1))
    with pytest.raises(spec.RefusedError):
        step.build(run, CPU)


# ---------------------------------------------------------------------------------------- several ranks

TRAINING_BF16 = {"precision": "bf16"}
LORA = {"method": "lora", "precision": "bf16"}
TWO = {
    "ddp": plan(dp=2),
    "fsdp": plan(dp=2, zero_stage=3),
    "zero-1": plan(dp=2, zero_stage=1),
    "ddp accumulated": plan(dp=2, grad_accum=2),
    "fsdp accumulated": plan(dp=2, grad_accum=2, zero_stage=3, recompute="full"),
    "ddp gpt2": plan(GPT2, dp=2),
    "fsdp gpt2": plan(GPT2, dp=2, zero_stage=3),
    "ddp moe": plan(MOE, dp=2),
    "fsdp moe": plan(MOE, dp=2, zero_stage=3),
    "ddp bf16": plan({}, TRAINING_BF16, dp=2),
    "fsdp bf16": plan({}, TRAINING_BF16, dp=2, zero_stage=3, recompute="selective"),
    "ddp lora": plan({}, LORA, dp=2),
    "fsdp lora": plan({}, LORA, dp=2, zero_stage=3),
    "tp": plan(tp=2),
    "tp without sequence parallel": plan(tp=2, sequence_parallel=False),
    "tp gpt2": plan(GPT2, tp=2),
    "tp gemma": plan(GEMMA, tp=2),
    "tp bf16": plan({}, TRAINING_BF16, tp=2, recompute="full"),
    "pipeline": plan(pp=2, grad_accum=4),
    "pipeline bf16": plan({}, TRAINING_BF16, pp=2, grad_accum=4, recompute="full"),
    "interleaved": plan({"num_layers": 4}, pp=2, grad_accum=4, interleave=2),
    "wrong ranks": plan(dp=4),
    "pipeline saved": {**plan(pp=2, grad_accum=4), "steps": 2, "save": "pipeline"},
    "pipeline restored": {**plan(pp=2, grad_accum=4), "seed": 5, "steps": 1, "load": "pipeline"},
    "ddp saved": {**plan(dp=2), "steps": 2, "save": "ddp"},
    "ddp restored": {**plan(dp=2), "seed": 5, "steps": 1, "load": "ddp"},
    "fsdp from ddp": {**plan(dp=2, zero_stage=3), "seed": 5, "steps": 1, "load": "ddp"},
    "zero-1 saved": {**plan(dp=2, zero_stage=1), "steps": 2, "save": "zero"},
    "zero-1 restored": {**plan(dp=2, zero_stage=1), "seed": 5, "steps": 1, "load": "zero"},
    "fsdp saved": {**plan(dp=2, zero_stage=3), "steps": 2, "save": "fsdp"},
    "fsdp restored": {**plan(dp=2, zero_stage=3), "seed": 5, "steps": 1, "load": "fsdp"},
}
FOUR = {
    "fsdp": plan(dp=4, zero_stage=3),
    "hybrid": plan(dp=4, zero_stage=3, shard_group=2),
    "fsdp x tp": plan(GPT2, dp=2, tp=2, zero_stage=3),
    "fsdp x pipeline": plan(dp=2, pp=2, zero_stage=3, grad_accum=2),
    "tp x pipeline": plan(tp=2, pp=2, grad_accum=2),
    "fsdp x tp bf16": plan({}, TRAINING_BF16, dp=2, tp=2, zero_stage=3, recompute="full"),
}


def on_ranks(world: int, cases: dict) -> dict:
    script = Path(__file__).with_name("step_ranks.py")
    done = subprocess.run(
        [sys.executable, str(script), str(world)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def two() -> dict:
    return on_ranks(2, TWO)


@pytest.fixture(scope="module")
def four() -> dict:
    return on_ranks(4, FOUR)


@pytest.mark.parametrize("kind", ["", " accumulated", " gpt2", " moe", " lora"])
def test_ddp_and_fsdp_train_alike(two, kind):
    assert two["fsdp" + kind]["losses"] == pytest.approx(two["ddp" + kind]["losses"], rel=1e-4)


def test_zero_1_trains_like_ddp_with_half_the_states(two):
    assert two["zero-1"]["losses"] == pytest.approx(two["ddp"]["losses"], rel=1e-5)
    assert two["zero-1"]["state_bytes"] == pytest.approx(two["ddp"]["state_bytes"] / 2, rel=0.1)


def test_bf16_fsdp_computes_in_bf16_and_stays_near_autocast(two):
    assert two["fsdp bf16"]["losses"] != two["fsdp"]["losses"]
    assert two["fsdp bf16"]["losses"] == pytest.approx(two["ddp bf16"]["losses"], rel=1e-2)


def test_fsdp_keeps_half_of_weights_and_states(two):
    whole, shards = two["ddp"], two["fsdp"]
    assert shards["weight_bytes"] == pytest.approx(whole["weight_bytes"] / 2, rel=0.01)
    assert shards["state_bytes"] == pytest.approx(whole["state_bytes"] / 2, rel=0.01)


@pytest.mark.parametrize(
    ("name", "model_", "training"),
    [
        ("tp", {}, {}),
        ("tp without sequence parallel", {}, {}),
        ("tp gpt2", GPT2, {}),
        ("tp gemma", GEMMA, {}),
        ("tp bf16", {}, TRAINING_BF16),
    ],
)
def test_tensor_parallel_trains_like_one_rank(two, name, model_, training):
    alone = losses(built(model_, training, rate=1e-2))
    assert two[name]["losses"] == pytest.approx(alone, rel=1e-2 if training else 1e-3)


@pytest.mark.parametrize(
    ("name", "model_", "training"),
    [
        ("pipeline", {}, {}),
        ("pipeline bf16", {}, TRAINING_BF16),
        ("interleaved", {"num_layers": 4}, {}),
    ],
)
def test_a_pipeline_trains_like_one_rank(two, name, model_, training):
    alone = losses(built(model_, training, rate=1e-2, grad_accum=4))
    assert two[name]["losses"] == pytest.approx(alone, rel=1e-2 if training else 1e-4)


def test_every_layout_evaluates_to_the_loss_that_its_first_step_starts_from(two):
    for name, result in two.items():
        if "refused" not in result:
            assert result["evaluated"] == pytest.approx(result["losses"][0], rel=1e-4), name


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [(4, 2, [2, 2]), (5, 2, [3, 2]), (7, 3, [3, 2, 2]), (3, 3, [1, 1, 1])],
)
def test_earlier_stages_take_the_layers_that_do_not_divide(layers, stages, expected):
    parts = [pipeline.stage_layers(layers, stages, stage) for stage in range(stages)]
    assert [len(part) for part in parts] == expected
    assert [i for part in parts for i in part] == list(range(layers))


def test_tensor_parallel_splits_the_weights(two):
    whole = parallel.unwrap(built().model)
    total = sum(p.numel() * p.element_size() for p in whole.parameters())
    assert total / 2 < two["tp"]["weight_bytes"] < 0.55 * total


def test_another_number_of_ranks_is_refused(two):
    assert "the layout takes 4 ranks, there are 2" in two["wrong ranks"]["refused"]


@pytest.mark.parametrize("kind", ["ddp", "zero-1", "fsdp", "pipeline"])
def test_ranks_go_on_from_a_checkpoint(two, kind):
    assert two[f"{kind} restored"]["first"] == 2
    assert two[f"{kind} restored"]["losses"] == pytest.approx(two[kind]["losses"][2:], rel=1e-5)


def test_fsdp_goes_on_from_what_ddp_saved(two):
    assert two["fsdp from ddp"]["losses"] == pytest.approx(two["ddp"]["losses"][2:], rel=1e-4)


def test_hybrid_sharding_trains_like_full_sharding_with_shards_twice_as_large(four):
    assert four["hybrid"]["losses"] == pytest.approx(four["fsdp"]["losses"], rel=1e-4)
    assert four["hybrid"]["weight_bytes"] == pytest.approx(2 * four["fsdp"]["weight_bytes"], rel=0.02)


def test_a_pipeline_of_shards_trains_like_ddp_and_one_of_split_tensors_like_one_rank(two, four):
    assert four["fsdp x pipeline"]["losses"] == pytest.approx(two["ddp accumulated"]["losses"], rel=1e-4)
    alone = losses(built(rate=1e-2, grad_accum=2))
    assert four["tp x pipeline"]["losses"] == pytest.approx(alone, rel=1e-4)


def test_fsdp_with_tensor_parallel_trains_like_ddp(two, four):
    assert four["fsdp x tp"]["losses"] == pytest.approx(two["ddp gpt2"]["losses"], rel=1e-4)
    assert four["fsdp x tp bf16"]["losses"] == pytest.approx(two["ddp bf16"]["losses"], rel=1e-2)


# ------------------------------------------------------------------------------------ it ships by itself


def test_the_package_works_alone_and_brings_nothing_of_the_planner(tmp_path):
    shutil.copytree(Path(step.__file__).parent, tmp_path / "probe_alone")
    code = (
        "import sys, probe_alone.step, probe_alone.checkpoint;"
        "print([m for m in ('planner', 'pydantic', 'clusters', 'boto3') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr
