"""80 % intervals hold about 80 % of measured runs of sources that they have not seen, in each class too.

Each run is judged twice: as predicted with the shipped constants, some of which its source was among those
that were fitted to, and with the constants refitted without it. A new run lies between the two.
"""

import math
from collections.abc import Callable, Iterator
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


@lru_cache(maxsize=2)
def held(quantity: str) -> list[tuple[Residual, float, float]]:
    """Each figure, how far its band holds it (1, ½ or 0), and the band's width: its source left out."""
    found = []
    mine = [row for row in shipped_rows() if (row.quantity == "step") == (quantity == "step")]
    for source in sorted({row.source for row in mine}):
        known = nearness.residuals([row for row in shipped_rows() if row.source != source])
        for kind in sorted({row.quantity for row in mine}):
            rows = [row for row in mine if row.source == source and row.quantity == kind]
            if rows:
                found += list(judged(rows, nearness.spreads(kind, [row.features for row in rows], known)))
    return found


def judged(rows: list[Residual], around: nearness.Spreads) -> Iterator[tuple[Residual, float, float]]:
    for row, low, high in zip(rows, around.low, around.high, strict=True):
        parts = [low <= math.exp(ratio) <= high for ratio in (row.log_ratio, row.left_out)]
        yield row, sum(map(float, parts)) / 2, math.log(high / low)


def share(members: list[tuple[Residual, float, float]]) -> float:
    return sum(part for _, part, _ in members) / len(members)


@pytest.mark.parametrize("quantity", ["memory", "step"])
def test_four_of_five_figures_lie_in_bands_that_have_not_seen_their_source(quantity):
    found = held(quantity)
    print(f"\n{quantity}: {share(found):.0%} of {len(found)} held")
    assert 0.77 <= share(found) <= 0.86


# A class may be mostly runs of one or two sources, which are off together or not at all: left out, they are
# held or missed as one.
@pytest.mark.parametrize("quantity", ["memory", "step"])
def test_bands_hold_in_every_class_with_enough_runs(quantity):
    wrong = []
    for title, key in CLASSES.items():
        members: dict[str, list[tuple[Residual, float, float]]] = {}
        for each in held(quantity):
            members.setdefault(key(each[0]), []).append(each)
        for name, inside in sorted(members.items()):
            if len(inside) >= SIZEABLE:
                sources = len({row.source for row, _, _ in inside})
                middle = sorted(width for _, _, width in inside)[len(inside) // 2]
                head = f"  {title} {name}: {share(inside):.0%} of {len(inside)}"
                print(f"{head}, {sources} sources, width {middle:.2f}")
                if not 0.75 <= share(inside) <= 0.88:
                    wrong.append((title, name, round(share(inside), 3)))
    print(f"outside 75 to 88 %: {wrong}")
    assert not wrong
