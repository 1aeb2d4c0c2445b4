"""Bills of AWS: summed over days and pages by the launch's tag; nothing known yet is not zero."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import boto3
import botocore.exceptions
import pytest
from botocore.stub import Stubber

from clusters import billing
from planner.errors import MissingCredentialsError, UserError
from planner.results import Plan
from tests.cli.conftest import choices
from tests.planner.report_tools import BEGUN, launch

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
LAUNCH = launch(
    Plan(id="p-1", created=BEGUN, command="plan suggest", candidate=choices()[1]), ("creating", 0.0)
)


def day(start: str, usd: str, unit: str = "USD") -> dict[str, Any]:
    return {
        "TimePeriod": {"Start": start, "End": start},
        "Total": {"UnblendedCost": {"Amount": usd, "Unit": unit}},
        "Groups": [],
        "Estimated": True,
    }


@pytest.fixture
def explorer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    client = boto3.client("ce", region_name="us-east-1", aws_access_key_id="k", aws_secret_access_key="s")
    with Stubber(client) as stub:
        monkeypatch.setattr(boto3, "client", lambda *_args, **_more: client)
        yield stub


def request(token: str | None = None) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "TimePeriod": {"Start": "2026-11-20", "End": "2026-11-23"},
        "Granularity": "DAILY",
        "Metrics": ["UnblendedCost"],
        "Filter": {"Tags": {"Key": "plan-launch", "Values": ["l-1"]}},
    }
    return asked if token is None else {**asked, "NextPageToken": token}


def test_days_of_all_pages_are_summed(explorer: Stubber) -> None:
    explorer.add_response(
        "get_cost_and_usage", {"ResultsByTime": [day("2026-11-20", "1.25")], "NextPageToken": "b"}, request()
    )
    explorer.add_response("get_cost_and_usage", {"ResultsByTime": [day("2026-11-21", "2.50")]}, request("b"))
    found = billing.aws(LAUNCH, NOW)
    assert found is not None
    assert (found.usd, found.source) == (Decimal("3.75"), "AWS Cost Explorer")
    assert found.until == datetime(2026, 11, 22, tzinfo=UTC)


def test_a_launch_that_cost_explorer_does_not_know_yet_is_not_billed_zero(explorer: Stubber) -> None:
    explorer.add_response("get_cost_and_usage", {"ResultsByTime": [day("2026-11-20", "0")]}, request())
    assert billing.aws(LAUNCH, NOW) is None


def test_another_currency_is_refused(explorer: Stubber) -> None:
    explorer.add_response("get_cost_and_usage", {"ResultsByTime": [day("2026-11-20", "7", "CNY")]}, request())
    with pytest.raises(UserError, match="CNY"):
        billing.aws(LAUNCH, NOW)


def test_a_refusal_of_aws_is_an_error_of_the_user(explorer: Stubber) -> None:
    explorer.add_client_error("get_cost_and_usage", "AccessDeniedException", "no")
    with pytest.raises(UserError, match="Cost Explorer refused"):
        billing.aws(LAUNCH, NOW)


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def get_cost_and_usage(self, **_: object) -> None:
            raise botocore.exceptions.NoCredentialsError

    monkeypatch.setattr(boto3, "client", lambda *_args, **_more: Client())
    with pytest.raises(MissingCredentialsError):
        billing.aws(LAUNCH, NOW)
