"""Measured runs through ``planner.api``: what is answered, what is refused and why, and the errors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import scoring

from planner import api
from planner.errors import UserError
from planner.results import Estimate
from planner.runs import parse_line
from planner.trust import nearness

# Where a source does not say which memory it measured, what its framework's page usually reads off.
UNSAID_MEMORY_KIND = "reserved"


@dataclass(frozen=True)
class Answers:
    """Cases with their estimates, and how often each reason of refusal was given."""

    answered: list[tuple[scoring.Case, Estimate]]
    refused: Counter[str]

    @property
    def share(self) -> float:
        return len(self.answered) / (len(self.answered) + self.refused.total())


@lru_cache(maxsize=4)
def answers(name: str, formulas_only: bool = False) -> Answers:
    """Every case of a file, estimated in one batch; ``formulas_only``: without any measured run."""
    parsed, refused = [], Counter()
    for case in scoring.cases(name):
        try:
            parsed.append((case, parse_line(case.line)))
        except UserError as error:
            refused[str(error)] += 1
    answered = []
    estimates = api.estimate_each(
        [request for _, request in parsed], known=nearness.none() if formulas_only else None
    )
    for (case, _), estimate in zip(parsed, estimates, strict=True):
        if isinstance(estimate, UserError):
            refused[str(estimate)] += 1
        else:
            answered.append((case, estimate))
    return Answers(answered, refused)


def memory_errors() -> list[scoring.Error]:
    """Peak memory, of the kind that the source measured, where it gives a figure."""
    return [
        scoring.Error(case, memory_gib(case, estimate), case.measured["peak_memory_gib"])
        for case, estimate in answers("memory").answered
        if case.measured.get("peak_memory_gib")
    ]


def memory_gib(case: scoring.Case, estimate: Estimate) -> float:
    kind = case.measured.get("memory_kind", UNSAID_MEMORY_KIND)
    return getattr(estimate.memory, f"{kind}_bytes").mid / scoring.GIB


def time_errors() -> list[scoring.Error]:
    """Tokens per second and GPU, where the source gives a figure."""
    return [
        scoring.Error(case, estimate.speed.tokens_per_s_per_gpu.mid, case.measured["tokens_per_s_per_gpu"])
        for case, estimate in answers("throughput").answered
        if case.measured.get("tokens_per_s_per_gpu")
    ]
