"""What the options mean."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from typer.main import get_command

from planner.cli import main
from planner.cli.request import Request, goal, request, run_request, words
from planner.errors import UserError
from planner.types import LoraSpec


def options(command: str = "suggest", **given: object) -> dict[str, object]:
    """All options of a command as Typer hands them over, with some of them given."""
    parameters = get_command(main.app).commands[command].params
    values = {
        p.name: (False if getattr(p, "is_flag", False) and not p.secondary_opts else None) for p in parameters
    }
    assert given.keys() <= values.keys()
    return {**values, **given}


def asked(**given: object) -> Request:
    return request(options(**given))


def test_only_what_was_given_is_set_on_the_training() -> None:
    """The search may choose an optimizer only where the user did not."""
    assert "optimizer" not in asked(params="1B").training.model_fields_set
    assert "optimizer" in asked(params="1B", optimizer="adamw").training.model_fields_set


def test_forms_that_people_type_are_read() -> None:
    found = asked(params="1.3b", tokens="20B", seq_len="4k", global_batch="262k", micro_batch="8", zero="3")
    assert found.training.num_tokens == 20e9
    assert found.training.seq_len == 4000
    assert found.training.global_batch_tokens == 262_000
    assert found.pins.micro_batch == 8
    assert found.pins.zero_stage == 3
    bounds = goal(options(budget="$1,000", deadline="2d", headroom="20%", gpu=["H100,L4"], spot=True))
    assert bounds.budget_usd == Decimal(1000)
    assert bounds.deadline_s == 172_800
    assert bounds.headroom == pytest.approx(0.2)
    assert {"H100-SXM5-80GB", "L4"} <= set(bounds.gpus)
    assert bounds.market == "spot"


def test_defaults_are_named() -> None:
    assert asked(params="1B").defaults == (
        "default sequence length, method, precision, optimizer, framework",
    )


def test_sequence_length_respects_the_models_limit() -> None:
    assert asked(model="gpt2").training.seq_len == 1024
    assert asked(params="1B").training.seq_len == 2048


def test_qlora_means_a_frozen_base_in_nf4() -> None:
    found = asked(params="1B", method="qlora", tokens="10M", lora_rank="8")
    assert found.training.lora == LoraSpec(rank=8, base_bits=4, quant="nf4")
    assert asked(params="1B", method="lora", tokens="10M").training.lora == LoraSpec()
    assert asked(params="1B").training.lora is None


def test_flags_are_pins() -> None:
    pins = asked(params="1B", tp="2", pp="4", cp="1", ep="1", sequence_parallel=False, recompute="full").pins
    assert (pins.tp, pins.pp, pins.cp, pins.sequence_parallel, pins.recompute) == (2, 4, 1, False, "full")
    assert pins.dp is None


def test_preset_config_file_and_directory_give_the_same_model(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    from_directory = asked(model=str(tmp_path)).model
    from_file = asked(model=str(tmp_path / "config.json")).model
    same = {"name": "", "source": ""}
    assert from_directory.model_copy(update=same) == from_file.model_copy(update=same)
    assert from_file.hidden_size == asked(model="llama-3-8b").model.hidden_size


def test_spec_file_holds_model_and_training(tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text("model: {params: 1B, vocab_size: 50304}\ntraining: {seq_len: 1024, precision: fp16}\n")
    found = asked(spec=str(spec))
    assert found.model.vocab_size == 50304
    assert found.training.seq_len == 1024
    assert found.training.precision == "fp16"
    assert asked(spec=str(spec), seq_len="512").training.seq_len == 512


def test_spec_file_may_hold_the_model_alone(tmp_path: Path) -> None:
    spec = tmp_path / "mine.yaml"
    spec.write_text("num_layers: 16\nhidden_size: 2048\nnum_heads: 16\nffn_size: 8192\nvocab_size: 32000\n")
    assert asked(spec=str(spec)).model.num_layers == 16


def test_run_of_the_options_takes_machines_of_at_most_eight() -> None:
    given = options("estimate", params="1B", gpu="H100-SXM5-80GB", gpus="16")
    run = run_request(given, request(given))
    assert (run.num_gpus, run.gpus_per_node) == (16, 8)


def test_degrees_say_how_many_gpus() -> None:
    given = options("estimate", params="1B", gpu="H100-SXM5-80GB", tp="4", dp="2")
    assert run_request(given, request(given)).num_gpus == 8


def test_any_means_no_bound() -> None:
    assert words(["any"], "--provider") == ()
    assert words(["aws,gcp", "azure"], "--provider") == ("aws", "gcp", "azure")


def test_two_models_contradict() -> None:
    with pytest.raises(UserError, match="--params and --model"):
        asked(params="1B", model="gpt2")
