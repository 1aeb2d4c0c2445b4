"""Every measured run is answered, or refused in words; run with -s for the reasons."""

import answering
import pytest


@pytest.mark.parametrize("name", ["memory", "throughput"])
def test_at_least_95_percent_of_measured_runs_are_answered(name):
    found = answering.answers(name)
    print(f"\n{name}: {len(found.answered)} answered, {found.refused.total()} refused")
    for reason, count in found.refused.most_common():
        print(f"  {count:3d}  {reason}")
    assert found.share >= 0.95
    assert all(len(reason) > 15 for reason in found.refused)


@pytest.mark.parametrize("name", ["memory", "throughput"])
def test_an_answer_has_memory_and_speed(name):
    for _, estimate in answering.answers(name).answered:
        assert estimate.memory is not None
        assert estimate.speed is not None
