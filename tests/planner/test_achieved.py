"""The share of the predicted speed that runs reach whose software or layout nobody names."""

import csv
import json
from importlib.resources import files

import pytest

from planner import api
from planner.calibration import known_with, own_figures
from planner.runs import achieved, parse_run
from planner.types import Band

LINE = {
    "kind": "pretrain",
    "model": {"params": 1.1e9},
    "gpu": "A100-SXM-80GB",
    "gpus": 8,
    "seq_len": 2048,
    "precision": "bf16-mixed",
    "tokens": 2e10,
}


def gpu_hours(known=None, **fields) -> Band:
    return api.estimate([parse_run(LINE | fields)], known=known)[0].whole.gpu_hours


def hours_of_steps(**fields) -> float:
    """GPU hours of the steps alone, as fast as they are predicted."""
    answer = api.estimate([parse_run(LINE | fields)])[0]
    return LINE["tokens"] / answer.speed.tokens_per_s_per_gpu.mid / 3600


def test_every_row_states_an_interval_with_source_and_date():
    text = files("planner").joinpath("data/achieved.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert {row["named"] for row in rows} == {"nothing", "framework"}
    for row in rows:
        assert 0 < float(row["low"]) < float(row["mid"]) < float(row["high"]) < 2
        assert int(row["num_sources"]) >= 3
        assert row["source"]
        assert row["date"]


def test_every_named_kind_has_a_row_for_all_other_architectures():
    for named in ("nothing", "framework"):
        assert (
            sum(row.architectures == (achieved.ANY,) for row in achieved.shares() if row.named == named) == 1
        )


def test_a_run_of_ampere_that_names_nothing_takes_longer_than_its_steps_would():
    assert gpu_hours().mid / hours_of_steps() == pytest.approx(1 / 0.79, rel=0.05)


def test_blocks_of_the_time_before_flash_attention_ran_with_the_software_of_that_time():
    before = {"model": LINE["model"] | {"norm": "layer"}}
    assert gpu_hours(**before).mid / hours_of_steps(**before) == pytest.approx(1 / 0.72, rel=0.05)


def test_a_named_framework_leaves_only_the_layout_to_be_guessed():
    named = {"framework": "torchtitan 2025"}
    assert gpu_hours(**named).mid / hours_of_steps(**named) == pytest.approx(1 / 0.88, rel=0.05)


def test_a_framework_without_a_profile_counts_as_not_named():
    unknown = {"framework": "zig"}
    assert gpu_hours(**unknown).mid / hours_of_steps(**unknown) == pytest.approx(1 / 0.79, rel=0.05)


def test_a_run_that_says_how_it_is_laid_out_runs_as_predicted():
    laid_out = {"layout": {"sharding": "zero3"}, "micro_batch": 4}
    assert gpu_hours(**laid_out).mid / hours_of_steps(**laid_out) == pytest.approx(1.0, rel=0.03)


def test_later_generations_run_today_s_software():
    hopper = {"gpu": "H100-SXM-80GB"}
    assert gpu_hours(**hopper).mid / hours_of_steps(**hopper) == pytest.approx(1.0, rel=0.06)


def test_the_step_of_a_run_is_not_slowed():
    asked = api.estimate([parse_run(LINE)])[0]
    planned = api.estimate([parse_run(LINE).model_copy(update={"named": None})])[0]
    assert asked.speed == planned.speed
    assert asked.whole.gpu_hours.mid > planned.whole.gpu_hours.mid


def test_the_answer_says_what_share_of_the_speed_it_counts_with():
    said = api.estimate([parse_run(LINE)])[0].warnings
    assert any("neither framework nor layout is named, so at 79 % of the speed" in each for each in said)


def test_a_run_of_one_s_own_on_the_same_gpu_says_it_better():
    measured = LINE | {"layout": {"sharding": "zero3"}, "micro_batch": 4}
    line = json.dumps(measured | {"measured": {"tokens_per_s_per_gpu": 12_000}})
    known = known_with([figure.residual for figure in own_figures([line])])
    answer = api.estimate([parse_run(LINE)], known=known)[0]
    assert not any("of the speed that is shown" in each for each in answer.warnings)


def test_a_band_is_never_narrower_than_that_of_the_step_nor_than_that_of_the_share():
    share = achieved.Share("nothing", (achieved.ANY,), achieved.ANY, 0.5, 0.8, 1.0, 9, 99)
    narrow = achieved.slowed(Band(low=0.99, mid=1.0, high=1.01), share)
    wide = achieved.slowed(Band(low=0.2, mid=1.0, high=5.0), share)
    assert (narrow.low, narrow.mid, narrow.high) == pytest.approx((1.0, 1.25, 2.0))
    assert (wide.low, wide.mid, wide.high) == pytest.approx((0.25, 1.25, 6.25))
