"""The rest of the run, priced again from the measured step."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median, quantiles

from planner.cost.lines import cost_lines, whole_run
from planner.probed import Check, MeasuredSteps, ProbeResult, Repriced
from planner.results import Estimate
from planner.search.candidates import work_of_run
from planner.types import Band
from planner.verdict.subject import Subject

HOUR_S = 3600.0


def repriced(subject: Subject, part: Estimate, result: ProbeResult) -> Repriced | None:
    """Hours and cost at the measured speed; ``None`` without steps, tokens to train on, or a prediction.

    Where less than the whole run's step was timed, the whole step is taken to be off by the same factor.
    """
    whole, ran = subject.predicted.speed, part.speed
    steps = result.steps
    if steps is None or not steps.seconds or subject.run.training.num_tokens is None or subject.own_loop:
        return None
    if whole is None or ran is None or subject.on_cpu:
        return None
    step_s = measured_step(steps).times(whole.step_s.mid / ran.step_s.mid)
    work = work_of_run(subject.run)
    if subject.offer is None:
        hours = whole_run(step_s, work, None).hours
        return Repriced(hours=hours, cost_usd=None, budget_usd=subject.budget_usd, within_budget=None)
    found = cost_lines(step_s, work, subject.offer)
    within = None
    if subject.budget_usd is not None and found.usd is not None:
        within = found.usd.mid <= float(subject.budget_usd)
    return Repriced(
        hours=found.hours, cost_usd=found.usd, budget_usd=subject.budget_usd, within_budget=within
    )


def measured_step(steps: MeasuredSteps) -> Band:
    """Seconds of the measured steps: first and last tenth around their median."""
    seconds = steps.seconds
    if len(seconds) < 2:
        return Band(low=seconds[0], mid=seconds[0], high=seconds[0])
    tenths = quantiles(seconds, n=10, method="inclusive")
    return Band(low=tenths[0], mid=median(seconds), high=tenths[-1])


def checks(subject: Subject, found: Repriced | None) -> Iterator[Check]:
    """The run keeps within budget and deadline at the measured speed."""
    if found is None:
        return
    predicted = _predicted(subject)
    if found.cost_usd is not None and subject.budget_usd is not None:
        yield Check(
            name="cost of the run",
            predicted=None if predicted is None else predicted.cost_usd,
            measured=found.cost_usd.mid,
            limit=float(subject.budget_usd),
            unit="USD",
            passed=found.cost_usd.mid <= float(subject.budget_usd),
        )
    if subject.deadline_s is not None:
        yield Check(
            name="time of the run",
            predicted=None if predicted is None else predicted.hours,
            measured=found.hours.mid,
            limit=subject.deadline_s / HOUR_S,
            unit="h",
            passed=found.hours.mid <= subject.deadline_s / HOUR_S,
        )


def _predicted(subject: Subject) -> Repriced | None:
    """Hours and cost as they were predicted."""
    speed, offer = subject.predicted.speed, subject.offer
    if speed is None or offer is None:
        return None
    found = cost_lines(speed.step_s, work_of_run(subject.run), offer)
    return Repriced(hours=found.hours, cost_usd=found.usd, budget_usd=None, within_budget=None)
