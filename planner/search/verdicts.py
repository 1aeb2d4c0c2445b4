"""Layouts x offers -> hours, cost and verdict, as columns: the rules of ``ok``, ``tight`` and ``over``.

``ok``: device memory's high end within what the GPU has, reserved memory within it less the headroom, the
high ends of cost and time within budget and deadline, host memory that is known where a checkpoint is loaded
or states are offloaded. ``tight``: only a high end, the headroom, or what nobody states of the host breaks.
Else the row lost, for the first of ``REASONS`` that it breaks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner import cost
from planner.columns import Array
from planner.cost import CostColumns, Spread, Work
from planner.grouping import Index, first_of, pairs
from planner.hardware.gpus import gpu
from planner.layouts import columns_of, layout_row
from planner.memory import states as memory_states
from planner.memory.host import loads_or_offloads
from planner.model import model_columns
from planner.search.market import Listings
from planner.search.state import OK as MEMORY_OK
from planner.search.state import SLOW_LINK, Picks
from planner.training.numerics import training_columns
from planner.trust import nearness
from planner.trust.features import table_features
from planner.trust.nearness import Residuals
from planner.types import Goal, Layout, ModelSpec, Offer, TrainingSpec, Verdict

REASONS = (
    "illegal",
    "memory",
    "load",
    "host-memory",
    "availability",
    "price",
    "link",
    "stage",
    "deadline",
    "budget",
)
OK, TIGHT, OVER = 0, 1, 2
VERDICTS: tuple[Verdict, ...] = ("ok", "tight", "over")
ECC_FROM_H = 24.0


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows of (listing, pick) with time, cost and verdict. ``reason``: index into ``REASONS``, or -1."""

    listing: Index
    pick: Index
    cost: CostColumns
    verdict: Index
    reason: Index
    grade: Index  # of memory and link, as ``search.state`` has it


def judge(
    model: ModelSpec,
    training: TrainingSpec,
    goal: Goal,
    market: Listings,
    picks: Picks,
    chosen: Index,
    known: Residuals,
) -> Judged:
    """Judge every pick on every listing of its shape. ``chosen``: the listings that count."""
    pick, at = pairs(picks.shape, market.shape[chosen])
    listing = chosen[at]
    step_s = _step_spread(model, training, market, picks, known)
    costs = _costs(model, training, market, picks, listing, pick, step_s)
    reason = _reasons(goal, market, picks, listing, pick, costs)
    strained = (picks.grade[pick] != MEMORY_OK) | _host_unknown(market, picks, listing, pick)
    if goal.budget_usd is not None:
        strained = strained | (costs.usd.high > float(goal.budget_usd))
    if goal.deadline_s is not None:
        strained = strained | (costs.hours.high * cost.HOUR_S > goal.deadline_s)
    verdict = np.where(reason >= 0, OVER, np.where(strained, TIGHT, OK))
    return Judged(listing, pick, costs, verdict, reason, picks.grade[pick])


def _step_spread(
    model: ModelSpec, training: TrainingSpec, market: Listings, picks: Picks, known: Residuals
) -> Spread:
    """Seconds of a step of each pick, with their band."""
    kinds, of = table_features(model, training, market.shapes, picks.table, picks.shape, figure="step")
    found = nearness.spreads("step", kinds, known)
    mid = picks.step_s
    return Spread(mid * (found.low / found.middle)[of], mid, mid * (found.high / found.middle)[of])


def _costs(
    model: ModelSpec,
    training: TrainingSpec,
    market: Listings,
    picks: Picks,
    listing: Index,
    pick: Index,
    step_s: Spread,
) -> CostColumns:
    """Hours and USD of each row."""
    shape = market.shape[listing]
    per_node = np.array([s.gpus_per_node for s in market.shapes], dtype=np.float64)[shape]
    num_steps = np.ceil((training.num_tokens or 0.0) / picks.tokens_per_step[pick])
    work = work_of(model, training, num_steps, market.num_nodes[listing].astype(np.float64), per_node)
    offers = cost.take_offers(cost.offer_columns(market.offers), market.offer[listing])
    return cost.cost_columns(Spread(step_s.low[pick], step_s.mid[pick], step_s.high[pick]), work, offers)


def work_of(
    model: ModelSpec, training: TrainingSpec, num_steps: Array, num_nodes: Array, gpus_per_node: Array
) -> Work:
    """Count what a run does, for its cost: steps, machines, bytes kept and moved."""
    trained = trained_params(model, training)
    return Work(
        num_steps=num_steps,
        num_nodes=num_nodes,
        gpus_per_node=gpus_per_node,
        checkpoint_bytes=np.asarray(cost.checkpoint_bytes(trained, training)),
        result_bytes=np.asarray(cost.result_bytes(trained)),
        data_bytes=np.asarray(cost.data_bytes(training.num_tokens or 0.0, model.vocab_size)),
    )


