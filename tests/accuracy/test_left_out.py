"""Accuracy with each source left out and the fitted constants refitted on the others (``left_out.csv``)."""

import csv
import datetime

import knobs
import leave_one_out
import numpy as np
import pytest

STALE = "stale: run PYTHONPATH=.:tests/accuracy python tests/accuracy/leave_one_out.py"
# Small sources, so that the test is quick: their figures are refitted here.
REFITTED = {"memory": "hpcaitech/ColossalAI", "time": "pytorch/torchtune"}


@pytest.fixture(scope="module")
def rows():
    with leave_one_out.FILE.open(encoding="utf-8") as file:
        return {(row["group"], row["key"]): row for row in csv.DictReader(file)}


@pytest.fixture(scope="module", params=["memory", "time"])
def problem(request):
    return request.param, leave_one_out.problem(request.param)


@pytest.mark.parametrize("key", [("all", "all"), ("set", "handed")], ids=lambda key: key[1])
def test_memory_of_sources_that_no_constant_has_seen(rows, key):
    row = rows[key]
    assert float(row["memory_macro"]) <= 0.08
    assert float(row["memory_p90"]) <= 0.25
    assert float(row["memory_low"]) <= 0.08
    assert int(row["oom_missed"]) <= 2
    assert int(row["unfit"]) <= 0.05 * int(row["fitting_runs"])


@pytest.mark.parametrize("key", [("all", "all"), ("set", "handed")], ids=lambda key: key[1])
def test_speed_of_sources_that_no_constant_has_seen(rows, key):
    assert float(rows[key]["time_macro"]) <= 0.125
    assert float(rows[key]["time_p90"]) <= 0.40


def test_every_class_of_runs_has_its_row(rows):
    assert {group for group, _ in rows} == {"all", "set", *leave_one_out.BY}
    assert all(datetime.date.fromisoformat(row["date"]) for row in rows.values())


def test_the_stored_figures_are_of_todays_runs_and_formulas(rows, problem):
    quantity, of = problem
    stated = ~np.isnan(of.log_measured)
    assert int(rows["all", "all"][f"{quantity}_runs"]) == stated.sum(), STALE
    own = (of.source == REFITTED[quantity]) & stated
    leave_one_out.fitted(of, stated & ~own)
    error = np.expm1(of.predict()[0] - of.log_measured)[own]
    for knob in of.knobs:
        knob.restore()
    stored = float(rows["source", REFITTED[quantity]][f"{quantity}_median"])
    assert np.median(np.abs(error)) == pytest.approx(stored, abs=0.005), STALE


def test_a_knob_that_was_turned_goes_back(problem):
    _, of = problem
    before = of.predict()[0].copy()
    for knob in of.knobs:
        knob.turn(1.0)
    assert np.any(of.predict()[0] != before)
    for knob in of.knobs:
        knob.restore()
    assert np.array_equal(of.predict()[0], before)


def test_a_share_stays_a_share():
    column, rows_ = np.array([0.5, 0.7]), np.array([True, False])
    knob = knobs.share_of("a share", column, rows_, 0.9)
    knob.turn(5.0)
    assert column.tolist() == [1.0, 0.7]
    knob.restore()
    assert column.tolist() == [0.5, 0.7]
