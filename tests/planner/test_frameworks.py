"""Framework names find their profiles, and the table of profiles is whole."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from planner.training import frameworks
from planner.training.numerics import training_columns
from tests.planner.memory_tools import a_training

TABLE = Path(frameworks.__file__).parents[1] / "data" / "frameworks.toml"


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("plan", "plan"),
        ("torchtitan 2024-12", "torchtitan-2024"),
        ("torchtitan 2025-06", "torchtitan-2025-04"),
        ("torchtitan 2026-08", "torchtitan-2026-04"),
        ("torchtitan", "torchtitan-2026-04"),
        ("HF Trainer + fms-acceleration 2024", "fms-acceleration"),
        ("HF SFTTrainer + fms-acceleration (baseline-peft-bnb)", "hf-kbit"),
        ("transformers 4.15 Trainer (2022-01)", "hf-2022"),
        ("transformers+deepspeed 2023-11", "hf-deepspeed"),
        ("Megatron-DeepSpeed 2022-02", "megatron-deepspeed"),
        ("Megatron-LM 2021-04", "megatron-2021"),
        ("Megatron-LM 2024-06", "megatron-core"),
        ("lit-gpt 2023-10", "litgpt-2023"),
        ("litgpt 2024", "litgpt"),
        ("LLaMA-Factory 0.9", "llama-factory"),
        ("Unsloth 2025-01", "unsloth"),
        ("DeepSpeed ZeRO-3", "deepspeed"),
        ("nanoGPT", "nanogpt"),
        ("Lightning Fabric", "lightning"),
        ("GPT-NeoX", "gpt-neox"),
    ],
)
def test_a_name_finds_its_profile(name: str, profile: str) -> None:
    found = frameworks.match(name)
    assert found.id == profile
    assert found.known
    assert frameworks.warning(name) is None


def test_an_unknown_name_gets_the_generic_profile_and_a_warning() -> None:
    found = frameworks.match("MaxText 2025")
    assert (found.id, found.known) == (frameworks.GENERIC, False)
    assert "MaxText 2025" in (frameworks.warning("MaxText 2025") or "")


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("torchtitan 2024-12", "2024-12"),
        ("litgpt 2024", "2024-06"),
        ("nemo 25.09", "2025-09"),
        ("hf", "9998"),
    ],
)
def test_dates_are_read_from_names(text: str, date: str) -> None:
    assert frameworks.date_of(text) == date


def test_every_profile_is_whole_and_says_where_it_was_read() -> None:
    for profile_id in frameworks.profile_ids():
        found = frameworks.profile(profile_id)
        assert found.title
        assert found.source


def test_every_pattern_leads_to_a_profile_and_none_is_hidden() -> None:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    known = set(frameworks.profile_ids())
    bases = {head["base"] for head in table["profile"].values() if "base" in head}
    reached = {row["profile"] for row in table["pattern"]}
    assert reached <= known
    assert known - reached - bases == set()
    for row in table["pattern"]:
        re.compile(row["regex"])


def test_what_the_user_says_beats_the_profile() -> None:
    by_profile = training_columns([a_training(framework="torchtitan 2024-12")])
    said = training_columns(
        [a_training(framework="torchtitan 2024-12", numerics="bf16-all", loss="fused-linear")]
    )
    assert float(by_profile.sharded.weight) == 4
    assert float(said.sharded.weight) == 2
    assert (float(by_profile.loss.linear), float(said.loss.linear)) == (0, 1)


def test_precision_decides_numerics_where_the_profile_may_not() -> None:
    columns = [training_columns([a_training(precision=p)]).unsharded for p in ("fp32", "bf16", "bf16-pure")]
    assert [float(c.compute) for c in columns] == [4, 2, 2]
    assert [float(c.weight) for c in columns] == [4, 4, 2]


def test_every_value_of_a_profile_is_of_its_type() -> None:
    memory, layout = TypeAdapter(frameworks.MemoryProfile), TypeAdapter(frameworks.LayoutHabits)
    for profile_id in frameworks.profile_ids():
        memory.validate_python(dict(frameworks.table(profile_id, "memory")))
        layout.validate_python(dict(frameworks.table(profile_id, "layout")))
