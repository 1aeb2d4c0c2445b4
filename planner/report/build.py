"""Plans + launches + bills -> one ``Report``. Pure: the time is handed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from statistics import median

from planner import spend, units
from planner.hardware.gpus import gpu
from planner.launched import Launch
from planner.model.count import count_params
from planner.report import pictures
from planner.report.nouns import (
    Group,
    GroupBy,
    Provenance,
    Report,
    ReportRun,
    RunErrors,
    ShapeOf,
)
from planner.report.sensitivity import sensitivity
from planner.results import Candidate, Dot, Plan
from planner.types import Band, Record

_OVER = ("gone",)
_LONGEST = timedelta(days=36_500)


class Asked(Record):
    """What a report is to be about. ``plan_id``, ``project``: only these. ``subject``: of the pictures."""

    now: datetime
    tool_version: str
    since: datetime | None = None
    until: datetime | None = None
    plan_id: str | None = None
    project: str | None = None
    budget_usd: Decimal | None = None
    group_by: GroupBy | None = None


def report(asked: Asked, plans: Sequence[Plan], launches: Sequence[Launch], field: Sequence[Dot]) -> Report:
    """Make a report. ``plans``: saved ones, the most interesting first; ``field``: all of a suggestion.

    Launches come first; plans that were never launched are rows only where nothing was launched, or where
    the report is about that plan.
    """
    wanted = [launch for launch in launches if _wanted(launch, asked)]
    chosen = [launch for launch in wanted if launch.plan_json]
    without_plan = tuple(launch.id for launch in wanted if not launch.plan_json)
    by_id = {p.id: p for p in (*map(plan_of, chosen), *plans)}
    planned = [p for p in plans if asked.plan_id in (None, p.id)] if not chosen else []
    rows = (*(_launched(la, by_id[la.plan_id], asked.now) for la in chosen), *map(_planned, planned))
    shown = tuple({p.id: p for p in (*map(plan_of, chosen), *planned)}.values())
    subject = shown[0] if shown else None
    budget = asked.budget_usd or _budget_of(chosen)
    forecast = _forecast(rows)
    return Report(
        made=asked.now,
        since=asked.since,
        until=asked.until,
        headline=_with_adopted(_headline(rows, subject, budget, forecast), without_plan),
        runs=rows,
        groups=_groups(rows, asked.group_by) if asked.group_by else (),
        grouped_by=asked.group_by,
        budget_usd=budget,
        spent_usd=_sum(r.spent_usd for r in rows),
        spent_is_complete=not without_plan and all(r.spent_is_complete for r in rows),
        without_plan=without_plan,
        billed_usd=_billed(rows),
        forecast_usd=forecast,
        over_budget_on=_over_on(rows, budget, forecast, asked.now),
        prediction_error=_errors(rows),
        num_measured=sum(r.errors != RunErrors() for r in rows),
        subject=None if subject is None else subject.id,
        budget_parts=() if subject is None else pictures.budget_parts(subject.candidate),
        dots=pictures.with_front(field or pictures.dots_of(shown), subject),
        memory=pictures.memory_bars(shown, chosen),
        sensitivity=() if subject is None else sensitivity(subject.candidate),
        burn=pictures.burn(chosen, by_id, asked.now),
        predictions=pictures.predictions(chosen),
        cost_lines=() if subject is None else subject.candidate.cost_lines,
        provenance=None if subject is None else _provenance(subject, asked),
    )


def plan_of(launch: Launch) -> Plan:
    """Return the plan that was launched, as it was shown."""
    return Plan.model_validate_json(launch.plan_json)


def _wanted(launch: Launch, asked: Asked) -> bool:
    """Whether a launch lived in the time asked about, and is of the plan and project asked about."""
    _, ended = pictures.lifetime(launch, asked.now)
    early = asked.since is not None and ended < asked.since
    late = asked.until is not None and launch.created > asked.until
    other = asked.plan_id not in (None, launch.plan_id) or asked.project not in (None, launch.project)
    return not early and not late and not other


# ------------------------------------------------------------------------------------- rows


def _planned(plan: Plan) -> ReportRun:
    """Row of a plan that was not launched."""
    return _row(plan, None, "planned", RunErrors())


def _launched(launch: Launch, plan: Plan, now: datetime) -> ReportRun:
    """Row of a launch."""
    begun, ended = pictures.lifetime(launch, now)
    spent = spend.spent(launch, ended)
    row = _row(plan, launch, launch.state, _errors_of(launch, plan, spent))
    return row.model_copy(
        update={
            "hours": None if begun is None else (ended - begun) / timedelta(hours=1),
            "usd_per_hour": spend.usd_per_hour(launch),
            "spent_usd": spent.usd if spent.usd or spent.complete else None,
            "spent_is_complete": spent.complete,
            "billed_usd": launch.billed[-1].usd if launch.billed else None,
            "billed_why": _why_billed(launch, spent.usd, ended),
            "forecast_usd": _forecast_of(launch, plan, float(spent.usd), float(spend.lost_usd(launch, now))),
        }
    )


def _row(plan: Plan, launch: Launch | None, state: str, errors: RunErrors) -> ReportRun:
    chosen = plan.candidate
    price = chosen.offer.usd_per_hour
    return ReportRun(
        plan_id=plan.id,
        launch_id=None if launch is None else launch.id,
        what=f"{units.count(count_params(chosen.run.model).total)}, {_gpus(chosen)}",
        state=state,
        provider=chosen.offer.provider if launch is None else launch.provider,
        region=chosen.offer.region if launch is None else launch.region,
        market=chosen.offer.market if launch is None else launch.market,
        shape=ShapeOf(
            gpu=chosen.offer.gpu, gpus_per_node=chosen.offer.gpus_per_node, num_nodes=chosen.num_nodes
        ),
        user=None if launch is None else launch.user,
        project=None if launch is None else launch.project,
        verdict=chosen.verdict,
        hours=None,
        predicted_hours=chosen.hours,
        usd_per_hour=None if price is None else price * chosen.num_nodes,
        predicted_usd=chosen.cost_usd,
        predicted_is_complete=chosen.cost_is_complete,
        spent_usd=None,
        spent_is_complete=True,
        billed_usd=None,
        billed_why="",
        forecast_usd=None,
        errors=errors,
    )


def _gpus(chosen: Candidate) -> str:
    return f"{chosen.offer.gpus_per_node * chosen.num_nodes}× {chosen.offer.gpu}"


def _why_billed(launch: Launch, spent_usd: Decimal, ended: datetime) -> str:
    """Say why the bill differs from what was counted, as far as that can be known."""
    if not launch.billed:
        return ""
    bill = launch.billed[-1]
    if bill.until < ended:
        return "the bill ends before the launch did"
    difference = bill.usd - spent_usd
    if abs(difference) <= max(Decimal("0.01"), spent_usd * Decimal("0.01")):
        return "as counted"
    if difference > 0:
        return "billed more: tax, traffic, or a part whose price is not known here"
    return "billed less: a discount, credits, or a bill that is not complete yet (up to a day late)"


def _forecast_of(launch: Launch, plan: Plan, spent_usd: float, lost_usd: float) -> Band | None:
    """What a launch will have cost at its end, lost work twice; ``None`` where it is over."""
    if launch.state in _OVER:
        return None
    if launch.state == "tearing_down":
        return Band(low=spent_usd, mid=spent_usd, high=spent_usd)
    repriced = None if launch.verdict is None or launch.verdict.repriced is None else launch.verdict.repriced
    band = plan.candidate.cost_usd if repriced is None or repriced.cost_usd is None else repriced.cost_usd
    twice = Band(low=band.low + lost_usd, mid=band.mid + lost_usd, high=band.high + lost_usd)
    return pictures.later(twice, spent_usd)


def _errors_of(launch: Launch, plan: Plan, spent: spend.Spent) -> RunErrors:
    """Measured / predicted - 1 of a launch's probe, and of its cost where the full run is over."""
    found: dict[str, float] = {}
    for c in launch.verdict.checks if launch.verdict is not None else ():
        if c.predicted is None or c.measured is None or c.predicted.mid <= 0:
            continue
        if c.name == "step time":
            found["time"] = c.measured / c.predicted.mid - 1
        elif pictures.is_memory(c):
            found["memory"] = c.measured / c.predicted.mid - 1
    ran = any(t.state == "committed" for t in launch.transitions) and launch.state in _OVER
    if ran and spent.complete and plan.candidate.cost_usd.mid > 0:
        found["cost"] = float(spent.usd) / plan.candidate.cost_usd.mid - 1
    return RunErrors(time=found.get("time"), memory=found.get("memory"), cost=found.get("cost"))


