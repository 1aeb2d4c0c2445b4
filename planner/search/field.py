"""The whole field of a suggestion: one dot for each offer at each number of nodes, won or lost."""

from __future__ import annotations

import numpy as np

from planner.results import Dot
from planner.search.question import Outcome
from planner.search.verdicts import REASONS
from planner.types import Offer, Verdict

_VERDICTS: tuple[Verdict, ...] = ("ok", "tight", "over")


def field(of: Outcome) -> tuple[Dot, ...]:
    """Time and cost of the best layout of every listing that has both; what has no price has no place."""
    judged = of.judged
    usd, hours = judged.cost.usd.mid, judged.cost.hours.mid
    rows = of.best[np.isfinite(usd[of.best]) & np.isfinite(hours[of.best]) & (usd[of.best] > 0)]
    return tuple(
        Dot.model_construct(
            hours=hour,
            usd=cost,
            name=name_of(of.market.offers[offer], nodes),
            verdict=_VERDICTS[verdict],
            reason="" if reason < 0 else REASONS[reason],
        )
        for hour, cost, offer, nodes, verdict, reason in zip(
            hours[rows].tolist(),
            usd[rows].tolist(),
            of.market.offer[judged.listing[rows]].tolist(),
            of.market.num_nodes[judged.listing[rows]].tolist(),
            judged.verdict[rows].tolist(),
            judged.reason[rows].tolist(),
            strict=True,
        )
    )


def name_of(offer: Offer, num_nodes: int) -> str:
    """Short name of a choice: ``8x L40S, aws g6e.48xlarge spot``."""
    market = "" if offer.market == "on-demand" else f" {offer.market}"
    return f"{offer.gpus_per_node * num_nodes}x {offer.gpu}, {offer.provider} {offer.instance_type}{market}"
