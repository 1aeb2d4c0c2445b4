"""What people reach whose software or layout nobody names, for sources that the shares were not made of."""

import csv
import math
from statistics import mean, median

import make_achieved
import pytest

GOOD = 1.5


def test_the_shipped_shares_are_those_of_today():
    with make_achieved.FILE.open(encoding="utf-8") as file:
        shipped = list(csv.DictReader(file))
    for row, today in zip(shipped, make_achieved.rows(), strict=True):
        assert [row[name] for name in make_achieved.HEAD[:3]] == [
            today[name] for name in make_achieved.HEAD[:3]
        ]
        for name in ("low", "mid", "high"):
            assert float(row[name]) == pytest.approx(float(today[name]), rel=0.1)


def left_out(named: str) -> dict[str, list[tuple[float, float]]]:
    """Of each source: shares as they are, and corrected by the middle of the other sources."""
    rows, found = make_achieved.reached(named), {}
    for source in sorted({row.source for row in rows}):
        others = [row for row in rows if row.source != source]
        middles = {
            generation: make_achieved.middle([row for row in others if row.generation == generation])
            for generation in {row.generation for row in others}
        }
        mine = [row for row in rows if row.source == source and row.generation in middles]
        found[source] = [(row.share, row.share / middles[row.generation]) for row in mine]
    return found


@pytest.mark.parametrize(("named", "gain"), [("nothing", 0.05), ("framework", 0.03)])
def test_a_source_that_was_left_out_is_predicted_better_with_the_share_of_the_others(named, gain):
    of_source = left_out(named)
    before, after = (
        mean(mean(1 / GOOD <= pair[i] <= GOOD for pair in pairs) for pairs in of_source.values())
        for i in (0, 1)
    )
    errors = [
        mean(median(abs(math.log(pair[i])) for pair in pairs) for pairs in of_source.values()) for i in (0, 1)
    ]
    print(f"\n{named}: within x{GOOD} {before:.0%} before, {after:.0%} after", end="; ")
    print(f"|log| {errors[0]:.2f}, {errors[1]:.2f}")
    assert after > before + gain
    assert errors[1] < errors[0]
