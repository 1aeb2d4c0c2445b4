"""80 % intervals hold about 80 % of measured runs of sources that they have not seen, in each class too.

Each run is judged twice: as predicted with the shipped constants, some of which its source was among those
that were fitted to, and with the constants refitted without it. A new run lies between the two.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pytest

from planner.hardware.gpus import gpu
from planner.trust import nearness
from planner.trust.accuracy import layout, scale
from planner.trust.residuals import Residual, shipped_rows

SIZEABLE = 30
CLASSES: dict[str, Callable[[Residual], str]] = {
    "GPU": lambda row: row.features.gpu,
    "GPU class": lambda row: gpu(row.features.gpu).gpu_class,
    "kind": lambda row: row.features.method,
    "figure": lambda row: row.quantity,
    "layout": lambda row: layout(row.features),
    "scale": lambda row: scale(row.features),
}


@dataclass(frozen=True)
class Held:
    """A figure, whether its band holds it as shipped and left out, and the band's width (logarithm)."""

    row: Residual
    sides: tuple[bool, bool]
    width: float


@lru_cache(maxsize=2)
def held(quantity: str) -> list[Held]:
    """Each figure with a band that has not seen its source."""
    found = []
    mine = [row for row in shipped_rows() if (row.quantity == "step") == (quantity == "step")]
    for source in sorted({row.source for row in mine}):
        known = nearness.residuals([row for row in shipped_rows() if row.source != source])
        for kind in sorted({row.quantity for row in mine}):
            rows = [row for row in mine if row.source == source and row.quantity == kind]
            if rows:
                found += list(judged(rows, nearness.spreads(kind, [row.features for row in rows], known)))
    return found


def judged(rows: list[Residual], around: nearness.Spreads) -> Iterator[Held]:
    for row, low, high in zip(rows, around.low, around.high, strict=True):
        shipped, outside = (low <= math.exp(ratio) <= high for ratio in (row.log_ratio, row.left_out))
        yield Held(row, (bool(shipped), bool(outside)), math.log(high / low))


def share(members: Sequence[Held]) -> float:
    return sum(sum(each.sides) for each in members) / 2 / len(members)


def sides(quantity: str) -> tuple[float, float]:
    """Share that is held as shipped, and with constants refitted without the source."""
    found = [each.sides for each in held(quantity)]
    return tuple(sum(side[i] for side in found) / len(found) for i in (0, 1))


def classes(quantity: str) -> dict[tuple[str, str], list[Held]]:
    """Members of every class with enough runs."""
    found: dict[tuple[str, str], list[Held]] = {}
    for title, key in CLASSES.items():
        for each in held(quantity):
            found.setdefault((title, key(each.row)), []).append(each)
    return {name: inside for name, inside in sorted(found.items()) if len(inside) >= SIZEABLE}


def extremes(quantity: str) -> tuple[float, float]:
    """Least and largest share that is held in a class."""
    shares = [share(inside) for inside in classes(quantity).values()]
    return min(shares), max(shares)


@pytest.mark.parametrize("quantity", ["memory", "step"])
def test_four_of_five_figures_lie_in_bands_that_have_not_seen_their_source(quantity):
    found = held(quantity)
    print(f"\n{quantity}: {share(found):.0%} of {len(found)} held")
    assert 0.77 <= share(found) <= 0.86


# A class may be mostly runs of one or two sources, which are off together or not at all: left out, they are
# held or missed as one. Of 35 runs one is 3 %: the aim is 75 to 88 %, the floor leaves room for that.
@pytest.mark.parametrize("quantity", ["memory", "step"])
def test_bands_hold_in_every_class_with_enough_runs(quantity):
    wrong = []
    for (title, name), inside in classes(quantity).items():
        sources = len({each.row.source for each in inside})
        middle = sorted(each.width for each in inside)[len(inside) // 2]
        head = f"  {title} {name}: {share(inside):.0%} of {len(inside)}"
        print(f"{head}, {sources} sources, width {middle:.2f}")
        if not 0.75 <= share(inside) <= 0.88:
            wrong.append((title, name, round(share(inside), 3)))
    print(f"outside 75 to 88 %: {wrong}")
    assert all(0.72 <= part <= 0.91 for _, _, part in wrong)
    assert len(wrong) <= 3
