"""What moves the cost of a plan most: each cause at its low and at its high end, the others in the middle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner import answers, units
from planner.cost import evaluations, known_sum, offer_columns
from planner.cost.lines import spread_of
from planner.cost.tables import price_factor
from planner.report.nouns import Sensitivity
from planner.results import Candidate
from planner.search.candidates import price_run, work_of_run
from planner.types import Run

TOKENS_CHANGE = 0.1
_STEP, _DELAYS, _HAZARD, _PRICE = 1, 3, 5, 7  # where ``cost.evaluations`` keeps each pair


def sensitivity(chosen: Candidate) -> tuple[Sensitivity, ...]:
    """Causes in order of their effect; empty where the node has no price."""
    if chosen.offer.usd_per_hour is None:
        return ()
    found = [*_of_bands(chosen), *_of_tokens(chosen), *_of_micro_batch(chosen)]
    return tuple(sorted(found, key=lambda s: -abs(s.usd_at_high - s.usd_at_low)))


def _of_bands(chosen: Candidate) -> Iterator[Sensitivity]:
    """Causes that the cost band is made of: speed, price, interruptions, delays."""
    cases = evaluations(
        spread_of(chosen.speed.step_s), work_of_run(chosen.run), offer_columns([chosen.offer])
    )
    usd = [float(np.asarray(known_sum(parts)[0])) for _, parts in cases]
    step, factor = chosen.speed.step_s, price_factor(chosen.offer.market, chosen.offer.price_age_months)
    fast, slow = (units.percent(chosen.speed.mfu * step.mid / s) for s in (step.low, step.high))
    yield _pair("speed (MFU)", f"MFU {fast}", f"MFU {slow}", usd, _STEP)
    if factor > 1:
        cheaper, dearer = units.signed_percent(1 / factor - 1), units.signed_percent(factor - 1)
        yield _pair("price of the node", cheaper, dearer, usd, _PRICE)
    spot = chosen.offer.market == "spot"
    hazard = "spot interruptions and failures" if spot else "failures of machines"
    yield _pair(hazard, "few", "many", usd, _HAZARD)
    yield _pair("start-up, restarts, stalls, slow checkpoints", "short", "long", usd, _DELAYS)


def _pair(cause: str, low_says: str, high_says: str, usd: list[float], at: int) -> Sensitivity:
    return Sensitivity(
        cause=cause, low_says=low_says, high_says=high_says, usd_at_low=usd[at], usd_at_high=usd[at + 1]
    )


def _of_tokens(chosen: Candidate) -> Iterator[Sensitivity]:
    """Fewer and more tokens."""
    tokens = chosen.run.training.num_tokens
    if tokens is None:
        return
    usd = [_usd_with_tokens(chosen, tokens * factor) for factor in (1 - TOKENS_CHANGE, 1 + TOKENS_CHANGE)]
    if usd[0] is not None and usd[1] is not None:
        change = units.percent(TOKENS_CHANGE)
        yield Sensitivity(
            cause="tokens",
            low_says=f"−{change}",
            high_says=f"+{change}",
            usd_at_low=usd[0],
            usd_at_high=usd[1],
        )


def _usd_with_tokens(chosen: Candidate, tokens: float) -> float | None:
    run = chosen.run
    changed = run.model_copy(update={"training": run.training.model_copy(update={"num_tokens": tokens})})
    cost = price_run(changed, chosen.speed, chosen.offer).usd
    return None if cost is None else cost.mid


def _of_micro_batch(chosen: Candidate) -> Iterator[Sensitivity]:
    """Half and twice the micro-batch, with the same global batch, where that divides."""
    layout = chosen.run.layout
    if layout.micro_batch % 2 or layout.grad_accum % 2:
        return
    smaller = _with_batch(chosen.run, layout.micro_batch // 2, layout.grad_accum * 2)
    larger = _with_batch(chosen.run, layout.micro_batch * 2, layout.grad_accum // 2)
    estimates = answers.evaluate([smaller, larger])
    usd = [
        price_run(run, speed, chosen.offer).usd
        for run, (_, speed) in zip((smaller, larger), estimates, strict=True)
    ]
    if usd[0] is not None and usd[1] is not None:
        fits = "" if estimates[1][0].fits else ", does not fit"
        yield Sensitivity(
            cause="micro-batch",
            low_says=f"mbs {smaller.layout.micro_batch}",
            high_says=f"mbs {larger.layout.micro_batch}{fits}",
            usd_at_low=usd[0].mid,
            usd_at_high=usd[1].mid,
        )


def _with_batch(run: Run, micro_batch: int, grad_accum: int) -> Run:
    layout = run.layout.model_copy(update={"micro_batch": micro_batch, "grad_accum": grad_accum})
    return run.model_copy(update={"layout": layout})
