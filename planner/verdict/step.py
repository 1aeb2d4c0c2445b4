"""Checks of the plan's own step: parameters, memory, time, loss, precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean, median

from planner.probed import Check, Depth, MeasuredSteps, ProbeResult, RankMemory
from planner.results import Estimate
from planner.types import Band
from planner.verdict import cpu, words
from planner.verdict.limits import limit, loss_bound, upper
from planner.verdict.subject import Subject, num_params

_ENDS = 3  # losses of the first and of the last steps whose means are compared


def parameters(subject: Subject, result: ProbeResult) -> Iterator[Check]:
    """The real model has as many parameters as the plan was reckoned with."""
    if subject.own_loop and result.num_params is None:
        return
    if result.num_params is None:
        yield words.not_measured("parameters", "count", result, "memory")
        return
    expected = num_params(subject.run, result.num_layers)
    yield Check(
        name="parameters",
        predicted=Band(low=expected, mid=expected, high=expected),
        measured=float(result.num_params),
        limit=float(expected),
        unit="count",
        passed=result.num_params == expected,
        why=scaled(subject, result),
    )


def scaled(subject: Subject, result: ProbeResult) -> str:
    """Say that fewer layers ran, empty where all did."""
    whole = subject.run.model.num_layers
    if result.num_layers == whole:
        return ""
    return f"{result.num_layers} of {whole} layers ran: compared with the prediction for those"


# ------------------------------------------------------------------------------------ memory


def memory(subject: Subject, part: Estimate, result: ProbeResult) -> Iterator[Check]:
    """Peak memory of the fullest rank against prediction and safe limit; retries and OOMs."""
    if not result.memory:
        yield words.not_measured("peak memory reserved", "bytes", result, "memory")
        return
    yield _reserved(subject, part, result)
    if any(rank.allocated_bytes is not None for rank in result.memory):
        yield _allocated(part, result)
    yield from _whole_model(subject, result)
    if not subject.on_cpu:
        yield _count("alloc retries", [r.num_alloc_retries for r in result.memory], limit("alloc_retries"))
        yield _count("OOMs", [r.num_ooms for r in result.memory], limit("ooms"))


def fullest(ranks: tuple[RankMemory, ...]) -> RankMemory | None:
    """Rank that reserved most; ``None`` where a rank says nothing."""
    if not ranks or any(rank.reserved_bytes is None for rank in ranks):
        return None
    return max(ranks, key=lambda rank: rank.reserved_bytes or 0.0)


def safe_bytes(subject: Subject) -> float | None:
    """Memory that a rank may reserve: what the GPU has, less the headroom; ``None`` on a CPU."""
    predicted = subject.predicted.memory
    usable = None if predicted is None else predicted.usable_bytes
    return None if usable is None else usable * (1.0 - subject.headroom)


def _reserved(subject: Subject, part: Estimate, result: ProbeResult) -> Check:
    """The lesser of the stretched prediction and the safe limit bounds what may be reserved."""
    rank = fullest(result.memory)
    if rank is None or rank.reserved_bytes is None:
        return words.not_measured("peak memory reserved", "bytes", result, "memory")
    predicted = None if part.memory is None else part.memory.reserved_bytes
    safe = safe_bytes(subject)
    bounds = [b for b in (None if predicted is None else upper(predicted), safe) if b is not None]
    most = min(bounds) if bounds else None
    said = [f"rank {rank.rank}", scaled(subject, result)]
    if most is not None and rank.reserved_bytes > most:
        said.append("over the safe limit" if most == safe else "more than was predicted")
    return Check(
        name="peak memory reserved",
        predicted=predicted,
        measured=rank.reserved_bytes,
        limit=most,
        unit="bytes",
        passed=most is not None and rank.reserved_bytes <= most,
        why=", ".join(each for each in said if each),
    )


def _allocated(part: Estimate, result: ProbeResult) -> Check:
    """What torch handed out: shown."""
    measured = max(rank.allocated_bytes or 0.0 for rank in result.memory)
    return Check(
        name="peak memory allocated",
        predicted=None if part.memory is None else part.memory.allocated_bytes,
        measured=measured,
        limit=None,
        unit="bytes",
        passed=None,
    )


def _count(name: str, counts: list[int | None], most: float) -> Check:
    """A count over all ranks that must not be above ``most``; a rank that says nothing fails it."""
    known = [count for count in counts if count is not None]
    complete = len(known) == len(counts)
    ranks = ", ".join(f"rank {i}: {count}" for i, count in enumerate(counts) if count)
    return Check(
        name=name,
        predicted=Band(low=0.0, mid=0.0, high=0.0),
        measured=float(sum(known)) if complete else None,
        limit=most,
        unit="count",
        passed=complete and sum(known) <= most,
        why=ranks if complete else "not measured: a rank does not say",
    )


def _whole_model(subject: Subject, result: ProbeResult) -> Iterator[Check]:
    """Peak of the whole model from two depths, where only a part of the layers ran."""
    if result.num_layers == subject.run.model.num_layers:
        return
    found = extrapolated(subject, result.depths)
    if found is None:
        return
    peak, said = found
    predicted = subject.predicted.memory
    band = None if predicted is None else predicted.reserved_bytes
    bounds = [b for b in (None if band is None else upper(band), safe_bytes(subject)) if b is not None]
    yield Check(
        name="peak memory, whole model",
        predicted=band,
        measured=peak,
        limit=min(bounds) if bounds else None,
        unit="bytes",
        passed=peak <= min(bounds) if bounds else None,
        why=f"extrapolated: {said}",
    )


def extrapolated(subject: Subject, depths: tuple[Depth, ...]) -> tuple[float, str] | None:
    """Peak of the whole model, bytes, from the deepest two runs; ``None`` where there are no two.

    peak(L) = peak(b) + (L - b) (peak(b) - peak(a)) / (b - a): every layer adds the same.
    """
    known = []
    for depth in sorted(depths, key=lambda each: each.num_layers)[-2:]:
        rank = fullest(depth.memory)
        if rank is not None and rank.reserved_bytes is not None:
            known.append((depth.num_layers, rank.reserved_bytes))
    if len(known) < 2 or known[0][0] == known[1][0]:
        return None
    (a, at_a), (b, at_b) = known
    slope = (at_b - at_a) / (b - a)
    whole = subject.run.model.num_layers
    return at_b + (whole - b) * slope, f"{a} and {b} of {whole} layers ran"


# ------------------------------------------------------------------------------------ time and loss


def time(subject: Subject, part: Estimate, result: ProbeResult) -> Iterator[Check]:
    """Seconds of a step against the prediction; the slowest rank against the median one."""
    steps = result.steps
    if steps is None or not steps.seconds:
        yield words.not_measured("step time", "s", result, "steps")
        return
    yield _step_time(subject, part, steps, scaled(subject, result))
    if len(steps.median_s_by_rank) > 1:
        yield _slowest_rank(steps, result)
    yield _loss(steps)


def _step_time(subject: Subject, part: Estimate, steps: MeasuredSteps, said: str) -> Check:
    measured = median(steps.seconds)
    predicted = None if part.speed is None or subject.on_cpu else part.speed.step_s
    most = None if predicted is None else upper(predicted)
    return Check(
        name="step time",
        predicted=predicted,
        measured=measured,
        limit=most,
        unit="s",
        passed=None if most is None else measured <= most,
        why=cpu.NO_SPEED if predicted is None else said,
    )


def slowest_rank(steps: MeasuredSteps) -> tuple[int, float]:
    """Rank that takes longest by itself, else in a step, and how long that is against the median rank."""
    each = steps.layer_s_by_rank or steps.median_s_by_rank
    rank = max(range(len(each)), key=lambda i: each[i])
    return rank, each[rank] / median(each)


def _slowest_rank(steps: MeasuredSteps, result: ProbeResult) -> Check:
    rank, ratio = slowest_rank(steps)
    return Check(
        name="slowest rank / median",
        predicted=Band(low=1.0, mid=1.0, high=1.0),
        measured=ratio,
        limit=limit("slowest_rank"),
        unit="ratio",
        passed=ratio <= limit("slowest_rank"),
        why=words.rank_at(result, rank),
    )


def _loss(steps: MeasuredSteps) -> Check:
    """The loss is finite and falls: the mean of the last steps is below that of the first."""
    losses = steps.loss
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        return Check(
            name="loss falls",
            predicted=None,
            measured=None,
            limit=None,
            unit="loss",
            passed=False,
            why="not finite" if losses else "not measured: no loss came back",
        )
    count = min(_ENDS, len(losses) // 2)
    first, last = fmean(losses[:count]), fmean(losses[-count:])
    return Check(
        name="loss falls",
        predicted=None,
        measured=last,
        limit=first,
        unit="loss",
        passed=last < first,
        why=f"mean of the last {count} steps; limit: of the first {count}" if count > 1 else "",
    )


def precision(subject: Subject, result: ProbeResult) -> Iterator[Check]:
    """Losses in the plan's precision stay within its roundoff of those in fp32."""
    found = result.precision
    bound = loss_bound(subject.run.training.precision)
    if found is None or bound is None:
        if subject.check_precision:
            name = f"loss in {subject.run.training.precision} against fp32"
            yield words.not_measured(name, "share", result, "steps")
        return
    pairs = list(zip(found.loss, found.loss_fp32, strict=False))
    whole = len(pairs) > 0 and len(found.loss) == len(found.loss_fp32)
    apart = max((abs(a - b) / abs(b) for a, b in pairs if b), default=None) if whole else None
    yield Check(
        name=f"loss in {found.precision} against fp32",
        predicted=None,
        measured=apart,
        limit=bound,
        unit="share",
        passed=apart is not None and apart <= bound,
        why="" if apart is not None else "not measured: the two runs have no steps in common",
    )
