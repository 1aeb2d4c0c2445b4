import json
import math
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import UserError
from planner.model.count import count_params
from planner.model.presets import preset
from planner.model.shapes import shape_for
from planner.runs import INPUTS, line_id, parse_line, parse_run, pins_of, shape_of
from planner.types import Layout, Links, LoraSpec, Shape, TrainingSpec
from tests.accuracy.scoring import cases


def a_run(**changes):
    run = {
        "id": "torchtitan-8b", "kind": "pretrain", "gpu": "H100-SXM-80GB", "gpus": 16, "gpus_per_node": 8,
        "model": {
            "name": "llama3-8b", "params": 8030261248, "layers": 32, "hidden": 4096, "heads": 32,
            "kv_heads": 8, "ffn": 14336, "vocab": 128256, "gated_mlp": True, "tied_embeddings": False,
            "norm": "rms",
            "bias": False, "positional": "rope", "experts": None, "experts_per_token": None,
        },
        "layout": {"dp": 8, "tp": 2, "pp": 1, "cp": 1, "ep": 1, "sharding": "zero3", "interleave": None},
        "micro_batch": 2, "grad_accum": 1, "global_batch": 16, "seq_len": 8192, "precision": "bf16-mixed",
        "optimizer": "adamw", "recompute": "selective", "attention": "sdpa", "compile": True,
        "offload": "none", "lora": None, "framework": "torchtitan 2024-12",
        "interconnect": "NVLink + 8x400 Gb/s InfiniBand",
    }  # fmt: skip
    return {**run, **changes}


def with_model(**changes):
    return a_run(model={**a_run()["model"], **changes})


def with_layout(**changes):
    return a_run(layout={**a_run()["layout"], **changes})


# ------------------------------------------------------------------------------------ what a line says


def test_a_full_line_becomes_a_full_run():
    run = parse_run(a_run())
    assert count_params(run.model).total == 8_030_261_248
    assert run.training == TrainingSpec(
        seq_len=8192,
        global_batch_tokens=16 * 8192,
        framework="torchtitan 2024-12",
        attention="sdpa",
        compile=True,
    )
    assert run.layout == Layout(dp=8, tp=2, zero_stage=3, shard_group=8, recompute="selective", micro_batch=2)
    assert (run.gpu, run.num_gpus, run.gpus_per_node) == ("H100-SXM-80GB", 16, 8)
    assert run.assumed == ()


def test_the_machines_of_a_run_come_from_its_gpu_and_interconnect():
    shape = shape_of(parse_run(a_run()))
    assert (shape.gpus_per_node, shape.num_nodes) == (8, 2)
    assert "H100" in shape.gpu


@pytest.mark.parametrize(
    ("word", "precision"),
    [
        ("bf16-mixed", "bf16"),
        ("fp16-mixed", "fp16"),
        ("bf16-pure", "bf16-pure"),
        ("fp8", "fp8"),
        ("tf32", "tf32"),
    ],
)
def test_precisions_of_the_schema_are_ours(word, precision):
    assert parse_run(a_run(precision=word)).training.precision == precision


@pytest.mark.parametrize(
    ("sharding", "stage", "group"),
    [("none", 0, 8), ("zero1", 1, 8), ("zero2", 2, 8), ("zero3", 3, 8), ("hsdp", 3, 4)],
)
def test_shardings_of_the_schema_are_zero_stages_and_groups(sharding, stage, group):
    layout = parse_run(with_layout(sharding=sharding)).layout
    assert layout is not None
    assert (layout.zero_stage, layout.shard_group) == (stage, group)


def test_a_shard_group_may_be_a_number_or_all():
    assert parse_run(with_layout(shard_group=2)).pins.shard_group == 2
    assert parse_run(with_layout(shard_group="all")).pins.shard_group == 8


def test_null_is_absent_and_what_is_given_stays():
    run = parse_run(a_run(layout={"tp": 2, "dp": None}, micro_batch=None, recompute=None, global_batch=None))
    assert run.layout is None
    assert run.pins.tp == 2
    assert run.pins.dp is None
    assert run.pins.micro_batch is None
    assert run.training.global_batch_tokens is None