# ------------------------------------------------------------------------------------- sums


def _sum(values: Iterable[Decimal | None]) -> Decimal:
    return sum((v for v in values if v is not None), Decimal(0))


def _billed(rows: Sequence[ReportRun]) -> Decimal | None:
    known = [r.billed_usd for r in rows if r.billed_usd is not None]
    return _sum(known) if known else None


def _budget_of(launches: Sequence[Launch]) -> Decimal | None:
    """Sum of the launches' own budgets, ``None`` where one has none."""
    budgets = [la.budget_usd for la in launches]
    return _sum(budgets) if budgets and None not in budgets else None


def _forecast(rows: Sequence[ReportRun]) -> Band | None:
    """What all launches will have cost; the ends add up, since one cause can move them all."""
    if not any(r.forecast_usd for r in rows):
        return None
    bands = [r.forecast_usd or _only(r.spent_usd) for r in rows]
    return Band(low=sum(b.low for b in bands), mid=sum(b.mid for b in bands), high=sum(b.high for b in bands))


def _only(value: Decimal | None) -> Band:
    known = float(value or 0)
    return Band(low=known, mid=known, high=known)


def _over_on(
    rows: Sequence[ReportRun], budget: Decimal | None, forecast: Band | None, now: datetime
) -> date | None:
    """Day on which the budget is used up at today's rate, ``None`` where the forecast stays below it."""
    rate = float(_sum(r.usd_per_hour for r in rows if r.forecast_usd is not None))
    if budget is None or forecast is None or forecast.mid <= float(budget) or rate <= 0:
        return None
    left = float(budget) - float(_sum(r.spent_usd for r in rows))
    return (now + min(timedelta(hours=max(0.0, left) / rate), _LONGEST)).date()


