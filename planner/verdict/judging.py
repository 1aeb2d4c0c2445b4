"""The verdict: every check of what was asked for, what is likely wrong, what would fit, what it costs now."""

from __future__ import annotations

from collections.abc import Iterator

from planner.probed import Check, ProbePhase, ProbeResult, ProbeVerdict, Repriced
from planner.results import Estimate
from planner.trust.nearness import Residuals
from planner.verdict import machine, pricing, step, words
from planner.verdict.advice import advice
from planner.verdict.causes import likely_cause
from planner.verdict.subject import Subject, predicted_part


def judge(subject: Subject, result: ProbeResult, known: Residuals | None = None) -> ProbeVerdict:
    """Hold a result against what was planned.

    It passes where no check failed. What could not be measured has failed, with its reason; what nothing is
    predicted of (time on a CPU) is shown. ``known``: the measured runs that predictions rest on.
    """
    part = predicted_part(subject, result, known)
    forecast = pricing.repriced(subject, part, result)
    checks = (*_failures(result), *_checks(subject, part, result, forecast))
    failed = any(check.passed is False for check in checks) or not checks
    return ProbeVerdict(
        verdict="fail" if failed else "pass",
        checks=checks,
        repriced=forecast,
        likely_cause=likely_cause(result, checks),
        advice=advice(subject, part, result, checks, known),
    )


def _failures(result: ProbeResult) -> Iterator[Check]:
    """What ended a phase early, one line each."""
    for failure in result.failures:
        yield Check(
            name=words.phase_of(failure),
            predicted=None,
            measured=None,
            limit=None,
            unit="",
            passed=False,
            why=words.of_failure(failure),
        )


def _checks(
    subject: Subject, part: Estimate, result: ProbeResult, forecast: Repriced | None
) -> Iterator[Check]:
    asked: tuple[ProbePhase, ...] = subject.phases
    if "hardware" in asked:
        yield from machine.hardware(subject, result)
    if "collectives" in asked:
        yield from machine.collectives(subject, result)
    if "memory" in asked or "steps" in asked:
        yield from step.parameters(subject, result)
    if "memory" in asked:
        yield from step.memory(subject, part, result)
    if "steps" in asked:
        yield from step.time(subject, part, result)
        yield from step.precision(subject, result)
        yield from pricing.checks(subject, forecast)