def test_a_line_without_layout_leaves_all_to_the_search():
    run = {k: v for k, v in a_run().items() if k not in ("layout", "micro_batch", "grad_accum", "recompute")}
    pins = parse_run(run).pins.model_dump(exclude_none=True)
    assert pins == {"offload": "none"}


def test_the_only_missing_degree_follows_from_the_gpus():
    assert parse_run(with_layout(dp=None)).pins.dp == 8


def test_two_figures_of_a_batch_give_the_third():
    assert parse_run(a_run(grad_accum=None, global_batch=64)).pins.grad_accum == 4
    assert parse_run(a_run(micro_batch=None, grad_accum=2, global_batch=64)).pins.micro_batch == 4
    assert parse_run(a_run(grad_accum=3, global_batch=None)).training.global_batch_tokens == 2 * 3 * 8 * 8192


def test_a_micro_batch_alone_is_one_step_and_says_so():
    run = parse_run(a_run(grad_accum=None, global_batch=None))
    assert run.pins.grad_accum == 1
    assert any("one micro-batch a step assumed" in text for text in run.assumed)


def test_qlora_is_four_bits_and_lora_sixteen_where_the_line_says_no_more():
    q = parse_run(a_run(kind="qlora", lora={"rank": 8, "targets": "q,v"})).training
    assert (q.method, q.lora) == ("qlora", LoraSpec(rank=8, targets="q,v", base_bits=4, quant="nf4"))
    assert parse_run(a_run(kind="lora")).training.lora == LoraSpec()


def test_tokens_and_price_are_read():
    run = parse_run(a_run(tokens=2e9, usd_per_gpu_hour="2.49"))
    assert run.training.num_tokens == 2e9
    assert run.usd_per_gpu_hour == Decimal("2.49")


def test_what_was_measured_changes_nothing():
    measured = {"peak_memory_gib": 1.0, "tokens_per_s_per_gpu": 1e9, "oom": True}
    labels = {
        "source": "x",
        "note": "y",
        "group": "z",
        "trust": "low",
        "fits_only": True,
        "flops_convention": "6N",
    }
    assert parse_run(a_run(measured=measured, **labels)) == parse_run(a_run())


# ------------------------------------------------------------------------------------ the model of a line


def test_the_name_of_a_model_is_a_label_where_its_dimensions_are_given():
    for name in ("llama3-8b", "gemma-2-9b", "no such model", ""):
        model = parse_run(with_model(name=name)).model
        assert model.model_copy(update={"name": ""}) == parse_run(a_run()).model.model_copy(
            update={"name": ""}
        )


def test_params_alone_take_the_shape_rule():
    model = parse_run(a_run(model={"params": 3e9})).model
    assert abs(count_params(model).total / 3e9 - 1) < 0.03
    assert (model.num_layers, model.hidden_size) == (shape_for(3e9).num_layers, shape_for(3e9).hidden_size)


def test_params_with_a_vocabulary_and_an_old_feed_forward_still_count_to_params():
    traits = {"params": 39e9, "vocab": 50257, "gated_mlp": False, "norm": "layer", "bias": True}
    run = parse_run(a_run(model={**traits, "positional": "learned"}))
    assert abs(count_params(run.model).total / 39e9 - 1) < 0.03
    assert run.model.vocab_size == 50257


def test_a_known_name_without_dimensions_is_the_preset():
    model = parse_run(a_run(model={"name": "mixtral-8x7b"})).model
    assert count_params(model).total == count_params(preset("mixtral-8x7b")).total


