import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import UserError
from planner.model import check_model, forward_flops_per_token, model_columns, visible_keys
from planner.model.count import count_params
from planner.model.presets import find_preset, preset, preset_names, preset_rows
from planner.model.shapes import shape_for
from planner.model.spec import from_spec
from planner.types import Mla, ModelSpec, Moe


def a_model(**changes: object) -> ModelSpec:
    fields = {
        "name": "test", "num_layers": 4, "hidden_size": 512, "num_heads": 8, "num_kv_heads": 2,
        "head_dim": 64, "ffn_size": 1408, "vocab_size": 1000,
    }  # fmt: skip
    return ModelSpec.model_validate({**fields, **changes})


# ------------------------------------------------------------------------------------ presets


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_counts_to_its_published_or_counted_total(name):
    row = preset_rows()[name]
    counted = count_params(preset(name)).total
    assert counted == int(row["num_params"])
    assert row["published_params"] in ("", str(counted))


def test_every_preset_row_says_where_it_comes_from_and_when():
    for row in preset_rows().values():
        assert row["source"], row["name"]
        assert row["counted_by"], row["name"]
        assert row["date"].startswith("20"), row["name"]


def test_the_table_has_dense_moe_mla_sliding_window_and_encoder_models():
    specs = [preset(name) for name in preset_names()]
    assert len(specs) >= 125
    assert {s.kind for s in specs} == {"decoder", "encoder"}
    assert any(s.moe for s in specs)
    assert any(s.mla for s in specs)
    assert any(s.sliding_window for s in specs)


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("mixtral-8x7b", 12_879_925_248),
        ("qwen3-235b-a22b", 22_190_763_520),
        ("deepseek-v3", 37_552_282_624),
        ("gpt-oss-120b", 5_711_982_912),
        ("llama-3-8b", 8_030_261_248),
    ],
)
def test_active_parameters_leave_out_the_experts_that_a_token_does_not_visit(name, active):
    assert count_params(preset(name)).active == active


@pytest.mark.parametrize(
    "name", ["LLAMA-3-8B", " llama3-8b ", "meta-llama/Meta-Llama-3-8B", "Meta-Llama-3-8B"]
)
def test_a_preset_is_found_in_any_case_and_by_its_aliases(name):
    assert preset(name) == preset("llama-3-8b")


def test_an_unknown_model_is_refused_with_near_names():
    with pytest.raises(UserError, match=r"unknown model 'lama-3-8b'.*did you mean.*llama-3-8b"):
        preset("lama-3-8b")
    assert find_preset("lama-3-8b") is None


@pytest.mark.parametrize("name", ["t5-large", "google/flan-t5-xl", "facebook/bart-large"])
def test_an_encoder_decoder_is_refused_by_name(name):
    with pytest.raises(UserError, match="encoder-decoder: not supported") as caught:
        preset(name)
    assert "gpt2-large" in caught.value.hint


def test_a_name_that_only_starts_like_an_encoder_decoder_is_unknown():
    with pytest.raises(UserError, match="unknown model"):
        preset("t5000")


# ------------------------------------------------------------------------------------ counting


@pytest.mark.parametrize("name", preset_names())
def test_the_parts_of_a_count_add_up_to_its_total(name):
    c = count_params(preset(name))
    layers = preset(name).num_layers * (c.attention_layer + c.norm_layer)
    layers += c.dense_layers * c.ffn_dense_layer
    layers += c.moe_layers * (c.router_layer + c.shared_layer + c.experts_layer)
    assert c.embedding + c.head + c.root_other + layers == c.total


def test_tying_the_embeddings_saves_one_table():
    own, tied = a_model(), a_model(tied_embeddings=True)
    assert count_params(own).total - count_params(tied).total == 1000 * 512


def test_an_encoder_without_its_mlm_head_has_no_logits():
    encoder = preset("bert-base").model_copy(update={"mlm_head": False})
    assert count_params(encoder).matmul_head == 0
    assert model_columns([encoder]).has_head == 0
    # the published count of the encoder with its pooler, which is h x h + h
    assert count_params(encoder).total + 768 * 768 + 768 == 109_482_240


@given(
    layers=st.integers(1, 8),
    heads=st.integers(1, 8),
    groups=st.integers(1, 4),
    head_dim=st.sampled_from([32, 64, 128]),
    ffn=st.integers(1, 5000),
    vocab=st.integers(1, 100_000),
    gated=st.booleans(),
    bias=st.sampled_from(["none", "qkv", "attention", "ffn", "output+ffn", "all"]),
    norm=st.sampled_from(["rms", "layer"]),
)
def test_more_layers_and_wider_layers_never_have_fewer_parameters(
    layers, heads, groups, head_dim, ffn, vocab, gated, bias, norm
):
    spec = a_model(
        num_layers=layers, num_heads=heads * groups, num_kv_heads=heads, head_dim=head_dim, ffn_size=ffn,
        vocab_size=vocab, gated_ffn=gated, bias=bias, norm=norm,
    )  # fmt: skip
    count = count_params(spec).total
    for wider in ({"num_layers": layers + 1}, {"ffn_size": ffn + 1}, {"vocab_size": vocab + 1}):
        assert count_params(spec.model_copy(update=wider)).total > count


