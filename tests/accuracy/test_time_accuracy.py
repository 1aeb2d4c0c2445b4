"""Tokens per second and GPU against measured runs: floors that fail when accuracy falls."""

import answering
import pytest
import scoring


@pytest.fixture(scope="module")
def errors():
    return answering.time_errors()


def test_speed_is_close_to_what_was_measured(errors):
    score = scoring.score(errors)
    print(f"\n{score}")
    for title, key in (
        ("source", lambda case: case.group),
        ("GPU", lambda case: case.description["gpu"]),
        ("precision", lambda case: str(case.description.get("precision"))),
    ):
        print(scoring.table(errors, key, title))
    assert score.macro_median <= 0.12
    assert score.p90 <= 0.40
