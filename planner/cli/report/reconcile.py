"""Bills: from AWS Cost Explorer by the tag of a launch, or from a CSV of another provider."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

from planner.cli.launch import ledger
from planner.errors import UserError, did_you_mean
from planner.launched import BilledAmount, Launch

_COLUMNS = ("launch_id", "usd", "until")
_EXAMPLE = "launch_id,usd,until[,source]"


def from_provider(launches: Sequence[Launch], now: datetime) -> tuple[Launch, ...]:
    """Ask AWS what each launch was billed, write it down, and return the launches with it.

    Raises ``UserError`` or ``MissingCredentialsError``; launches of other providers stay as they are.
    """
    from clusters import billing

    return tuple(
        ledger.billed(launch, found)
        if launch.provider == "aws" and (found := billing.aws(launch, now)) is not None
        else launch
        for launch in launches
    )


def from_file(launches: Sequence[Launch], path: str, now: datetime) -> tuple[Launch, ...]:
    """Read bills from a file. One bad row refuses the whole file, with its line."""
    by_id = {la.id: la for la in launches}
    bills = _bills(path, by_id, now)
    return tuple(ledger.billed(la, bills[la.id]) if la.id in bills else la for la in launches)


def _bills(path: str, known: dict[str, Launch], now: datetime) -> dict[str, BilledAmount]:
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--bill: cannot read {path!r:.200} ({type(error).__name__})", _EXAMPLE) from None
    rows = csv.DictReader(io.StringIO(text))
    missing = [c for c in _COLUMNS if c not in (rows.fieldnames or ())]
    if missing:
        raise UserError(f"--bill: {path!r:.200} has no column {missing[0]!r}", f"columns: {_EXAMPLE}")
    found: dict[str, BilledAmount] = {}
    for number, row in enumerate(rows, 2):
        launch_id = (row["launch_id"] or "").strip()
        if launch_id not in known:
            near = did_you_mean(launch_id, list(known))
            raise UserError(f"--bill: line {number}: no launch {launch_id!r:.60}{near}", "plan ls")
        if launch_id in found:
            raise UserError(f"--bill: line {number}: {launch_id} stands twice", "one row a launch: its sum")
        found[launch_id] = _bill(row, number, path, now)
    return found


def _bill(row: dict[str, str], number: int, path: str, now: datetime) -> BilledAmount:
    """Read one row."""
    try:
        usd = Decimal((row["usd"] or "").strip())
        until = datetime.fromisoformat((row["until"] or "").strip())
    except (InvalidOperation, ValueError):
        raise UserError(f"--bill: line {number}: usd or until cannot be read", _EXAMPLE) from None
    moment = until.replace(tzinfo=UTC) if until.tzinfo is None else until.astimezone(UTC)
    if not usd.is_finite() or usd < 0 or moment > now:
        raise UserError(f"--bill: line {number}: usd is negative, or until lies ahead", _EXAMPLE)
    return BilledAmount(until=moment, usd=usd, source=(row.get("source") or "").strip() or Path(path).name)
