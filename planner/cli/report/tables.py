"""The tables of a report, as cells of text: the same for the HTML page, Markdown and the screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from planner import units
from planner.cli.text import Column
from planner.report.nouns import Report, ReportRun
from planner.results import CostLine
from planner.types import Band
from planner.units import GIB

NONE = "–"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report: a sentence, a table, and for the page a picture of the same figures."""

    id: str
    title: str
    said: str = ""
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    svg: str = ""


def sections(r: Report) -> tuple[Section, ...]:
    """All parts that this report has something to say in, in order."""
    found = (
        runs(r),
        groups(r),
        budget(r),
        dots(r),
        memory(r),
        sensitivity(r),
        burn(r),
        predictions(r),
        cost_lines(r),
        provenance(r),
    )
    return tuple(s for s in found if s is not None)


def _right(title: str) -> Column:
    return Column(title, right=True)


# ------------------------------------------------------------------------------------- runs


def runs(r: Report) -> Section | None:
    """Launches, or plans side by side."""
    if not r.runs:
        return None
    columns = (
        Column("RUN"),
        Column("WHAT"),
        Column("WHERE"),
        Column("STATE"),
        _right("HOURS"),
        _right("$/h"),
        _right("PREDICTED"),
        _right("SPENT"),
        _right("BILLED"),
    )
    return Section(id="runs", title="Runs", columns=columns, rows=tuple(run_cells(row) for row in r.runs))


def run_cells(row: ReportRun) -> tuple[str, ...]:
    """Cells of one run. What is not known says so; what cannot be yet is a dash."""
    market = "" if row.market == "on-demand" else f" {row.market}"
    return (
        row.launch_id or row.plan_id,
        row.what,
        f"{row.provider} {row.region}{market}",
        row.state,
        units.hours_band(row.predicted_hours) if row.hours is None else units.hours(row.hours),
        rate(row.usd_per_hour),
        money_band(row),
        _spent(row),
        NONE if row.billed_usd is None else units.usd_cents(row.billed_usd),
    )


def _spent(row: ReportRun) -> str:
    """What was spent: a dash before a launch, unknown where nothing of it has a price."""
    if row.spent_usd is None:
        return NONE if row.launch_id is None else units.UNKNOWN
    return at_least(row.spent_usd, row.spent_is_complete)


def money_band(row: ReportRun) -> str:
    """Predicted cost with its band; ``>=`` where a part of it is not known."""
    if row.predicted_usd.high <= 0:
        return units.UNKNOWN
    least = "" if row.predicted_is_complete else "≥ "
    return least + units.usd_band(row.predicted_usd, sign="")


def rate(usd_per_hour: Decimal | None) -> str:
    """Price of an hour in a column headed by it."""
    return units.UNKNOWN if usd_per_hour is None else f"{usd_per_hour:,.2f}"


def at_least(usd: Decimal, is_complete: bool) -> str:
    """A sum, marked where a part of it is not known."""
    return f"{'' if is_complete else '≥ '}{units.usd_cents(usd)}"


def groups(r: Report) -> Section | None:
    """Sums by provider, GPU, project or user."""
    if not r.groups:
        return None
    columns = (
        Column(str(r.grouped_by).upper()),
        _right("RUNS"),
        _right("HOURS"),
        _right("PREDICTED"),
        _right("SPENT"),
        _right("BILLED"),
    )
    rows = tuple(
        (
            g.name,
            str(g.num_runs),
            units.hours(g.hours),
            units.usd_number(g.predicted_usd),
            at_least(g.spent_usd, g.spent_is_complete),
            NONE if g.billed_usd is None else units.usd_cents(g.billed_usd),
        )
        for g in r.groups
    )
    return Section(id="groups", title=f"By {r.grouped_by}", columns=columns, rows=rows)


# ------------------------------------------------------------------------------------- pictures as tables


def budget(r: Report) -> Section | None:
    """What the money of the plan goes to."""
    if not r.budget_parts:
        return None
    rows = tuple(
        (p.name, units.UNKNOWN if p.usd is None else units.usd_number(p.usd), p.note) for p in r.budget_parts
    )
    unknown = [p.note for p in r.budget_parts if p.usd is None]
    said = "" if r.budget_usd is None else f"Budget {units.usd(r.budget_usd)}. "
    said += f"Not known, and in no sum: {'; '.join(unknown)}." if unknown else ""
    return Section(
        id="budget",
        title="Where the budget goes",
        said=said,
        columns=(Column("PART"), _right("USD"), Column("NOTE")),
        rows=rows,
    )


def dots(r: Report) -> Section | None:
    """Cost against time: the front, and how many lost for which reason."""
    if not r.dots:
        return None
    front = [d for d in r.dots if d.on_front or d.is_subject]
    rows = tuple(
        (
            d.name,
            units.hours(d.hours),
            units.usd_number(d.usd),
            d.verdict + (", chosen" if d.is_subject else ""),
            d.reason or NONE,
        )
        for d in front
    )
    lost = sum(d.verdict == "over" for d in r.dots)
    return Section(
        id="dots",
        title="Cost against time",
        said=f"{len(r.dots)} candidates, {lost} of them lost; the table holds the front and the chosen one.",
        columns=(Column("CHOICE"), _right("TIME"), _right("USD"), Column("VERDICT"), Column("WHY")),
        rows=rows,
    )


