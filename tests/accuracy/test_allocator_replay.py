"""Slack of samples that are not packed: what a replay of the allocator leaves, and what profiles say."""

from statistics import median

import allocator_replay
import pytest

from planner.memory import device
from planner.training import frameworks

MODELS = ((8, 4096, 11008, 151936), (8, 4096, 11008, 32000), (12, 768, 3072, 50257))
LIMITS, STEPS, SEEDS = (512, 2048, 4096), 120, range(3)


def middle_slack() -> float:
    draws = (allocator_replay.uniform, allocator_replay.skewed)
    return median(
        allocator_replay.slack(draw(limit, STEPS, seed), *model)
        for model in MODELS
        for limit in LIMITS
        for draw in draws
        for seed in SEEDS
    )


def test_equal_lengths_leave_little():
    assert all(allocator_replay.slack([2048] * 8, *model) < 0.5 for model in MODELS)


def test_the_profile_of_unpacked_samples_counts_what_random_lengths_leave():
    """The profile's factor on the slack of the logits, which are most of what comes and goes."""
    counted = frameworks.profile("ms-swift").memory.fragmentation * device.NATIVE_LOSS
    found = middle_slack()
    print(f"replay {found:.2f}, profile {counted:.2f} times what lives shortly")
    assert counted == pytest.approx(found, rel=0.15)