def _errors(rows: Sequence[ReportRun]) -> RunErrors:
    """Median over the launches that measured a figure."""
    return RunErrors(
        time=_median(r.errors.time for r in rows),
        memory=_median(r.errors.memory for r in rows),
        cost=_median(r.errors.cost for r in rows),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None


def _groups(rows: Sequence[ReportRun], by: GroupBy) -> tuple[Group, ...]:
    """Sums by provider, GPU, project or user; dearest first."""
    members: dict[str, list[ReportRun]] = {}
    for row in rows:
        members.setdefault(_name(row, by), []).append(row)
    groups = [
        Group(
            name=name,
            num_runs=len(of),
            hours=sum(r.hours or 0.0 for r in of),
            predicted_usd=sum(r.predicted_usd.mid for r in of),
            spent_usd=_sum(r.spent_usd for r in of),
            spent_is_complete=all(r.spent_is_complete for r in of),
            billed_usd=_billed(of),
        )
        for name, of in members.items()
    ]
    return tuple(sorted(groups, key=lambda g: (-g.spent_usd, -g.predicted_usd, g.name)))


def _name(row: ReportRun, by: GroupBy) -> str:
    found = {"provider": row.provider, "gpu": row.shape.gpu, "project": row.project, "user": row.user}[by]
    return found or f"no {by}"


# ------------------------------------------------------------------------------------- words


def _headline(
    rows: Sequence[ReportRun], subject: Plan | None, budget: Decimal | None, forecast: Band | None
) -> str:
    """One sentence for whoever signs."""
    if subject is None:
        return "Nothing was planned or launched yet."
    limit = None if budget is None else float(budget)
    if forecast is not None:
        least = "" if all(r.spent_is_complete for r in rows) else "at least "
        spent = units.usd(_sum(r.spent_usd for r in rows))
        end = f"{units.usd_band(forecast)} at the end{_against(forecast.mid, limit, not least)}"
        return f"Spent {least}{spent}; {end}."
    chosen = subject.candidate
    if any(r.launch_id for r in rows):
        spent_usd = _sum(r.spent_usd for r in rows)
        complete = all(r.spent_is_complete for r in rows)
        least = "" if complete else "at least "
        launches = "1 launch" if len(rows) == 1 else f"{len(rows)} launches"
        over = _against(float(spent_usd), limit, complete)
        return f"Spent {least}{units.usd(spent_usd)} on {launches}{over}."
    what = units.count(count_params(chosen.run.model).total)
    tokens = chosen.run.training.num_tokens
    on = f" on {units.count(tokens)} tokens" if tokens else ""
    least = "" if chosen.cost_is_complete else "at least "
    cost = units.usd_band(chosen.cost_usd) if chosen.offer.usd_per_hour is not None else units.UNKNOWN
    over = _against(chosen.cost_usd.mid, limit, chosen.cost_is_complete)
    return f"Training {what}{on} costs {least}{cost}{over}."


def _with_adopted(headline: str, without_plan: tuple[str, ...]) -> str:
    """Name launches that were adopted without their plans: what they cost stands in no sum."""
    if not without_plan:
        return headline
    were = "was" if len(without_plan) == 1 else "were"
    its = "its plan" if len(without_plan) == 1 else "their plans"
    return f"{headline} {', '.join(without_plan)} {were} adopted without {its}: not in these sums."


def _against(usd: float, budget_usd: float | None, is_complete: bool) -> str:
    """Say how a sum stands to the budget; one that leaves something out is bounded from one side only."""
    if budget_usd is None:
        return ""
    difference = budget_usd - usd
    side, bound = ("under", "at most") if difference >= 0 else ("OVER", "at least")
    bound = "" if is_complete else f"{bound} "
    return f"; {bound}{units.usd(abs(difference))} {side} the budget of {units.usd(budget_usd)}"


def _provenance(subject: Plan, asked: Asked) -> Provenance:
    chosen = subject.candidate
    accelerator = gpu(chosen.offer.gpu)
    return Provenance(
        plan_id=subject.id,
        command=subject.command,
        planned=subject.created,
        tool_version=asked.tool_version,
        gpu_source=accelerator.source,
        gpu_source_date=accelerator.source_date,
        price_source=chosen.offer.source,
        price_seen=chosen.offer.price_seen,
        price_age_months=chosen.offer.price_age_months,
        assumptions=chosen.warnings,
    )