@pytest.mark.parametrize(
    "name", ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b", "gemma-2-9b", "bert-large"]
)
def test_dimensions_of_a_published_model_count_to_its_total(name):
    spec = preset(name)
    words = {
        "name": "x", "layers": spec.num_layers, "hidden": spec.hidden_size, "heads": spec.num_heads,
        "kv_heads": spec.num_kv_heads, "ffn": spec.ffn_size or None, "vocab": spec.vocab_size,
        "gated_mlp": spec.gated_ffn, "tied_embeddings": spec.tied_embeddings, "norm": spec.norm,
        "bias": spec.bias != "none", "positional": spec.positional, "head_dim": spec.head_dim,
    }  # fmt: skip
    if spec.moe:
        words |= {"experts": spec.moe.num_experts, "experts_per_token": spec.moe.experts_per_token}
        words["expert_ffn"] = spec.moe.expert_ffn_size
    if spec.mla and spec.moe:
        words["mla"] = {
            "q_lora_rank": spec.mla.q_rank, "kv_lora_rank": spec.mla.kv_rank,
            "qk_nope_head_dim": spec.mla.nope_dim, "qk_rope_head_dim": spec.mla.rope_dim,
            "v_head_dim": spec.mla.v_dim,
            "dense_layers": spec.moe.dense_layers, "shared_experts": spec.moe.shared_experts,
        }  # fmt: skip
    model = parse_run(a_run(model=words, seq_len=512, layout={}, global_batch=None)).model
    assert count_params(model).total == count_params(spec).total
    assert (model.kind, model.sliding_window, model.local_layers) == (
        spec.kind,
        spec.sliding_window,
        spec.local_layers,
    )


def test_an_encoder_has_its_mlm_head_in_pretraining_only():
    dims = {
        "layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12, "ffn": 3072, "vocab": 30522,
        "gated_mlp": False, "norm": "layer", "bias": True, "positional": "learned", "tied_embeddings": True,
    }  # fmt: skip
    assert parse_run(a_run(model=dims, seq_len=512)).model.mlm_head
    assert not parse_run(a_run(model=dims, seq_len=512, kind="full-finetune")).model.mlm_head


def test_another_stated_parameter_count_is_said_and_not_used():
    run = parse_run(with_model(params=9e9))
    assert count_params(run.model).total == 8_030_261_248
    assert any("the line says 9e+09" in text for text in run.assumed)


def test_an_interconnect_that_names_no_link_is_said():
    assert any("'banana' names no link" in text for text in parse_run(a_run(interconnect="banana")).assumed)
    assert not any("names no link" in text for text in parse_run(a_run()).assumed)


# ------------------------------------------------------------------------------------ candidates


def a_shape(**changes):
    links = Links(intra="nvlink4-nvswitch", inter="ib-ndr")
    shape = Shape(gpu="H100 SXM 80GB", gpus_per_node=8, num_nodes=2, links=links)
    return {**shape.model_dump(mode="json"), **changes}


def a_candidate(**changes):
    training = TrainingSpec(seq_len=4096, global_batch_tokens=4096 * 32, num_tokens=1e9)
    candidate = {
        "id": "p-7c1e", "rank": 1, "verdict": "ok", "why": "",
        "offer": {"provider": "lambda", "instance_type": "gpu_8x_h100", "usd_per_hour": "23.92"},
        "shape": a_shape(),
        "model": {**preset("gemma-2-9b").model_dump(mode="json"), "num_params": 1},
        "training": training.model_dump(mode="json"),
        "layout": Layout(dp=16, zero_stage=3, micro_batch=2, recompute="full").model_dump(mode="json"),
        "memory": {}, "speed": {}, "hours": {}, "cost_usd": {}, "cost_lines": [], "warnings": [],
    }  # fmt: skip
    return {**candidate, **changes}


def test_a_candidate_comes_back_as_the_run_it_was():
    run = parse_line(json.dumps(a_candidate()))
    assert run.model == preset("gemma-2-9b")
    assert run.layout == Layout(dp=16, zero_stage=3, micro_batch=2, recompute="full")
    assert run.training.num_tokens == 1e9
    assert shape_of(run) == run.shape
    assert run.num_gpus == 16
    assert run.usd_per_gpu_hour == Decimal("2.99")


@pytest.mark.parametrize(
    "name", ["gpt2", "bert-base", "mixtral-8x7b", "deepseek-v3", "nanochat-d20-main", "opt-350m"]
)
def test_every_kind_of_model_survives_the_way_through_a_candidate(name):
    training = TrainingSpec(seq_len=512).model_dump(mode="json")
    line = a_candidate(model=preset(name).model_dump(mode="json"), training=training)
    assert parse_run(line).model == preset(name)


