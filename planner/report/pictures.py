"""What the pictures of a report show: cost against time, memory per GPU, the budget, the burn-down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from planner import spend
from planner.launched import Launch
from planner.probed import Check
from planner.report.nouns import BudgetPart, BurnPoint, MemoryBar, PartName, Placed, Prediction
from planner.results import Candidate, Dot, Plan
from planner.search.field import name_of
from planner.types import Band, Goal

MOST_BARS = 5
BURN_POINTS = 12
_HEADROOM = Goal().headroom
_PART_OF_LINE: dict[str, PartName] = {
    "compute": "price x hours",
    "writing checkpoints": "price x hours",
    "work done again": "price x hours",
    "head node, on demand": "price x hours",
    "set-up": "probe and set-up",
    "probe": "probe and set-up",
}


def budget_parts(chosen: Candidate) -> tuple[BudgetPart, ...]:
    """Split the cost of a plan: what is sure, what the band adds, what is small, what nobody knows.

    The parts that are known, without the spread, add up to the middle of the cost.
    """
    sums: dict[PartName, float] = {"price x hours": 0.0, "probe and set-up": 0.0, "storage and traffic": 0.0}
    unknown = []
    for line in chosen.cost_lines:
        if line.usd is None:
            unknown.append(line.name)
        else:
            sums[_PART_OF_LINE.get(line.name, "storage and traffic")] += line.usd.mid
    spread = chosen.cost_usd.high - chosen.cost_usd.mid
    return (
        *(BudgetPart(name=name, usd=usd) for name, usd in sums.items()),
        BudgetPart(name="spread of time and price", usd=spread, note="to the upper end of the band"),
        *([BudgetPart(name="unknown", usd=None, note=", ".join(unknown))] if unknown else []),
    )


def with_front(dots: Sequence[Dot], subject: Plan | None) -> tuple[Placed, ...]:
    """Mark the dots that no other beats in both time and cost, and the subject's own."""
    marked = []
    least = float("inf")
    for dot in sorted(dots, key=lambda d: (d.hours, d.usd)):
        is_front = dot.verdict != "over" and dot.usd < least
        least = min(least, dot.usd) if dot.verdict != "over" else least
        is_subject = _is(dot, subject)
        marked.append(Placed(**dot.model_dump(), on_front=is_front, is_subject=is_subject))
    return tuple(marked)


def _is(dot: Dot, subject: Plan | None) -> bool:
    """Whether a dot is the subject: the same time and cost."""
    if subject is None:
        return False
    chosen = subject.candidate
    return _near(dot.hours, chosen.hours.mid) and _near(dot.usd, chosen.cost_usd.mid)


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def dots_of(plans: Sequence[Plan]) -> tuple[Dot, ...]:
    """Dots of saved plans, where the whole field of a suggestion was not kept."""
    return tuple(
        Dot(
            hours=p.candidate.hours.mid,
            usd=p.candidate.cost_usd.mid,
            name=name_of(p.candidate.offer, p.candidate.num_nodes),
            verdict=p.candidate.verdict,
            reason=p.candidate.why,
        )
        for p in plans
        if p.candidate.offer.usd_per_hour is not None
    )


def memory_bars(plans: Sequence[Plan], launches: Sequence[Launch]) -> tuple[MemoryBar, ...]:
    """Memory of the first plans, with the peak that a probe measured where there was one."""
    return tuple(_memory_bar(plan, launches) for plan in plans[:MOST_BARS])


def _memory_bar(plan: Plan, launches: Sequence[Launch]) -> MemoryBar:
    memory = plan.candidate.memory
    usable = memory.usable_bytes
    measured = [
        c.measured
        for launch in launches
        if launch.plan_id == plan.id and launch.verdict is not None
        for c in launch.verdict.checks
        if is_memory(c) and c.measured is not None
    ]
    return MemoryBar(
        plan_id=plan.id,
        name=name_of(plan.candidate.offer, plan.candidate.num_nodes),
        parts_bytes=memory.parts_bytes,
        device_bytes=memory.device_bytes,
        limit_bytes=None if usable is None else usable * (1 - _HEADROOM),
        usable_bytes=usable,
        measured_bytes=max(measured, default=None),
    )


def is_memory(check: Check) -> bool:
    """Whether a check of a probe is of peak memory."""
    return check.name.startswith("peak memory")


def burn(launches: Sequence[Launch], plans: dict[str, Plan], now: datetime) -> tuple[BurnPoint, ...]:
    """Spent against foreseen, a few moments of each launch."""
    return tuple(point for launch in launches for point in _burn_of(launch, plans.get(launch.plan_id), now))


def _burn_of(launch: Launch, plan: Plan | None, now: datetime) -> Iterator[BurnPoint]:
    begun, ended = lifetime(launch, now)
    if begun is None or plan is None or not spend.spent(launch, ended).usd:
        return  # nothing was spent, or nothing that is spent has a price
    predicted = plan.candidate.cost_usd.mid
    lasting_h = max(plan.candidate.hours.mid, 1e-9)
    for i in range(BURN_POINTS + 1):
        at = begun + (ended - begun) * i / BURN_POINTS
        passed_h = (at - begun) / timedelta(hours=1)
        yield BurnPoint(
            launch_id=launch.id,
            at=at,
            spent_usd=float(spend.spent(launch, at).usd),
            predicted_usd=predicted * min(1.0, passed_h / lasting_h),
        )


def lifetime(launch: Launch, now: datetime) -> tuple[datetime | None, datetime]:
    """When machines were first asked for (``None``: never), and when they were gone, or now."""
    begun = next((t.at for t in launch.transitions if t.state == "creating"), None)
    gone = next((t.at for t in reversed(launch.transitions) if t.state == "gone"), None)
    return begun, gone or now


def predictions(launches: Sequence[Launch]) -> tuple[Prediction, ...]:
    """Every figure of the probes that was both predicted and measured."""
    return tuple(
        Prediction(
            launch_id=launch.id,
            name=c.name,
            unit=c.unit,
            predicted=c.predicted,
            measured=c.measured,
            error=c.measured / c.predicted.mid - 1,
        )
        for launch in launches
        if launch.verdict is not None
        for c in launch.verdict.checks
        if c.predicted is not None and c.measured is not None and c.predicted.mid > 0
    )


def later(band: Band, spent_usd: float) -> Band:
    """Bound a forecast from below by what is spent already."""
    return Band(low=max(band.low, spent_usd), mid=max(band.mid, spent_usd), high=max(band.high, spent_usd))