# ------------------------------------------------------------------------------------ columns and FLOPs


def test_one_spec_gives_scalars_and_several_give_vectors():
    assert model_columns([preset("gpt2")]).num_layers.shape == ()
    columns = model_columns([preset("gpt2"), preset("mixtral-8x7b")])
    assert columns.num_layers.tolist() == [12, 32]
    assert columns.num_experts.tolist() == [0, 8]


def test_forward_flops_are_two_for_each_weight_that_a_token_meets_and_the_scores():
    spec = preset("llama-3-8b")
    flops = forward_flops_per_token(model_columns([spec]), np.asarray(8192.0))
    count = count_params(spec)
    norms = 32 * count.norm_layer + 4096
    assert flops.total - flops.scores == 2 * (count.total - count.embedding - norms)
    # 2 FLOP x 32 layers x (q.k and weights.v: 2 x 4096) x (8192 + 1) / 2 keys
    assert flops.scores == 2 * 32 * 2 * 4096 * 8193 / 2


def test_a_moe_token_pays_for_the_experts_it_visits_only():
    spec = preset("mixtral-8x7b")
    two = forward_flops_per_token(model_columns([spec]), np.asarray(1.0)).ffn
    assert spec.moe is not None
    four = spec.model_copy(update={"moe": spec.moe.model_copy(update={"experts_per_token": 4})})
    router = 2 * 32 * 4096 * 8
    assert forward_flops_per_token(model_columns([four]), np.asarray(1.0)).ffn - router == 2 * (two - router)


@given(seq_len=st.integers(1, 300), window=st.integers(1, 400), local=st.integers(0, 4))
def test_visible_keys_equal_a_count_over_all_queries(seq_len, window, local):
    spec = a_model(sliding_window=window, local_layers=local)
    in_window = sum(min(i, window) for i in range(1, seq_len + 1)) / seq_len
    in_all = sum(range(1, seq_len + 1)) / seq_len
    expected = (local * in_window + (4 - local) * in_all) / 4
    assert math.isclose(visible_keys(model_columns([spec]), np.asarray(float(seq_len))), expected)


def test_a_query_of_an_encoder_sees_the_whole_sequence():
    keys = visible_keys(model_columns([preset("bert-base")]), np.asarray(512.0))
    assert keys == 512


# ------------------------------------------------------------------------------------ impossible models

FOUR = Moe(num_experts=4, experts_per_token=1, expert_ffn_size=64)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_kv_heads": 3}, "8 heads cannot be divided among 3 key-value heads"),
        ({"positional": "learned"}, "learned positions need max_position"),
        ({"local_layers": 5}, "5 local layers of 4 layers"),
        ({"ffn_size": 0}, "layers without experts need a feed-forward"),
        ({"moe": FOUR.model_copy(update={"experts_per_token": 5})}, "cannot visit 5 of 4 experts"),
        ({"moe": FOUR.model_copy(update={"dense_layers": 9})}, "9 dense layers of 4"),
        ({"mla": Mla(q_rank=0, kv_rank=64, nope_dim=64, rope_dim=32, v_dim=64)}, "is not nope 64 + rope 32"),
        ({"num_layers": 10**6}, "1,000,000 layers is beyond any Transformer"),
        ({"hidden_size": 10**9}, "hidden_size 1,000,000,000 is beyond"),
        ({"vocab_size": 10**9}, "beyond any tokenizer"),
        ({"hidden_size": 2**20, "ffn_size": 2**20, "num_layers": 2000}, "parameters is absurd"),
    ],
)  # fmt: skip
def test_an_impossible_model_is_refused_with_the_reason(changes, words):
    with pytest.raises(UserError, match=re.escape(words)):
        check_model(a_model(**changes))
    with pytest.raises(UserError, match=re.escape(words)):
        model_columns([a_model(**changes)])


# ------------------------------------------------------------------------------------ the shape rule


@settings(deadline=None)
@given(exponent=st.floats(6, 12))
def test_the_shape_rule_counts_to_within_3_percent_of_what_was_asked(exponent):
    asked = 10**exponent
    spec = shape_for(min(asked, 1e12))
    assert abs(count_params(spec).total / asked - 1) < 0.03
    check_model(spec)
    assert spec.num_heads * spec.head_dim == spec.hidden_size
    assert spec.ffn_size % (16 if spec.hidden_size < 256 else 32 if spec.hidden_size < 1024 else 256) == 0
    assert 2 <= spec.ffn_size / spec.hidden_size <= 4


