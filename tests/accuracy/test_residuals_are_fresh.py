"""The shipped residuals are those of today's estimator."""

import count_fitted
import make_residuals
import pytest

from planner.trust import accuracy
from planner.trust.residuals import from_csv, shipped_rows

STALE = "stale: run PYTHONPATH=.:tests/accuracy python tests/accuracy/make_residuals.py"


def test_shipped_residuals_are_what_the_estimator_gives_today():
    today, shipped = from_csv(make_residuals.text()), shipped_rows()
    assert len(today) == len(shipped), STALE
    for now, then in zip(today, shipped, strict=True):
        assert now.features == then.features, STALE
        assert now.log_ratio == pytest.approx(then.log_ratio, abs=2e-4), STALE


def test_the_count_of_fitted_constants_is_what_the_files_hold():
    for row in accuracy.fitted():
        assert row.where
        assert row.fitted_on
        assert row.num > 0
        if count_fitted.is_counted(row.where):
            assert row.num == count_fitted.counted(row.where), f"{row.name}: {STALE}"
