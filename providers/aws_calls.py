"""The calls that ``aws.fetch`` makes: pages as JSON ``{call, region, answer}``, refusals as ``{…, error}``.

A region that is not enabled, or a call that the user may not make, leaves the rest as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

from providers.base import AnswerError

if TYPE_CHECKING:
    from boto3.session import Session  # type: ignore[import-untyped]

PRICING_REGION = "us-east-1"  # one of the three that answer for all regions
AT_ONCE = 8
BLOCK_HOURS = 24
GPU_TYPES = ("p*", "g*")
FILTERS = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "licenseModel": "No License required",
}
MOST_FILTER_VALUES = 200


class Paginator(Protocol):
    """The part of a boto3 paginator that is used."""

    def paginate(self, **arguments: object) -> Iterable[Mapping[str, object]]:
        """All pages."""
        ...


class Client(Protocol):
    """The part of a boto3 client that is used."""

    def get_paginator(self, operation_name: str) -> Paginator:
        """Paginator of an operation."""
        ...


def page(call: str, region: str, answer: Mapping[str, object]) -> bytes:
    """One answer of the SDK as JSON; times as ISO texts."""
    content = {"call": call, "region": region, "answer": answer}
    return json.dumps(content, default=lambda time: time.isoformat()).encode()


def all_regions(session: Session, regions: Iterable[str]) -> list[bytes]:
    """Ask every region at once. Raises ``AnswerError`` where not one of them answers."""
    from botocore.config import Config  # type: ignore[import-untyped]

    config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 5})
    pricing = session.client("pricing", region_name=PRICING_REGION, config=config)
    clients = [(r, session.client("ec2", region_name=r, config=config)) for r in regions]
    with ThreadPoolExecutor(AT_ONCE) as several:
        found = several.map(lambda item: one_region(item[0], item[1], pricing), clients)
        pages = [p for one in found for p in one]
    errors = [json.loads(p).get("error") for p in pages]
    if all(errors):
        raise AnswerError(f"no region answered: {errors[0] if errors else 'none was asked'}")
    return pages


def one_region(region: str, ec2: Client, pricing: Client) -> list[bytes]:
    """All pages of one region."""
    pages, refused = _tried("types", region, partial(_types, region, ec2))
    if refused:
        return pages
    machines = [t for p in pages for t in json.loads(p)["answer"]["InstanceTypes"] if t.get("GpuInfo")]
    names = sorted(t["InstanceType"] for t in machines)
    calls: list[tuple[str, Callable[[], list[bytes]]]] = [
        ("offerings", partial(_offerings, region, ec2, names)),
        ("products", partial(_products, region, pricing, names)),
        ("spot", partial(_spot, region, ec2, names)),
    ]
    for machine in machines:
        if "capacity-block" in machine.get("SupportedUsageClasses", ()):
            calls.append(("blocks", partial(_blocks, region, ec2, machine["InstanceType"])))
    for call, ask in calls:
        pages += _tried(call, region, ask)[0]
    return pages


def _tried(call: str, region: str, ask: Callable[[], list[bytes]]) -> tuple[list[bytes], bool]:
    """Pages of a call, or one page that says how it was refused; and whether it was."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]

    try:
        return ask(), False
    except ClientError as error:
        why = str(error.response.get("Error", {}).get("Code", "refused"))
    except (BotoCoreError, ResponseParserError) as error:
        why = type(error).__name__
    return [json.dumps({"call": call, "region": region, "error": why}).encode()], True


def _paged(
    call: str, region: str, client: Client, operation: str, arguments: Mapping[str, object]
) -> list[bytes]:
    """All pages of an operation."""
    pages = client.get_paginator(operation).paginate(**arguments)
    return [page(call, region, {k: v for k, v in p.items() if k != "ResponseMetadata"}) for p in pages]


def _types(region: str, ec2: Client) -> list[bytes]:
    filters = [{"Name": "instance-type", "Values": list(GPU_TYPES)}]
    return _paged("types", region, ec2, "describe_instance_types", {"Filters": filters})


def _offerings(region: str, ec2: Client, names: list[str]) -> list[bytes]:
    pages = []
    for i in range(0, len(names), MOST_FILTER_VALUES):
        some = [{"Name": "instance-type", "Values": names[i : i + MOST_FILTER_VALUES]}]
        arguments = {"LocationType": "availability-zone-id", "Filters": some}
        pages += _paged("offerings", region, ec2, "describe_instance_type_offerings", arguments)
    return pages


def _products(region: str, pricing: Client, names: list[str]) -> list[bytes]:
    """Products of the family, then, one by one, those that the family left out."""
    pages = _product_pages(region, pricing, "instanceFamily", "GPU instance")
    listed = {
        json.loads(text)["product"]["attributes"].get("instanceType")
        for p in pages
        for text in json.loads(p)["answer"].get("PriceList", ())
    }
    for name in (n for n in names if n not in listed):
        pages += _product_pages(region, pricing, "instanceType", name)
    return pages


def _product_pages(region: str, pricing: Client, name: str, value: str) -> list[bytes]:
    wanted = {"regionCode": region, **FILTERS, name: value}
    arguments = {
        "ServiceCode": "AmazonEC2",
        "FormatVersion": "aws_v1",
        "Filters": [{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in wanted.items()],
    }
    return _paged("products", region, pricing, "get_products", arguments)


def _spot(region: str, ec2: Client, names: list[str]) -> list[bytes]:
    if not names:
        return []
    arguments = {
        "InstanceTypes": names,
        "ProductDescriptions": ["Linux/UNIX"],
        "StartTime": datetime.now(UTC),
    }
    return _paged("spot", region, ec2, "describe_spot_price_history", arguments)


def _blocks(region: str, ec2: Client, name: str) -> list[bytes]:
    arguments = {"InstanceType": name, "InstanceCount": 1, "CapacityDurationHours": BLOCK_HOURS}
    return _paged("blocks", region, ec2, "describe_capacity_block_offerings", arguments)
