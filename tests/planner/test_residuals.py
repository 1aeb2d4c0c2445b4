"""The residual file: rows come back as they were written, and what is not one is refused in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UserError
from planner.hardware.gpus import gpus
from planner.trust import residuals
from planner.trust.features import Features
from planner.trust.residuals import HEAD, QUANTITIES, Residual, from_csv, shipped_rows, to_csv

MOST_BYTES = 250_000
words = st.sampled_from(["plan", "hf", "megatron"])
numbers = st.integers(1, 2**20).map(float)
runs = st.builds(
    Features,
    gpu=st.sampled_from(["L4", "T4"]), method=st.sampled_from(["full", "lora"]), precision=st.just("bf16"),
    framework=words, zero_stage=st.integers(0, 3), recompute=st.integers(0, 2), tp=st.integers(1, 8),
    pp=st.integers(1, 8), cp=st.integers(1, 8), ep=st.integers(1, 8), offload=st.integers(0, 1),
    moe=st.integers(0, 1), params=numbers, gpus=numbers, nodes=numbers, seq_len=numbers, micro_tokens=numbers,
)  # fmt: skip
rows = st.builds(Residual, st.sampled_from(QUANTITIES), words, runs, st.floats(-2, 2))


@given(st.lists(rows, max_size=5))
def test_rows_come_back_as_they_were_written(given_rows: list[Residual]) -> None:
    back = from_csv(to_csv(given_rows))
    assert len(back) == len(given_rows)
    for row, again in zip(given_rows, back, strict=True):
        assert (again.quantity, again.source) == (row.quantity, row.source)
        assert again.features.framework == row.features.framework
        assert again.features.params == pytest.approx(row.features.params, rel=1e-5)
        assert again.log_ratio == pytest.approx(row.log_ratio, abs=1e-4)


def test_the_shipped_file_is_small_and_names_known_gpus() -> None:
    known = {card.id for card in gpus()}
    assert len(to_csv(shipped_rows())) < MOST_BYTES
    for row in shipped_rows():
        assert row.features.gpu in known
        assert abs(row.log_ratio) < 3
        assert row.source
        assert row.source != residuals.OWN


@pytest.mark.parametrize(
    "text",
    ["", "nothing", ",".join(HEAD) + "\nspeed,a", ",".join(HEAD) + "\n" + "step," + ",".join("x" * 19)],
)
def test_what_is_no_residual_file_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        from_csv(text)
