"""Pages about money: ``rent-vs-buy`` and ``spot``."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from planner import units
from planner.cost import interval_s, offer_columns
from planner.cost.lines import Cost, cost_lines
from planner.cost.tables import interruptions_per_hour
from planner.guide.pages import Columns, Line, Page, Subject, grid, page
from planner.guide.variants import both
from planner.ownership import HOURS_A_MONTH, MONTHS_A_YEAR, OwnedMachine, defaults, ownership
from planner.search.candidates import work_of_run
from planner.types import Offer

_USES = (50, 100, 200, 365, 730)


def cheapest(offers: Sequence[Offer], gpu_id: str, spot: bool, per_node: int | None = None) -> Offer | None:
    """Cheapest offer of a GPU by the price of one, on demand or spot, of nodes with ``per_node`` GPUs."""
    fitting = [
        o
        for o in offers
        if o.gpu == gpu_id
        and o.usd_per_hour is not None
        and o.market == ("spot" if spot else "on-demand")
        and per_node in (None, o.gpus_per_node)
    ]
    return min(
        fitting, key=lambda o: ((o.usd_per_hour or Decimal(0)) / o.gpus_per_node, o.provider), default=None
    )


def _name(offer: Offer | None) -> str:
    return "no price known" if offer is None else f"{offer.provider} {offer.instance_type}, {offer.region}"


def _each(offer: Offer) -> float:
    """USD an hour of one GPU."""
    return float(offer.usd_per_hour or 0) / offer.gpus_per_node


def rent_vs_buy(subject: Subject) -> Page:
    """What a GPU may cost, by hours of use a month, before renting it is cheaper."""
    card = subject.gpu
    offer = cheapest(subject.offers, card.id, spot=False)
    load = float(ownership(OwnedMachine(gpu=card.id)).load_usd_per_hour)
    months = float(defaults()["lifetime_years"]) * MONTHS_A_YEAR
    lines = []
    for hours in _USES:
        rented = None if offer is None else _each(offer) * hours
        worth = None if offer is None else max(0.0, _each(offer) - load) * hours * months
        lines.append(
            Line(
                label=f"{hours} h",
                figures=(hours / float(HOURS_A_MONTH), rented, load * hours, worth),
            )
        )
    years = f"{defaults()['lifetime_years']} years of life"
    columns: Columns = (("USE", "share"), ("RENT", "usd"), ("ELECTRICITY", "usd"), ("BREAK-EVEN", "usd"))
    return page(
        "rent-vs-buy",
        (grid("HOURS A MONTH", f"one {card.id} and its share of the machine, {years}", columns, lines),),
        {
            "gpu": card.id,
            "gpus": str(subject.answer.run.shape.num_gpus),
            "offer": _name(offer),
            "rent": units.UNKNOWN if offer is None else units.usd_per_hour(_each(offer)),
            "load": units.usd_per_hour(load),
        },
    )


def spot(subject: Subject) -> Page:
    """Hours and cost of the run on the cheapest on-demand and on the cheapest spot offer of its GPU."""
    run, gpus = subject.answer.run, subject.answer.run.shape.num_gpus
    per_node = run.shape.gpus_per_node
    offers = [cheapest(subject.offers, run.shape.gpu, is_spot, per_node) for is_spot in (False, True)]
    columns: Columns = (
        ("A GPU", "usd/h"),
        ("TAKEN AWAY", "count"),
        ("DONE AGAIN", "share"),
        ("TIME", "h"),
        ("COST", "usd"),
    )
    pairs = zip(("on demand", "spot"), offers, strict=True)
    lines = [_market_line(subject, name, offer) for name, offer in pairs]
    spot_offer = offers[1]
    rate_columns: Columns = (("HOURS BETWEEN, A NODE", "h"), ("TAKEN IN THE RUN", "count"))
    return page(
        "spot",
        (
            grid("MARKET", f"{gpus}× {run.shape.gpu}", columns, lines),
            grid("RATE", "80 % band of interruptions", rate_columns, _rates(subject, spot_offer)),
        ),
        {"interval": units.UNKNOWN if spot_offer is None else _interval(subject, spot_offer)},
    )


def _cost(subject: Subject, offer: Offer | None) -> Cost | None:
    """Cost of the whole run; ``None`` where no price or no number of tokens is known."""
    if offer is None or subject.answer.run.training.num_tokens is None:
        return None
    return cost_lines(both(subject.answer)[1].step_s, work_of_run(subject.answer.run), offer)


def _market_line(subject: Subject, name: str, offer: Offer | None) -> Line:
    cost = _cost(subject, offer)
    if offer is None or cost is None:
        return Line(label=name, figures=(None,) * 5, note=_name(offer))
    nodes = subject.answer.run.shape.num_nodes
    taken = interruptions_per_hour(offer).mid * nodes * cost.hours.mid
    usd = None if cost.usd is None else cost.usd.mid
    figures = (_each(offer), taken, _redo_share(cost), cost.hours.mid, usd)
    return Line(label=name, figures=figures, note=_name(offer))


def _rates(subject: Subject, offer: Offer | None) -> list[Line]:
    """How long a node stays on average, and how often one of all is taken while the run lasts."""
    cost = _cost(subject, offer)
    if offer is None or cost is None:
        return []
    nodes, rate = subject.answer.run.shape.num_nodes, interruptions_per_hour(offer)
    ends = (("low", rate.low), ("mid", rate.mid), ("high", rate.high))
    return [
        Line(label=name, figures=(1 / each, each * nodes * cost.hours.mid)) for name, each in ends if each
    ]


def _interval(subject: Subject, offer: Offer) -> str:
    """Best time between checkpoints."""
    step_s, work = both(subject.answer)[1].step_s.mid, work_of_run(subject.answer.run)
    return units.duration(float(interval_s(np.asarray(step_s), work, offer_columns([offer]))))


def _redo_share(cost: Cost) -> float:
    """Share of the node-hours in which work is done again."""
    hours = {line.name: line.quantity or 0.0 for line in cost.lines if line.unit == "node-hour"}
    return hours["work done again"] / sum(hours.values())
