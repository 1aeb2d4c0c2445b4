"""The table that ``plan accuracy`` prints is what the scorer finds."""

import pytest
from make_accuracy import KEYS, rows

from planner.cli.accuracy import table

STALE = "run tests/accuracy/make_accuracy.py again"


def test_the_shipped_table_is_what_the_scorer_finds():
    shipped = {(r.quantity, r.by, r.name): r for r in table()}
    found = {(r["quantity"], r["by"], r["name"]): r for r in rows()}
    assert set(shipped) == set(found), STALE
    for key, row in found.items():
        if key[1] == "all":
            assert shipped[key].num_runs == row["num_runs"], STALE
            assert shipped[key].macro_median == pytest.approx(float(row["macro_median"]), abs=0.005), STALE
            assert shipped[key].p90 == pytest.approx(float(row["p90"]), abs=0.02), STALE


def test_good_and_bad_rows_alike_are_shipped():
    assert {r.by for r in table()} == set(KEYS)
    assert {r.quantity for r in table()} == {"memory", "time"}