def trained_params(model: ModelSpec, training: TrainingSpec) -> float:
    """Parameters that the method updates: all, those of the layers that are not frozen, or the adapters'."""
    columns, how = model_columns([model]), training_columns([training])
    layout = columns_of(np.array(layout_row(Layout())))
    stage = memory_states.first_stage(columns, how, layout)
    params = memory_states.stage_params(columns, how, layout, stage)
    return float(params.dense + params.expert + params.root)


def _reasons(
    goal: Goal,
    market: Listings,
    picks: Picks,
    listing: Index,
    pick: Index,
    costs: CostColumns,
) -> Index:
    """First reason that each row is lost for, -1 where it is not."""
    of = market.offer[listing]
    hosts = _hosts(market)
    broken = {
        "host-memory": picks.host_bytes[pick] > hosts[of],
        "availability": np.array([o.available is False for o in market.offers], dtype=bool)[of],
        "price": np.isnan(costs.usd.mid),
        "link": picks.grade[pick] == SLOW_LINK,
        "stage": _stage_broken(goal, market, listing, costs),
        "deadline": costs.hours.mid * cost.HOUR_S > (np.inf if goal.deadline_s is None else goal.deadline_s),
        "budget": costs.usd.mid > (np.inf if goal.budget_usd is None else float(goal.budget_usd)),
    }
    reason = np.full(len(listing), -1)
    for name, is_broken in reversed(broken.items()):
        reason[is_broken] = REASONS.index(name)
    return reason


def _hosts(market: Listings) -> Array:
    """Bytes of host memory of each offer's node, NaN where nobody states it."""
    return np.array([o.host_memory_bytes or np.nan for o in market.offers], dtype=np.float64)


def _host_unknown(market: Listings, picks: Picks, listing: Index, pick: Index) -> NDArray[np.bool_]:
    """Whether a row loads or offloads into host memory that nobody states: an unknown is never ``ok``."""
    per_node = np.array([o.gpus_per_node for o in market.offers], dtype=np.float64)
    of = market.offer[listing]
    return np.isnan(_hosts(market)[of]) & loads_or_offloads(picks.host_bytes[pick], per_node[of])


def _stage_broken(goal: Goal, market: Listings, listing: Index, costs: CostColumns) -> NDArray[np.bool_]:
    """In production: GPUs without ECC for runs over a day, and spot where the run writes no checkpoints."""
    if goal.stage != "production":
        return np.zeros(len(listing), dtype=bool)
    of = market.offer[listing]
    no_ecc = np.array([not gpu(o.gpu).ecc for o in market.offers], dtype=bool)[of]
    broken: NDArray[np.bool_] = no_ecc & (costs.hours.mid > ECC_FROM_H)
    broken |= np.array([_is_bare_spot(goal, o) for o in market.offers], dtype=bool)[of]
    return broken


def _is_bare_spot(goal: Goal, offer: Offer) -> bool:
    """Whether an interruption would lose the whole run."""
    return offer.market == "spot" and not goal.checkpoints


def order_keys(judged: Judged, goal: Goal) -> tuple[Array, ...]:
    """Sort keys, most important first: verdict, then the high end of cost, then of time (or time first).

    What lost is sorted by how far it is over its limits.
    """
    usd = np.nan_to_num(judged.cost.usd.high, nan=np.inf)
    hours = judged.cost.hours.high
    first, second = (hours, usd) if goal.sort == "time" else (usd, hours)
    over = np.where(judged.verdict == OVER, times_over(usd, hours, goal), 1.0)
    return judged.verdict.astype(np.float64), over, first, second


def times_over(usd: Array, hours: Array, goal: Goal) -> Array:
    """High ends over their limits, the worse of the two; 1 where there is no limit."""
    over = np.ones_like(usd)
    if goal.budget_usd is not None:
        over = np.maximum(over, usd / float(goal.budget_usd))
    if goal.deadline_s is not None:
        over = np.maximum(over, hours * cost.HOUR_S / goal.deadline_s)
    return over


def best_of_listing(judged: Judged, goal: Goal) -> Index:
    """Best row of each listing; among lost ones, the one that got furthest, and then the safest in memory."""
    verdict, *rest = order_keys(judged, goal)
    grade = np.where(judged.verdict == OVER, judged.grade, 0)
    return first_of((judged.listing,), (verdict, -judged.reason, grade, *rest))
