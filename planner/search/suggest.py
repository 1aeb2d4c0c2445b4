"""Which GPUs, how many, laid out how, for how long, at what cost: the answer to one question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner import units
from planner.results import Candidate, SkippedProvider, Suggestion
from planner.search.candidates import candidates
from planner.search.field import field
from planner.search.market import SMALL_MACHINE_GPUS, SMALL_MACHINE_NODES
from planner.search.misses import nearest_to_fitting
from planner.search.nothing_fits import rescues
from planner.search.on_demand import on_demand
from planner.search.question import Outcome, Question, outcome
from planner.search.ranking import distinct_choices, ranked
from planner.search.rejections import fitting, rejections
from planner.search.search import SLOW_LINK_SHARE
from planner.search.verdicts import OVER
from planner.trust import nearness
from planner.trust.features import features
from planner.types import Offer

MOST_MISSES = 5


def suggest(
    question: Question, offers: Sequence[Offer], skipped: Sequence[SkippedProvider] = (), top: int = 5
) -> Suggestion:
    """Answer a question from offers: the ranked choices, and what became of everything else.

    Pure: the same input gives the same answer. ``offers`` may hold more than the goal allows: a rescue looks
    beyond it. Raises ``UserError`` for what cannot be asked.
    """
    of = outcome(question, offers)
    if of.num_offers == 0:
        return _answer(of, (), offers, skipped, ())
    if of.fits:
        chosen = candidates(of, distinct_choices(of, ranked(of, OVER), top))
        return _answer(of, chosen, offers, skipped, ())
    nearest = nearest_to_fitting(of, MOST_MISSES)
    return _answer(of, nearest, offers, skipped, rescues(of, offers))


def _answer(
    of: Outcome,
    chosen: tuple[Candidate, ...],
    offers: Sequence[Offer],
    skipped: Sequence[SkippedProvider],
    lines: tuple[str, ...],
) -> Suggestion:
    """Put the answer together."""
    return Suggestion.model_construct(
        schema_version=1,
        model=of.question.model,
        training=of.training,
        goal=of.question.goal,
        assumptions=(*of.assumptions, *_assumptions(of), *_corrected(of, chosen)),
        candidates=chosen,
        rejections=rejections(of, offers) if of.num_offers else (),
        rescues=lines,
        skipped_providers=tuple(skipped),
        num_offers=of.num_offers,
        num_layouts=of.found.num_layouts,
        layouts_by_family=of.found.by_family,
        num_fitting=fitting(of),
        field=field(of) if of.num_offers else (),
        on_demand=on_demand(chosen, offers),
    )


def _assumptions(of: Outcome) -> list[str]:
    """Say what bounds the search by default and may change the answer."""
    goal = of.question.goal
    said = []
    if len(of.found.variants) > 1 and np.any(of.found.picks.variant > 0):
        said.append("8-bit optimizer states where adamw leaves too little memory")
    if not goal.allow_slow_link:
        said.append(f"no layout that waits for links over {units.percent(SLOW_LINK_SHARE)} of the step")
    small = any(o.gpus_per_node <= SMALL_MACHINE_GPUS for o in of.market.offers)
    if small and goal.max_gpus > SMALL_MACHINE_NODES:
        said.append(f"machines of one or two GPUs in up to {SMALL_MACHINE_NODES} nodes")
    if goal.stage == "production":
        said.append("production: no GPU without ECC for over a day, no spot without checkpoints")
    return said


def _corrected(of: Outcome, chosen: tuple[Candidate, ...]) -> list[str]:
    """Say how far the user's own runs move the figures of the first choice."""
    said = nearness.correction(features(chosen[0].run), of.question.known) if chosen else None
    return [] if said is None else [f"#1 is {said}"]