def test_each_rung_of_the_shape_rule_counts_to_within_1_percent_and_is_larger_than_the_one_below():
    last = 0
    for rung in range(6 * 128 + 1):
        asked = 1e6 * 10 ** (rung / 128)
        counted = count_params(shape_for(min(asked, 1e12))).total
        assert abs(counted / asked - 1) < 0.01, asked
        assert counted > last, asked
        last = counted


@settings(deadline=None)
@given(st.lists(st.floats(6, 12), min_size=2, max_size=2))
def test_asking_for_more_parameters_never_gives_a_smaller_model(exponents):
    small, large = (count_params(shape_for(min(10**e, 1e12))).total for e in sorted(exponents))
    assert small <= large


def test_heads_of_a_large_shape_can_be_split_over_eight_gpus():
    for billions in (7, 13, 30, 70, 180, 400, 1000):
        spec = shape_for(billions * 1e9)
        assert spec.num_heads % 8 == 0
        assert spec.num_kv_heads == 8


@pytest.mark.parametrize("asked", [0, -1, 999_999, 1.01e12, 1e300, math.inf, -math.inf, math.nan])
def test_a_count_outside_1m_to_1t_is_refused(asked):
    with pytest.raises(UserError, match="covers 1M to 1T"):
        shape_for(asked)


# ------------------------------------------------------------------------------------ spec files


def test_a_spec_file_needs_only_what_does_not_follow():
    spec = from_spec(
        {"num_layers": 2, "hidden_size": 256, "num_heads": 4, "ffn_size": 512, "vocab_size": 100}
    )
    assert (spec.num_kv_heads, spec.head_dim, spec.norm, spec.positional) == (4, 64, "rms", "rope")


def test_a_spec_file_may_change_a_preset():
    spec = from_spec({"preset": "llama-3-8b", "num_layers": 16, "vocab_size": 32000})
    assert (spec.num_layers, spec.vocab_size, spec.num_kv_heads) == (16, 32000, 8)


def test_widths_that_followed_from_a_changed_figure_follow_again():
    spec = from_spec({"preset": "gpt2", "hidden_size": 1024, "num_heads": 16})
    assert (spec.head_dim, spec.num_kv_heads) == (64, 16)
    assert from_spec({"preset": "gemma-2-9b", "num_layers": 10}).local_layers == 5


def test_a_spec_file_may_start_from_a_parameter_count():
    assert from_spec({"params": "1B", "vocab_size": 50_000}).hidden_size == shape_for(1e9).hidden_size


def test_experts_of_a_spec_file_are_a_mapping():
    moe = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_size": 128}
    spec = from_spec({"num_layers": 2, "hidden_size": 256, "num_heads": 4, "vocab_size": 100, "moe": moe})
    assert spec.moe == Moe(num_experts=8, experts_per_token=2, expert_ffn_size=128)
    assert spec.ffn_size == 0


def test_a_preset_written_out_as_a_spec_file_is_the_same_model():
    for name in preset_names():
        assert from_spec(preset(name).model_dump(mode="json")) == preset(name)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"num_layer": 2}, r"unknown key 'num_layer' \(did you mean num_layers"),
        ({"preset": "llama-3-8b", "moe": {"experts": 8}}, "moe: unknown key 'experts'"),
        ({"preset": "llama-3-8b", "params": "1B"}, "preset and params contradict"),
        ({"preset": "llama-9"}, "unknown model 'llama-9'"),
        ({"params": "0"}, "params"),
        ({"params": "-1B"}, "params"),
        ({"params": True}, "params"),
        ({"preset": "gpt2", "num_layers": 0}, "num_layers is 0"),
        ({"preset": "gpt2", "num_layers": -3}, "num_layers is -3"),
        ({"preset": "gpt2", "num_layers": "many"}, "num_layers is 'many'"),
        ({"preset": "gpt2", "num_layers": True}, "num_layers is true"),
        ({"preset": "gpt2", "num_layers": math.nan}, "num_layers is nan"),
        ({"preset": "gpt2", "norm": "batch"}, "norm is 'batch'"),
        ({"preset": "gpt2", "hidden_size": 1000, "num_heads": 12}, "1000 cannot be divided among 12"),
        ({"hidden_size": 512}, "num_layers is missing"),
        ({"preset": "gpt2", "moe": 8}, "moe is 8, not a mapping"),
        ([1, 2], "not a mapping"),
        ("gpt2", "not a mapping"),
    ],
)
def test_a_bad_spec_file_is_refused_naming_the_field(mapping, words):
    with pytest.raises(UserError, match=words):
        from_spec(mapping)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from([*ModelSpec.model_fields, "preset", "params", "colour"]), ANYTHING, max_size=12
    )
)
def test_no_spec_file_breaks_the_reader(mapping):
    try:
        spec = from_spec({"preset": "gpt2", **mapping})
    except UserError:
        return
    assert count_params(spec).total > 0
