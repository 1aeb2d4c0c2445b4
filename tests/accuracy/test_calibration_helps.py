"""One measured run of one's own machine helps: a source is left out and plays the user."""

from dataclasses import replace

import numpy as np
import pytest

from planner.trust import nearness
from planner.trust.accuracy import FEWEST_RUNS
from planner.trust.residuals import OWN, Residual, shipped_rows

NEAR = 0.3  # weight of the user's run from which another counts as one of the same machine


def errors(source: str, quantity: str) -> tuple[list[float], list[float]]:
    """Median |error| of the source's other runs near each one, before and after calibrating with that one."""
    others = [row for row in shipped_rows() if row.source != source]
    mine = [
        row
        for row in shipped_rows()
        if row.source == source and (row.quantity == "step") == (quantity == "step")
    ]
    before, after = [], []
    for one in mine if len(mine) >= FEWEST_RUNS else ():
        known = nearness.residuals([*others, replace(one, source=OWN)])
        near = [row for row in mine if row is not one and alike(one, row)]
        if near:
            middle = np.concatenate(
                [nearness.spreads(row.quantity, [row.features], known).middle for row in near]
            )
            ratio = np.exp([row.log_ratio for row in near])
            before.append(float(np.median(np.abs(1 / ratio - 1))))
            after.append(float(np.median(np.abs(middle / ratio - 1))))
    return before, after


def alike(one: Residual, other: Residual) -> bool:
    """Whether both ran on the same machine in much the same way."""
    a, b = one.features, other.features
    same = all(
        getattr(a, name) == getattr(b, name)
        for name in ("gpu", "method", "precision", "framework", "zero_stage", "tp", "pp", "cp", "ep", "moe")
    )
    return (
        same and abs(np.log2(a.micro_tokens / b.micro_tokens)) <= 1 and abs(np.log2(a.params / b.params)) <= 1
    )


def test_one_run_of_torchtitan_predicts_the_speed_of_its_others_better():
    before, after = errors("pytorch/torchtitan", "step")
    print(f"\n{np.mean(before):.1%} before, {np.mean(after):.1%} after, {len(before)} runs in turn")
    assert np.mean(after) < 0.95 * np.mean(before)


@pytest.mark.parametrize(("quantity", "most_worse"), [("memory", 0.002), ("step", 0.006)])
def test_over_all_sources_one_run_helps_or_at_least_does_no_harm(quantity, most_worse):
    means = []
    for source in sorted({row.source for row in shipped_rows()}):
        before, after = errors(source, quantity)
        if before:
            means.append((np.mean(before), np.mean(after)))
            print(f"  {source:44} {means[-1][0]:6.1%} {means[-1][1]:6.1%}")
    before_mean, after_mean = np.mean(means, axis=0)
    print(f"{quantity}: {before_mean:.2%} before, {after_mean:.2%} after")
    assert after_mean <= before_mean + most_worse
