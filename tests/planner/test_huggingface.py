"""``data/huggingface.jsonl`` holds configs and the parameters that their model classes have.

Counts: the class built on the meta device, transformers 5.24.0 with torch 2.13.0, tied weights once; of the
types that transformers does not hold or cannot build (qwen, baichuan, internlm, internlm2, chatglm, dbrx):
totals of the released weights.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import UserError
from planner.model.count import count_params
from planner.model.huggingface import from_config, supported_model_types
from planner.model.presets import preset

COUNTED = [
    json.loads(line) for line in (Path(__file__).parent / "data/huggingface.jsonl").read_text().splitlines()
]


RELEASED = [
    json.loads(line)
    for line in (Path(__file__).parent / "data/released_configs.jsonl").read_text().splitlines()
]


def spec_of(**config: object):
    return from_config(json.dumps(config), "test")


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case["config"]["model_type"])
def test_a_config_counts_as_its_model_class_does(case):
    assert count_params(spec_of(**case["config"])).total == case["num_params"]


@pytest.mark.parametrize(
    "case",
    [c for c in COUNTED if c["local_layers"] is not None],
    ids=lambda case: case["config"]["model_type"],
)
def test_as_many_layers_have_a_window_as_in_the_model_class(case):
    spec = spec_of(**case["config"])
    windowed = spec.num_layers if spec.local_layers is None else spec.local_layers
    assert (windowed if spec.sliding_window else 0) == case["local_layers"]


@pytest.mark.parametrize("case", RELEASED, ids=lambda case: case["preset"])
def test_the_keys_of_a_released_model_give_its_preset(case):
    ours, known = spec_of(**case["config"]), preset(case["preset"])
    assert count_params(ours) == count_params(known)
    assert (ours.kind, ours.local_layers, ours.norms_per_layer) == (
        known.kind,
        known.local_layers,
        known.norms_per_layer,
    )


def test_every_supported_type_is_counted_at_least_once():
    assert {case["config"]["model_type"] for case in COUNTED} == set(supported_model_types())


def llama(**changes: object):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
        "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "torch_dtype": "bfloat16",
    }  # fmt: skip
    return {**config, **changes}


def test_the_config_of_a_preset_is_the_preset():
    ours = spec_of(**llama())
    assert ours == preset("llama-3-8b").model_copy(update={"name": "test", "source": ours.source})


def test_a_null_in_the_file_wins_over_the_default_of_the_class():
    windowed = spec_of(model_type="mistral")
    assert windowed.sliding_window == 4096
    assert spec_of(model_type="mistral", sliding_window=None).sliding_window is None


def test_layer_types_say_which_layers_have_a_window():
    types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    spec = spec_of(model_type="gemma2", num_hidden_layers=4, layer_types=types)
    assert (spec.sliding_window, spec.local_layers) == (4096, 2)


@pytest.mark.parametrize(
    ("other", "usual"), [("Yi", "llama"), ("RefinedWeb", "falcon"), ("kimi_k2", "deepseek_v3")]
)
def test_other_names_of_a_type_are_read_as_it(other, usual):
    one, two = spec_of(model_type=other), spec_of(model_type=usual)
    assert count_params(one) == count_params(two)


def test_positions_of_roberta_start_behind_its_padding_token():
    spec = spec_of(model_type="roberta", max_position_embeddings=514, type_vocab_size=1)
    assert (spec.max_position, spec.position_offset) == (512, 2)
    assert count_params(spec).total == count_params(preset("roberta-base")).total


def test_broken_json_is_refused_with_line_and_column():
    text = json.dumps(llama(), indent=1)
    with pytest.raises(UserError, match=r"config\.json is not valid JSON: .*line 8 column \d+"):
        from_config(text[: text.index('"num_attention_heads"') - 4], "config.json")


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "3", '"llama"', "{}", '{"model_type": 3}', "[" * 10**5, "9" * 9999]
)
def test_what_is_no_config_is_refused(text):
    with pytest.raises(UserError):
        from_config(text, "config.json")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "t5"}, "'t5' is an encoder-decoder: not supported"),
        ({"model_type": "somenew", "is_encoder_decoder": True}, "'somenew' is an encoder-decoder"),
        ({"model_type": "vit"}, "'vit' is a vision model"),
        ({"model_type": "whisper"}, "'whisper' is an audio model"),
        ({"model_type": "qwen2_vl"}, "'qwen2_vl' is a multimodal model"),
        ({"model_type": "gemma3", "vision_config": {}, "text_config": {}}, "'gemma3' is a multimodal model"),
        ({"model_type": "mamba"}, "'mamba' is a state-space"),
        ({"model_type": "llama5"}, r"'llama5' is unknown: not supported \(did you mean llama"),
    ],
)
def test_an_unsupported_type_is_refused_by_name(config, words):
    with pytest.raises(UserError, match=words):
        spec_of(**config)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"num_hidden_layers": -2}, "num_hidden_layers is -2"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5, not a whole number"),
        ({"num_hidden_layers": float("nan")}, "not a whole number"),
        ({"hidden_size": "4096"}, "hidden_size is '4096', not a whole number"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 4100}, "cannot be divided among 32 heads"),
        ({"num_key_value_heads": 5}, "32 heads cannot be divided among 5"),
        ({"attention_bias": "yes"}, "attention_bias is 'yes', not true or false"),
        ({"vocab_size": 10**12}, "beyond any tokenizer"),
        ({"num_hidden_layers": 10**15}, "layers is beyond any Transformer"),
        ({"model_type": "qwen3_moe", "num_hidden_layers": 1e300}, "layers is beyond any Transformer"),
    ],
)
def test_an_impossible_figure_is_refused_naming_its_key(changes, words):
    with pytest.raises(UserError, match=words):
        spec_of(**llama(**changes))


KEYS = sorted({key for case in COUNTED for key in case["config"]} - {"model_type"})
FIGURES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**7)
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers())
)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(supported_model_types()), st.dictionaries(st.sampled_from(KEYS), FIGURES, max_size=6))
def test_no_config_breaks_the_reader(model_type, changes):
    try:
        spec = spec_of(model_type=model_type, **changes)
    except UserError:
        return
    assert count_params(spec).total > 0
