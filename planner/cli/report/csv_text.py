"""The runs of a report as CSV: one row a run, figures without signs or bands' words, unknown is empty."""

from __future__ import annotations

import csv
import io

from planner.cli.json_output import money
from planner.report.nouns import Report, ReportRun

COLUMNS = (
    "plan_id",
    "launch_id",
    "what",
    "state",
    "provider",
    "region",
    "market",
    "gpu",
    "gpus_per_node",
    "num_nodes",
    "project",
    "user",
    "hours",
    "usd_per_hour",
    "predicted_usd_low",
    "predicted_usd_mid",
    "predicted_usd_high",
    "spent_usd",
    "spent_is_complete",
    "billed_usd",
    "forecast_usd_mid",
)


def text(r: Report) -> str:
    """Write the runs."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in r.runs:
        writer.writerow(["" if cell is None else cell for cell in _cells(row)])
    return out.getvalue()


def _cells(row: ReportRun) -> list[str | int | None]:
    band = row.predicted_usd
    return [
        row.plan_id,
        row.launch_id,
        row.what,
        row.state,
        row.provider,
        row.region,
        row.market,
        row.shape.gpu,
        row.shape.gpus_per_node,
        row.shape.num_nodes,
        row.project,
        row.user,
        None if row.hours is None else f"{row.hours:.4f}",
        money(row.usd_per_hour),
        f"{band.low:.4f}",
        f"{band.mid:.4f}",
        f"{band.high:.4f}",
        money(row.spent_usd),
        "true" if row.spent_is_complete else "false",
        money(row.billed_usd),
        None if row.forecast_usd is None else f"{row.forecast_usd.mid:.4f}",
    ]