def test_a_candidate_pins_every_part_of_its_layout():
    layout = Layout(dp=4, tp=2, pp=2, zero_stage=1, micro_batch=1, grad_accum=8)
    pins = pins_of(layout)
    assert pins.shard_group == 4
    assert {k: v for k, v in pins.model_dump().items() if k != "shard_group"} == layout.model_dump(
        exclude={"shard_group"}
    )


def test_an_unknown_field_of_a_candidate_is_an_error():
    with pytest.raises(UserError, match="unknown field 'colour'"):
        parse_run(a_candidate(colour="red"))
    with pytest.raises(UserError, match="layout: unknown key 'tensor'"):
        parse_run(a_candidate(layout={"tensor": 2}))


def test_answers_are_accepted_in_a_candidate_only():
    with pytest.raises(UserError, match="unknown field 'memory'"):
        parse_run(a_run(memory={"allocated_gib": 3}))


# ------------------------------------------------------------------------------------ bad lines


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (a_run(sequence_length=4096), "unknown field 'sequence_length'"),
        (with_layout(tensor=2), "unknown field layout.tensor"),
        (with_model(width=2), "unknown field model.width"),
        (a_run(precision="bf8"), "precision 'bf8': not supported"),
        (a_run(optimizer="shampoo"), "optimizer 'shampoo': not supported"),
        (a_run(kind="rlhf"), "kind 'rlhf': not supported"),
        (a_run(recompute="some"), "recompute 'some': not supported"),
        (a_run(offload="nvme"), "offload is 'nvme'"),
        (a_run(loss="focal"), "loss is 'focal'"),
        (a_run(fused_kernels="yes please"), "fused_kernels"),
        (with_layout(sharding="zero4"), "layout.sharding 'zero4': not supported"),
        (with_layout(shard_group=3), "layout.shard_group 3 does not divide 8"),
        (with_layout(dp=4), "dp 4 x tp 2 x pp 1 x cp 1 = 8 GPUs, but gpus is 16"),
        (with_layout(dp=None, pp=None, tp=3), "tp 3 x cp 1 does not divide 16 GPUs"),
        (with_layout(ep=0), "ep is 0"),
        (a_run(global_batch=17), "global_batch 17 is not divisible by dp 8"),
        (a_run(global_batch=32), "micro_batch 2 x grad_accum 1 x dp 8 is not global_batch 32"),
        (a_run(micro_batch=3, grad_accum=None), "2 sequences a rank are not divisible by micro_batch 3"),
        (a_run(gpus=20, layout={}), "20 GPUs are not a whole number of nodes of 8"),
        (a_run(gpus=None, layout={"tp": 2}), "gpus is missing"),
        (a_run(gpus=0), "gpus is 0"),
        (a_run(gpus=-8), "gpus is -8"),
        (a_run(gpus=math.nan), "gpus is nan"),
        (a_run(gpus=1e30), "gpus is 1e"),
        (a_run(seq_len=None), "seq_len is missing"),
        (a_run(seq_len="8k"), "seq_len is '8k', not a whole number"),
        (a_run(micro_batch=True), "micro_batch is True"),
        (a_run(gpu=None), "gpu is missing"),
        (a_run(model=None), "model is missing"),
        (a_run(model={"name": "nobody-knows-it"}), "unknown model 'nobody-knows-it'"),
        (a_run(model={"params": -1}), "model.params"),
        (a_run(model={"params": 1e15}), "model.params"),
        (with_model(layers=0), "model.layers is 0"),
        (with_model(hidden=-4096), "model.hidden is -4096"),
        (with_model(hidden=True), "model.hidden is True"),
        (with_model(heads=7), "hidden_size 4096 cannot be divided among 7 heads"),
        (with_model(kv_heads=5), "32 heads cannot be divided among 5 key-value heads"),
        (with_model(heads=None, hidden=None), "layers and hidden"),
        (with_model(norm="batch"), "norm is 'batch'"),
        (a_run(kind="pretrain", lora={"rank": 8}), "lora is given, but kind is 'pretrain'"),
        (a_run(kind="lora", lora={"base_bits": 4}), "quantised base, but kind is lora"),
        (a_run(kind="qlora", lora={"base_bits": 16}), "base_bits is 16, but kind is qlora"),
        (a_run(kind="lora", lora={"rank": 0}), "rank is 0"),
        (a_run(kind="lora", lora={"targets": "everything"}), "unknown LoRA target 'everything'"),
        (a_run(tokens=-1), "tokens is -1"),
        (a_run(tokens=0), "tokens is 0"),
        (a_run(usd_per_gpu_hour=-2), "usd_per_gpu_hour is -2, not a price"),
        (a_run(usd_per_gpu_hour="cheap"), "usd_per_gpu_hour is 'cheap'"),
        (a_run(dropout=-1), "dropout is -1, not a share"),
        (a_run(model={"name": "gpt2"}), "sequence length 8192 is over the 1024 positions of gpt2"),
        (a_run(dropout=1.5), "dropout is 1.5, not a share"),
        (a_run(frozen_layers=33), "frozen_layers is 33, but llama3-8b has 32 layers"),
        (a_run(fp8_recipe="tensorwize"), "fp8_recipe 'tensorwize': not supported"),
        (a_candidate(training={"seq_len": 2048, "num_tokens": -1}), "num_tokens is -1"),
        (a_candidate(training={"seq_len": 2048, "global_batch_tokens": 0}), "global_batch_tokens is 0"),
        (a_candidate(training={"seq_len": 10**20}), "seq_len is 1e"),
        (a_candidate(shape=a_shape(vcpus=-1)), "shape.vcpus is -1, not a positive number"),
        (a_candidate(shape=a_shape(host_memory_bytes=0)), "shape.host_memory_bytes is 0"),
        (a_candidate(layout={"dp": 16, "etp": 0}), "layout: etp is 0"),
        (a_candidate(shape=a_shape(links={"intra": "string", "inter": "ib-ndr"})), "unknown link 'string'"),
        (a_candidate(shape=a_shape(links={"intra": "none", "inter": "tin cans"})), "unknown link 'tin cans'"),
        (a_candidate(layout={"dp": 16, "shard_group": 0}), "layout: shard_group is 0"),
        (a_candidate(layout={"dp": 16, "shard_group": -1}), "layout: shard_group is -1"),
        ([], "a run description is an object, not list"),
    ],
)  # fmt: skip
def test_a_bad_line_is_refused_naming_the_field(line, words):
    with pytest.raises(UserError, match=words.replace("(", r"\(")):
        parse_run(line)


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[" * 10**5, "1" * 5000])
def test_a_line_that_is_no_json_is_refused(text):
    with pytest.raises(UserError, match=r"not valid JSON|not int"):
        parse_line(text)
    assert line_id(text) is None


def test_the_id_of_a_bad_line_can_still_be_told():
    assert line_id(json.dumps(a_run(gpus=0))) == "torchtitan-8b"


# ------------------------------------------------------------------------------------ measured runs


def test_at_least_95_percent_of_the_measured_runs_are_read_and_the_rest_is_refused_in_words(capsys):
    refused = Counter()
    lines = [case.line for name in ("memory", "throughput") for case in cases(name)]
    for line in lines:
        try:
            shape_of(parse_line(line))
        except UserError as error:
            refused[str(error)] += 1
    with capsys.disabled():
        for reason, count in refused.most_common():
            print(f"\n  {count:3d} of {len(lines)} runs refused: {reason}", end="")
    assert sum(refused.values()) <= 0.05 * len(lines)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
MODEL_KEYS = st.sampled_from(
    [*a_run()["model"], "mla", "moe", "expert_ffn", "num_layers", "hidden_size", "kind"]
)
LAYOUT_KEYS = st.sampled_from([*a_run()["layout"], "etp", "shard_group", "tp_overlap"])


@settings(deadline=None, max_examples=400)
@given(
    st.dictionaries(st.sampled_from([*INPUTS, "id", "colour"]), ANYTHING, max_size=5),
    st.dictionaries(MODEL_KEYS, ANYTHING, max_size=4),
    st.dictionaries(LAYOUT_KEYS, ANYTHING, max_size=4),
)
def test_no_line_breaks_the_reader(top, model, layout):
    run = a_run(model={**a_run()["model"], **model}, layout={**a_run()["layout"], **layout})
    try:
        request = parse_run({**run, **top})
    except UserError:
        return
    assert request.num_gpus >= 1
    assert count_params(request.model).total > 0
