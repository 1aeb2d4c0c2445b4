"""Peak memory against measured runs: floors that fail when accuracy falls. Run with -s for the tables."""

import answering
import pytest
import scoring


@pytest.fixture(scope="module")
def errors():
    return answering.memory_errors()


def test_peak_memory_is_close_to_what_was_measured(errors):
    score = scoring.score(errors)
    print(f"\n{score}")
    print(scoring.table(errors, lambda case: case.group, "source"))
    assert score.macro_median <= 0.08
    assert score.p90 <= 0.25
    assert score.low_share <= 0.08


def test_most_runs_that_ran_out_of_memory_are_called_so():
    runs = [(c, e) for c, e in answering.answers("memory").answered if c.measured.get("oom")]
    missed = [case.id for case, estimate in runs if estimate.memory.fits]
    print(f"\n{len(missed)} of {len(runs)} missed: {missed}")
    assert len(missed) <= 2


def test_few_runs_that_fitted_are_called_unfit():
    runs = [(c, e) for c, e in answering.answers("memory").answered if not c.measured.get("oom")]
    unfit = [case.id for case, estimate in runs if not estimate.memory.fits]
    print(f"\n{len(unfit)} of {len(runs)} called unfit: {unfit}")
    assert len(unfit) <= 0.05 * len(runs)
