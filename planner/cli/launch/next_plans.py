"""What may stand in for a plan whose machines cannot be had: other regions, then its suggest's others."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from planner.cli import store
from planner.results import Candidate, CostLine, Plan
from planner.search.candidates import candidate_id
from planner.types import Offer
from providers import registry

_NODE_HOUR = "node-hour"


def next_plans(plan: Plan) -> Iterator[Plan]:
    """Plans to try next, cheapest region first; each with its own price."""
    yield from _other_regions(plan)
    yield from _of_same_suggest(plan)


def _other_regions(plan: Plan) -> Iterator[Plan]:
    """The same machines in the other regions of the provider."""
    mine = plan.candidate.offer
    if mine.provider not in registry.provider_names():
        return
    same = [
        o
        for o in registry.offers([mine.provider]).offers
        if (o.instance_type, o.market) == (mine.instance_type, mine.market)
        and (o.gpu, o.gpus_per_node, o.links) == (mine.gpu, mine.gpus_per_node, mine.links)
        and o.region != mine.region
        and o.usd_per_hour is not None
    ]
    for offer in sorted(same, key=lambda o: (o.usd_per_hour or Decimal(0), o.region)):
        yield moved(plan, offer)


def _of_same_suggest(plan: Plan) -> Iterator[Plan]:
    """What the same suggest showed and does not lose, in its order."""
    others = [p for p in store.all_plans() if p.command == plan.command and p.id != plan.id]
    fits = [p for p in others if p.candidate.verdict != "over"]
    yield from sorted(fits, key=lambda p: (p.candidate.rank, p.id))


def moved(plan: Plan, offer: Offer) -> Plan:
    """The plan on the same machine elsewhere: what is paid by the node hour follows the price there."""
    old, c = plan.candidate.offer, plan.candidate
    if old.usd_per_hour is None or offer.usd_per_hour is None or not old.usd_per_hour:
        return plan
    factor = float(offer.usd_per_hour / old.usd_per_hour)
    lines = tuple(_line(line, factor, offer.usd_per_hour) for line in c.cost_lines)
    before, after = (sum(x.usd.mid for x in of if x.usd is not None) for of in (c.cost_lines, lines))
    candidate = Candidate.model_validate(
        {
            **dict(c),
            "id": candidate_id(offer, c.run),
            "offer": offer,
            "cost_usd": c.cost_usd.times(after / before if before else factor),
            "cost_lines": lines,
        }
    )
    return plan.model_copy(update={"id": candidate.id, "candidate": candidate})


def _line(line: CostLine, factor: float, usd: Decimal) -> CostLine:
    if line.unit != _NODE_HOUR:
        return line
    return line.model_copy(
        update={"usd_per_unit": usd, "usd": None if line.usd is None else line.usd.times(factor)}
    )
