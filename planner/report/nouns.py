"""What ``plan report`` answers, as frozen records: one document, drawn in five forms.

A sum holds only what is known: ``is_complete`` ``False`` beside it means "at least".
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from planner.results import CostLine, Dot, MemoryParts
from planner.types import Band, Record, Verdict

GroupBy = Literal["provider", "gpu", "project", "user"]
PartName = Literal[
    "price x hours", "spread of time and price", "probe and set-up", "storage and traffic", "unknown"
]


class ShapeOf(Record):
    """GPUs of a run."""

    gpu: str
    gpus_per_node: int
    num_nodes: int


class RunErrors(Record):
    """Measured / predicted - 1 of one launch; ``None`` where it was not measured, or is not over."""

    time: float | None = None
    memory: float | None = None
    cost: float | None = None


class ReportRun(Record):
    """A launch, or a plan that was not launched (``launch_id`` ``None``).

    ``usd_per_hour``: of all nodes, the last price that is known. ``hours``: since machines were asked for.
    ``forecast_usd``: what is spent and still to come, ``None`` where nothing runs.
    """

    plan_id: str
    launch_id: str | None
    what: str
    state: str
    provider: str
    region: str
    market: str
    shape: ShapeOf
    user: str | None
    project: str | None
    verdict: Verdict
    hours: float | None
    predicted_hours: Band
    usd_per_hour: Decimal | None
    predicted_usd: Band
    predicted_is_complete: bool
    spent_usd: Decimal | None
    spent_is_complete: bool
    billed_usd: Decimal | None
    billed_why: str
    forecast_usd: Band | None
    errors: RunErrors


class Group(Record):
    """Runs of one provider, GPU, project or user."""

    name: str
    num_runs: int
    hours: float
    predicted_usd: float
    spent_usd: Decimal
    spent_is_complete: bool
    billed_usd: Decimal | None


class BudgetPart(Record):
    """A piece of the budget bar. ``usd`` ``None``: not known, and not in the sum."""

    name: PartName
    usd: float | None
    note: str = ""


class Placed(Dot):
    """A dot in the picture: on the front, if no other beats it in both; the subject of the report."""

    on_front: bool = False
    is_subject: bool = False


class MemoryBar(Record):
    """Memory of one GPU of a plan, by part, with its limit and, after a probe, the measured peak."""

    plan_id: str
    name: str
    parts_bytes: MemoryParts
    device_bytes: Band
    limit_bytes: float | None
    usable_bytes: float | None
    measured_bytes: float | None


class Sensitivity(Record):
    """What one cause does to the cost of the subject, at its low and at its high end."""

    cause: str
    low_says: str
    high_says: str
    usd_at_low: float
    usd_at_high: float


class BurnPoint(Record):
    """Money of one launch at a moment: spent by then, and what the plan had foreseen for then."""

    launch_id: str
    at: datetime
    spent_usd: float
    predicted_usd: float


class Prediction(Record):
    """One figure that was predicted and measured."""

    launch_id: str
    name: str
    unit: str
    predicted: Band
    measured: float
    error: float


class Provenance(Record):
    """Where the figures of the subject come from."""

    plan_id: str
    command: str
    planned: datetime
    tool_version: str
    gpu_source: str
    gpu_source_date: str
    price_source: str
    price_seen: datetime | None
    price_age_months: int | None
    assumptions: tuple[str, ...]


class Report(Record):
    """The whole report. ``subject`` is the plan that pictures and lines are about.

    ``without_plan``: launches that were adopted without their plans, in no row and in no sum.
    """

    schema_version: int = 1
    made: datetime
    since: datetime | None
    until: datetime | None
    headline: str
    runs: tuple[ReportRun, ...]
    groups: tuple[Group, ...]
    grouped_by: GroupBy | None
    budget_usd: Decimal | None
    spent_usd: Decimal
    spent_is_complete: bool
    without_plan: tuple[str, ...] = ()
    billed_usd: Decimal | None
    forecast_usd: Band | None
    over_budget_on: date | None
    prediction_error: RunErrors
    num_measured: int
    subject: str | None
    budget_parts: tuple[BudgetPart, ...]
    dots: tuple[Placed, ...]
    memory: tuple[MemoryBar, ...]
    sensitivity: tuple[Sensitivity, ...]
    burn: tuple[BurnPoint, ...]
    predictions: tuple[Prediction, ...]
    cost_lines: tuple[CostLine, ...]
    provenance: Provenance | None
