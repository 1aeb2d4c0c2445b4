"""A question and what a search makes of it: every offer at every node count, judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner import legality
from planner.checks import check_training
from planner.errors import UserError
from planner.grouping import Index
from planner.model import check_model
from planner.search import market, search, verdicts
from planner.search.market import Listings
from planner.search.state import NO_LAYOUT, TOO_BIG, TOO_BIG_FOR_HOST, TOO_BIG_TO_LOAD, Found
from planner.search.verdicts import REASONS, Judged
from planner.training.defaults import batch_rule, complete_training
from planner.trust import nearness
from planner.trust.nearness import Residuals
from planner.types import Goal, Layout, LayoutPins, ModelSpec, Offer, TrainingSpec

WHY = {
    NO_LAYOUT: "illegal",
    TOO_BIG: "memory",
    TOO_BIG_TO_LOAD: "load",
    TOO_BIG_FOR_HOST: "host-memory",
}


@dataclass(frozen=True, slots=True)
class Question:
    """What the user asks: a model, a training, bounds, and the parts of a layout that are fixed.

    The optimizer is free (its 8-bit form is tried where memory is short) unless the training sets it.
    """

    model: ModelSpec
    training: TrainingSpec
    goal: Goal
    pins: LayoutPins
    known: Residuals = field(default_factory=nearness.shipped)  # measured runs that bands rest on

    @property
    def free_optimizer(self) -> bool:
        """Whether the user left the optimizer to us."""
        return "optimizer" not in self.training.model_fields_set


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judged rows of a question. ``best``: the best row of each listing that has one."""

    question: Question
    training: TrainingSpec
    assumptions: tuple[str, ...]
    market: Listings
    found: Found
    judged: Judged
    best: Index
    unsupported: dict[str, str]
    num_unsupported: int
    num_offers: int

    @property
    def fits(self) -> bool:
        """Whether any listing is ok or tight."""
        return bool(np.any(self.judged.verdict[self.best] < verdicts.OVER))


def outcome(question: Question, offers: Sequence[Offer], num_nodes: int | None = None) -> Outcome:
    """Search, join with the offers, judge. ``num_nodes`` fixes the node count.

    Raises ``UserError`` for what cannot be asked: unknown names, pinned degrees that no layout can have.
    """
    check_model(question.model)
    check_training(question.model, question.training)
    goal, pins = question.goal, question.pins
    training, assumptions = complete_training(question.model, question.training)
    _check_pins(question.model, training, pins)
    chosen = market.considered(offers, goal)
    unsupported = market.unsupported(chosen, training)
    able = tuple(o for o in chosen if o.gpu not in unsupported)
    listings = market.listings(able, goal, num_nodes)
    found = search.search(
        question.model,
        training,
        batch_rule(question.training, training),
        pins,
        listings.shapes,
        goal.headroom,
        free_optimizer=question.free_optimizer,
        allow_slow_link=goal.allow_slow_link,
        known=question.known,
    )
    everything = np.arange(len(listings.offer))
    judged = verdicts.judge(question.model, training, goal, listings, found.picks, everything, question.known)
    return Outcome(
        question=question,
        training=training,
        assumptions=assumptions,
        market=listings,
        found=found,
        judged=judged,
        best=verdicts.best_of_listing(judged, goal),
        unsupported=unsupported,
        num_unsupported=_num_listings([o for o in chosen if o.gpu in unsupported], goal),
        num_offers=len(chosen),
    )


def _num_listings(offers: Sequence[Offer], goal: Goal) -> int:
    """Count offers x node counts."""
    return sum(len(market.node_counts(o.gpus_per_node, goal.max_gpus, o.max_nodes)) for o in offers)


def _check_pins(model: ModelSpec, training: TrainingSpec, pins: LayoutPins) -> None:
    """Refuse degrees that this model cannot have on any machine, with the reason."""
    degrees = {
        name: value
        for name in ("tp", "pp", "cp", "ep", "etp", "zero_stage", "interleave", "offload")
        if (value := getattr(pins, name)) is not None
    }
    if pins.offload == "params+optimizer" and pins.zero_stage is None:
        degrees["zero_stage"] = 3  # the only stage that offloads parameters
    layout = Layout().model_copy(update=degrees)
    enough = max(1, (pins.ep or 1) * (pins.etp or 1))
    reason = legality.degrees_reason(
        model, training, layout.model_copy(update={"dp": pins.dp or enough}), pins.grad_accum
    )
    if reason:
        raise UserError(f"{reason} ({model.name})", "leave that degree out and the search picks a legal one")


# ---------------------------------------------------------------------------------- what became of a listing


def lost(of: Outcome) -> tuple[Index, NDArray[np.str_]]:
    """Collect the listings that lost, and the reason of each."""
    rows = of.best[of.judged.verdict[of.best] == verdicts.OVER]
    without = np.setdiff1d(np.arange(len(of.market.offer)), of.judged.listing)
    names = [REASONS[r] for r in of.judged.reason[rows]]
    names += [_why_nothing(of, int(of.market.shape[listing])) for listing in without]
    return np.concatenate([of.judged.listing[rows], without]), np.array(names, dtype="U16")


def _why_nothing(of: Outcome, shape: int) -> str:
    """Why a shape has no layout at all."""
    why = WHY[int(of.found.misses.why[shape])]
    if why == "illegal" and (of.question.pins.tp or 1) > search.tensor_reach(of.market.shapes[shape]):
        return "link"
    return why