def memory(r: Report) -> Section | None:
    """Memory per GPU by part."""
    if not r.memory:
        return None
    names = list(type(r.memory[0].parts_bytes).model_fields)
    columns = (
        Column("PLAN"),
        *(_right(name.replace("_", " ")) for name in names),
        _right("peak"),
        _right("limit"),
        _right("measured"),
    )
    rows = tuple(
        (
            bar.plan_id,
            *(units.gib_number(getattr(bar.parts_bytes, name)) for name in names),
            units.gib_band_number(_in_gib(bar.device_bytes.low, bar.device_bytes.mid, bar.device_bytes.high)),
            units.gib_number(bar.limit_bytes),
            NONE if bar.measured_bytes is None else units.gib_number(bar.measured_bytes),
        )
        for bar in r.memory
    )
    return Section(id="memory", title="Memory per GPU, GiB", columns=columns, rows=rows)


def _in_gib(low: float, mid: float, high: float) -> Band:
    return Band(low=low / GIB, mid=mid / GIB, high=high / GIB)


def sensitivity(r: Report) -> Section | None:
    """What moves the cost most."""
    if not r.sensitivity:
        return None
    rows = tuple(
        (
            s.cause,
            f"{s.low_says}: {units.usd_number(s.usd_at_low)}",
            f"{s.high_says}: {units.usd_number(s.usd_at_high)}",
        )
        for s in r.sensitivity
    )
    return Section(
        id="sensitivity",
        title="What moves the cost most, USD",
        columns=(Column("CAUSE"), _right("AT ITS LOW END"), _right("AT ITS HIGH END")),
        rows=rows,
    )


def burn(r: Report) -> Section | None:
    """Spent against foreseen."""
    if not r.burn:
        return None
    said = []
    if r.forecast_usd is not None:
        said.append(f"Forecast at the end {units.usd_band(r.forecast_usd)}.")
    if r.over_budget_on is not None:
        said.append(f"The budget is used up on {r.over_budget_on}.")
    rows = tuple(
        (
            p.launch_id,
            f"{p.at:%Y-%m-%d %H:%M}",
            units.usd_number(p.spent_usd),
            units.usd_number(p.predicted_usd),
        )
        for p in r.burn
    )
    return Section(
        id="burn",
        title="Spent and foreseen",
        said=" ".join(said),
        columns=(Column("LAUNCH"), Column("UTC"), _right("SPENT"), _right("FORESEEN")),
        rows=rows,
    )


def predictions(r: Report) -> Section | None:
    """Predicted against measured: what earns trust, or costs it."""
    if not r.predictions and r.prediction_error == type(r.prediction_error)():
        return None
    rows = tuple(
        (
            p.launch_id,
            p.name,
            _band(p.predicted, p.unit),
            figure(p.measured, p.unit),
            units.signed_percent(p.error),
        )
        for p in r.predictions
    )
    return Section(
        id="predictions",
        title="Predicted and measured",
        said=errors_said(r),
        columns=(
            Column("LAUNCH"),
            Column("FIGURE"),
            _right("PREDICTED"),
            _right("MEASURED"),
            _right("ERROR"),
        ),
        rows=rows,
    )


def errors_said(r: Report) -> str:
    """Prediction errors so far, in a sentence."""
    known = [
        f"{name} {units.signed_percent(value)}" for name, value in r.prediction_error if value is not None
    ]
    if not known:
        return "Nothing was measured yet."
    runs_said = "1 run" if r.num_measured == 1 else f"{r.num_measured} runs"
    return f"Prediction error so far: {', '.join(known)} (median of {runs_said})."


def _band(band: Band, unit: str) -> str:
    low, mid, high = (figure(v, unit) for v in (band.low, band.mid, band.high))
    return f"{mid} ({low}–{high})"


def figure(value: float, unit: str) -> str:
    """A figure of a check in its unit."""
    if unit == "bytes":
        return units.gib(value)
    if unit == "s":
        return units.seconds(value)
    if unit == "bytes/s":
        return units.gb_per_s(value)
    return f"{value:,.3g} {unit}".rstrip()


# ------------------------------------------------------------------------------------- lines, provenance


def cost_lines(r: Report) -> Section | None:
    """Cost line by line."""
    if not r.cost_lines:
        return None
    return Section(
        id="lines",
        title="Cost, line by line",
        said="* assumed or taken from a rate of the provider; unknown is in no sum.",
        columns=(
            Column("LINE"),
            _right("QUANTITY"),
            Column("UNIT"),
            _right("USD EACH"),
            _right("USD"),
            Column("FROM"),
        ),
        rows=tuple(_line_cells(line) for line in r.cost_lines),
    )


def _line_cells(line: CostLine) -> tuple[str, ...]:
    each = units.UNKNOWN if line.usd_per_unit is None else f"{line.usd_per_unit.normalize():f}"
    quantity = units.UNKNOWN if line.quantity is None else f"{line.quantity:,.4g}"
    mark = "" if line.name in ("compute", "data upload", "download of the result") else " *"
    amount = units.UNKNOWN if line.usd is None else units.usd_band(line.usd, sign="") + mark
    return (line.name, quantity, line.unit, each, amount, line.note)


def provenance(r: Report) -> Section | None:
    """Where the figures come from, and the command that makes them again."""
    p = r.provenance
    if p is None:
        return None
    seen = "unknown" if p.price_seen is None else f"{p.price_seen:%Y-%m-%d}"
    rows = (
        ("plan", p.plan_id),
        ("planned", f"{p.planned:%Y-%m-%d %H:%M} UTC"),
        ("command", p.command),
        ("tool", f"plan {p.tool_version}"),
        ("GPU figures", f"{p.gpu_source} ({p.gpu_source_date})"),
        ("price", f"{p.price_source}, seen {seen}"),
        *(("note", note) for note in p.assumptions),
    )
    return Section(
        id="provenance",
        title="Where this comes from",
        columns=(Column("WHAT"), Column("FROM")),
        rows=rows,
    )


def plain_rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of a Markdown table."""
    for cells in rows:
        yield "| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in cells) + " |"
