"""Which of the judged rows are shown: in order, and distinct, never ten variants of one choice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np

from planner.grouping import Index
from planner.search import verdicts
from planner.search.question import Outcome
from planner.search.verdicts import VERDICTS
from planner.types import Offer, Verdict

MOST_PER_GPU = 3


def ranked(of: Outcome, verdict_below: int) -> Index:
    """Best rows of the listings with a verdict below the given one, in order of rank."""
    rows = of.best[of.judged.verdict[of.best] < verdict_below]
    keys = [key[rows] for key in verdicts.order_keys(of.judged, of.question.goal)]
    return rows[np.lexsort((rows, *keys[::-1]))]


def best_verdict(of: Outcome) -> Verdict:
    """Verdict of the best row of an outcome that has one."""
    return VERDICTS[int(of.judged.verdict[ranked(of, verdicts.OVER + 1)[0]])]


def distinct_choices(of: Outcome, rows: Index, top: int) -> Index:
    """Pick at most ``top`` rows, in order.

    First the best of each (GPU, number of GPUs), few for one GPU; where that leaves room, further providers
    and markets, and then further numbers of GPUs.
    """
    facts = [_facts(of, int(row)) for row in rows]
    rules: list[tuple[Callable[[Offer, int], Hashable], int]] = [
        (lambda offer, gpus: (offer.gpu, gpus), MOST_PER_GPU),
        (lambda offer, gpus: (offer.gpu, gpus, offer.provider, offer.market), MOST_PER_GPU),
        (lambda offer, gpus: (offer.gpu, gpus, offer.provider, offer.market), top),
    ]
    chosen: list[int] = []
    for key, most in rules:
        _take(chosen, facts, key, most, top)
    return rows[np.array(sorted(chosen), dtype=np.int64)]


def _facts(of: Outcome, row: int) -> tuple[Offer, int]:
    """Offer and number of GPUs of a row."""
    listing = int(of.judged.listing[row])
    offer = of.market.offers[int(of.market.offer[listing])]
    return offer, offer.gpus_per_node * int(of.market.num_nodes[listing])


def _take(
    chosen: list[int],
    facts: list[tuple[Offer, int]],
    key: Callable[[Offer, int], Hashable],
    most_per_gpu: int,
    top: int,
) -> None:
    """Add to ``chosen`` the first position of each new key, up to a number for each GPU and in all."""
    seen = {key(*facts[i]) for i in chosen}
    per_gpu = _counts(facts[i][0].gpu for i in chosen)
    for i, (offer, gpus) in enumerate(facts):
        if len(chosen) >= top:
            return
        name = key(offer, gpus)
        if name in seen or i in chosen or per_gpu.get(offer.gpu, 0) >= most_per_gpu:
            continue
        seen.add(name)
        chosen.append(i)
        per_gpu[offer.gpu] = per_gpu.get(offer.gpu, 0) + 1


def _counts(names: Iterable[str]) -> dict[str, int]:
    """Count names."""
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return found
