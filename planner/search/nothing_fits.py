"""Nothing fits: what the money buys, and what would make it fit. Every line was tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from planner import units
from planner.model.count import count_params
from planner.model.shapes import LEAST_PARAMS
from planner.search.candidates import offer_of
from planner.search.question import Outcome, lost
from planner.search.ranking import best_verdict, ranked
from planner.search.rejections import machine
from planner.search.rescue import SHAPE_RULE, count_flag, saving
from planner.search.verdicts import OVER, REASONS
from planner.types import Offer

FLAG_WIDTH = 30
# Shares of what the limit allows in proportion: the first that works. Set-up and probe do not shrink.
SAFETY = (0.97, 0.85, 0.7, 0.5)
PROMISING_OFFERS = 12

Proposal = tuple[list[str], Sequence[Offer], int | None]


def rescues(of: Outcome, offers: Sequence[Offer]) -> tuple[str, ...]:
    """Lines that begin with flags and say what they lead to. ``flags_of`` takes the flags back out."""
    lines = []
    for flags, among, num_nodes in _proposals(of, offers):
        found = saving(of.question, flags, among, num_nodes, raise_limits=flags == [""])
        if found is not None:
            lines.append(f"{found[0]:<{FLAG_WIDTH}}  {_leads_to(found[1])}")
    return tuple(dict.fromkeys(lines))


def flags_of(line: str) -> str:
    """Take the flags from the beginning of a line of ``rescues``."""
    return line.split("  ")[0]


def _leads_to(of: Outcome) -> str:
    """Say what a search found: its best row, its verdict first."""
    row = int(ranked(of, OVER)[0])
    offer = offer_of(of, of.judged, row)
    nodes = int(of.market.num_nodes[of.judged.listing[row]])
    usd, hours = of.judged.cost.usd.at(row), of.judged.cost.hours.at(row)
    return f"{best_verdict(of)}: {machine(offer, nodes)}, {units.usd_band(usd)}, {units.hours_band(hours)}"


def _proposals(of: Outcome, offers: Sequence[Offer]) -> Iterator[Proposal]:
    """List alternatives to try, the offers to try them on, and the node count where it is fixed."""
    row = _cheapest(of)
    if row is not None:
        offer, nodes = offer_of(of, of.judged, row), int(of.market.num_nodes[of.judged.listing[row]])
        for flags in _less_work(of, row):
            yield flags, [offer], nodes
        yield [""], [offer], nodes
    yield from _wider(of, offers)


def _cheapest(of: Outcome) -> int | None:
    """Row that only budget or deadline break, least over them; ``None`` where there is none."""
    rows = ranked(of, OVER + 1)
    wanted = [REASONS.index("budget"), REASONS.index("deadline")]
    chosen = rows[np.isin(of.judged.reason[rows], wanted)]
    return int(chosen[0]) if len(chosen) else None


def _share_allowed(of: Outcome, row: int) -> float:
    """Share of the work that budget and deadline allow on this row, at the high end."""
    costs, goal = of.judged.cost, of.question.goal
    share = 1.0
    if goal.budget_usd is not None:
        share = min(share, float(goal.budget_usd) / float(costs.usd.high[row]))
    if goal.deadline_s is not None:
        share = min(share, goal.deadline_s / 3600.0 / float(costs.hours.high[row]))
    return share


def _less_work(of: Outcome, row: int) -> Iterator[list[str]]:
    """Fewer tokens; where tokens follow from the size, a smaller model (work grows as its square)."""
    shares = [_share_allowed(of, row) * part for part in SAFETY]
    tokens = [(of.training.num_tokens or 0.0) * share for share in shares]
    yield [f"--tokens {count_flag(t)}" for t in tokens if t >= (of.training.global_batch_tokens or 0)]
    model = of.question.model
    if model.source == SHAPE_RULE and of.question.training.num_tokens is None:
        params = [count_params(model).total * math.sqrt(share) for share in shares]
        yield [f"--params {count_flag(p)}" for p in params if p >= LEAST_PARAMS]


def _wider(of: Outcome, offers: Sequence[Offer]) -> Iterator[Proposal]:
    """Look beyond the market, providers, regions, GPUs, number of GPUs and links that were asked for."""
    goal, method = of.question.goal, of.question.training.method
    if goal.market == "on-demand":
        yield ["--market any"], offers, None
    if goal.providers:
        yield ["--provider any"], offers, None
    if goal.regions:
        yield ["--region any"], offers, None
    if goal.gpus:
        yield ["--gpu any"], offers, None
    if goal.max_gpus < 64 or goal.deadline_s is not None:
        yield [f"--max-gpus {max(64, goal.max_gpus * 4)}"], _promising(of), None
    if "link" in lost(of)[1]:
        yield ["--allow-slow-link"], _promising(of), None
    if method in ("full", "lora"):
        yield ["--method lora", "--method qlora"][method == "lora" :], _promising(of), None


def _promising(of: Outcome) -> tuple[Offer, ...]:
    """Offers that came nearest, to try a flag on: what they show holds with all others too."""
    rows = ranked(of, OVER + 1)
    positions = dict.fromkeys(int(of.market.offer[of.judged.listing[row]]) for row in rows)
    chosen = [of.market.offers[i] for i in list(positions)[:PROMISING_OFFERS]]
    return tuple(chosen) or of.market.offers
