"""What comes nearest where nothing fits: candidates with verdict ``over``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner import answers
from planner.grouping import Index
from planner.hardware.gpus import gpu
from planner.layouts import layout_of
from planner.results import Candidate
from planner.search import verdicts
from planner.search.candidates import candidates
from planner.search.question import WHY, Outcome
from planner.search.ranking import distinct_choices, ranked
from planner.search.state import TIGHT, Picks
from planner.search.verdicts import OVER, REASONS
from planner.types import Run


def nearest_to_fitting(of: Outcome, most: int) -> tuple[Candidate, ...]:
    """Find the candidates that came nearest, at most ``most``.

    Those that only budget or deadline break; where there are none, those that a link, the host or the stage
    breaks; where no layout fits in memory at all, those that need least over what the GPU has.
    """
    rows = ranked(of, OVER + 1)
    reason = of.judged.reason[rows]
    priced = ~np.isnan(of.judged.cost.usd.mid[rows])
    for wanted in (("deadline", "budget"), ("stage", "link", "host-memory")):
        chosen = rows[priced & np.isin(reason, [REASONS.index(name) for name in wanted])]
        if len(chosen):
            return candidates(of, distinct_choices(of, chosen, most))
    return _too_big(of, most)


def _too_big(of: Outcome, most: int) -> tuple[Candidate, ...]:
    """Make candidates of the layouts that come nearest to fitting in memory."""
    shapes = _nearest_shapes(of, most)
    if len(shapes) == 0:
        return ()
    misses = of.found.misses
    runs = [
        Run.model_construct(
            id="nearest",
            model=of.question.model,
            training=of.found.variants[int(misses.variant[s])],
            layout=layout_of(misses.table, int(s)),
            shape=of.market.shapes[int(s)],
        )
        for s in shapes
    ]
    estimates = answers.evaluate(runs, of.question.known)
    layouts = [run.layout for run in runs]
    tokens = [x.dp * x.micro_batch * x.grad_accum * of.training.seq_len for x in layouts]
    picks = Picks(
        shape=shapes,
        table=misses.table[:, shapes],
        grade=np.full(len(shapes), TIGHT),
        variant=misses.variant[shapes],
        preference=np.zeros(len(shapes), dtype=np.int64),
        step_s=np.array([in_time.step_s.mid for _, in_time in estimates]),
        tokens_per_step=np.array(tokens, dtype=np.float64),
        host_bytes=np.array([in_memory.host_bytes for in_memory, _ in estimates]),
    )
    return _judged_over(of, picks, most)


def _nearest_shapes(of: Outcome, most: int) -> Index:
    """Shapes whose least layout is least over what the GPU has; the first few GPU models, the fewest GPUs."""
    shapes = of.market.shapes
    usable = np.array([gpu(s.gpu).usable_memory_bytes for s in shapes], dtype=np.float64)
    over = of.found.misses.device_bytes / usable if len(shapes) else np.empty(0)
    gpus = np.array([s.num_gpus for s in shapes])
    missed = np.isfinite(over) & (of.found.misses.why > 0)
    order = [int(i) for i in np.lexsort((np.arange(len(shapes)), gpus, over)) if missed[i]]
    seen: set[str] = set()
    chosen: list[int] = []
    for i in order:
        if shapes[i].gpu not in seen and len(chosen) < most:
            seen.add(shapes[i].gpu)
            chosen.append(i)
    return np.array(chosen, dtype=np.int64)


def _judged_over(of: Outcome, picks: Picks, most: int) -> tuple[Candidate, ...]:
    """Judge layouts that do not fit: verdict ``over``, the reason what they break."""
    listings = np.nonzero(np.isin(of.market.shape, picks.shape))[0]
    goal = of.question.goal
    judged = verdicts.judge(
        of.question.model, of.training, goal, of.market, picks, listings, of.question.known
    )
    why = [WHY[int(w)] for w in of.found.misses.why[of.market.shape[judged.listing]]]
    judged = replace(
        judged,
        verdict=np.full_like(judged.verdict, OVER),
        reason=np.array([REASONS.index(name) for name in why], dtype=np.int64),
    )
    best = verdicts.best_of_listing(judged, goal)
    priced = best[~np.isnan(judged.cost.usd.mid[best])]
    small = replace(of, found=replace(of.found, picks=picks), judged=judged, best=priced)
    return candidates(small, distinct_choices(small, ranked(small, OVER + 1), most))
