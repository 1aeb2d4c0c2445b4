"""What a provider billed for a launch: AWS Cost Explorer, by the tag that all resources of a launch carry.

Cost Explorer lags by up to a day, needs the tag to be activated as a cost allocation tag, and charges
0.01 USD a request (AWS Cost Explorer API reference, GetCostAndUsage; pricing page, seen 2026-11).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from clusters.config.guards import LAUNCH_TAG
from planner.errors import MissingCredentialsError, UserError
from planner.launched import BilledAmount, Launch

_REGION = "us-east-1"  # the one endpoint of Cost Explorer
_DAY = timedelta(days=1)


def aws(launch: Launch, now: datetime) -> BilledAmount | None:
    """Sum of a launch until now; ``None`` where Cost Explorer knows nothing of it yet.

    Raises:
        MissingCredentialsError: no credentials of AWS.
        UserError: AWS refused.

    """
    import boto3  # type: ignore[import-untyped]
    import botocore.exceptions  # type: ignore[import-untyped]

    client = boto3.client("ce", region_name=_REGION)
    try:
        days = _days(client, launch, now)
    except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError):
        raise MissingCredentialsError("no credentials of AWS were found", "aws configure") from None
    except (botocore.exceptions.ClientError, botocore.exceptions.EndpointConnectionError) as error:
        raise UserError(f"AWS Cost Explorer refused: {error}", "the right ce:GetCostAndUsage") from None
    amounts = [_amount(day) for day in days]
    if not any(amounts):
        return None
    return BilledAmount(until=_midnight(now), usd=sum(amounts, Decimal(0)), source="AWS Cost Explorer")


def _days(client: Any, launch: Launch, now: datetime) -> list[dict[str, Any]]:  # noqa: ANN401 (boto3 has no types)
    """Answers of all days that the launch lived in, page by page."""
    asked = {
        "TimePeriod": {
            "Start": launch.created.date().isoformat(),
            "End": (now + _DAY).date().isoformat(),
        },
        "Granularity": "DAILY",
        "Metrics": ["UnblendedCost"],
        "Filter": {"Tags": {"Key": LAUNCH_TAG, "Values": [launch.id]}},
    }
    days: list[dict[str, Any]] = []
    token: dict[str, str] = {}
    while True:
        answer = client.get_cost_and_usage(**asked, **token)
        days += answer["ResultsByTime"]
        if not answer.get("NextPageToken"):
            return days
        token = {"NextPageToken": answer["NextPageToken"]}


def _amount(day: dict[str, Any]) -> Decimal:
    cost = day.get("Total", {}).get("UnblendedCost", {})
    if cost.get("Unit", "USD") != "USD":
        raise UserError(f"AWS bills in {cost['Unit']}, not in USD", "plan report --bill FILE.csv")
    return Decimal(cost.get("Amount", "0"))


def _midnight(now: datetime) -> datetime:
    """End of the last day that a bill can be complete for."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0)
