"""Prices of AWS: recorded answers, moto for what it has, a stubbed client for the rest."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import boto3
import pytest
import responses
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError
from botocore.stub import ANY, Stubber
from moto import mock_aws

from planner.types import Offer
from providers import aws_calls
from providers.aws import ADAPTER
from providers.base import AnswerError, Parsed
from tests.providers.contract import HTML, PAYLOADS, SEEN, AdapterContract, prices

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}


def price_of(offers: tuple[Offer, ...], name: str, market: str, zone: str | None = None) -> Offer:
    (found,) = [o for o in offers if (o.instance_type, o.market, o.zone) == (name, market, zone)]
    return found


class TestAws(AdapterContract):
    module = "aws"

    def with_broken(self, name: str) -> Parsed:
        pages = [p for p in self.recorded() if json.loads(p)["call"] != "products"]
        return self.adapter.parse([*pages, self.payload(name)], SEEN)

    def test_a_row_without_a_documented_key_is_counted_and_gives_no_price(self):
        broken = self.with_broken("missing_key")
        assert broken.num_unread == 2
        self.assert_no_new_price(broken)
        assert price_of(broken.offers, "p5.48xlarge", "on-demand").usd_per_hour is None

    def test_other_skus_of_a_type_do_not_change_its_price(self):
        assert self.offer("p5.48xlarge").usd_per_hour == Decimal("55.04")

    def test_a_price_of_0_means_that_it_is_not_sold_on_demand(self):
        assert self.offer("p5e.48xlarge").usd_per_hour is None

    def test_a_type_that_is_offered_without_a_price_is_shown_as_unknown(self):
        offer = self.offer("g99.12xlarge")
        assert offer.usd_per_hour is None
        assert "no price on demand" in str(offer.unknown_why)

    def test_spot_prices_are_per_zone_and_the_latest(self):
        assert self.offer("p5.48xlarge", "spot", zone="use1-az1").usd_per_hour == Decimal("19.5")
        assert self.offer("p5.48xlarge", "spot", zone="use1-az2").usd_per_hour == Decimal("55.04")

    def test_a_placeholder_is_no_spot_price(self):
        assert self.offer("p5.4xlarge", "spot").usd_per_hour is None

    def test_a_capacity_block_costs_its_fee_by_node_and_hour_and_is_billed_whole(self):
        offer = self.offer("p5.48xlarge", "capacity-block")
        assert offer.usd_per_hour == (Decimal(755) / 24).quantize(Decimal("0.000001"))
        assert offer.min_billing_s == 24 * 3600
        assert "in advance" in offer.note

    def test_gpus_of_a_known_type_are_those_of_the_catalog(self):
        p5 = self.offer("p5.4xlarge")  # the answer counts 0
        p5e = self.offer("p5e.48xlarge")  # the answer names it "NVIDIA"
        assert (p5.gpu, p5.gpus_per_node, p5e.gpu) == ("H100-SXM5-80GB", 1, "H200-SXM-141GB")

    def test_a_new_type_is_read_from_its_description(self):
        offer = self.offer("g99.12xlarge")
        assert (offer.gpu, offer.gpus_per_node, offer.vcpus) == ("L40S", 4, 192 // 4)
        assert offer.links.inter == "efa"

    def test_slices_of_a_gpu_are_left_out(self):
        assert not [o for o in self.parsed().offers if o.instance_type.startswith("g6f")]

    def test_a_region_that_refused_is_noted(self):
        assert [n for n in self.parsed().notes if "me-south-1 (types: AuthFailure)" in n]

    def test_refused_products_leave_spot_prices(self):
        without = self.with_broken("error_body")
        assert price_of(without.offers, "p5.48xlarge", "spot", "use1-az1").usd_per_hour == Decimal("19.5")

    def test_a_page_of_something_else_is_an_error(self):
        with pytest.raises(AnswerError, match="not a page"):
            self.adapter.parse([b'{"call": "weather", "region": "us-east-1"}'], SEEN)

    def test_it_runs_without_credentials(self):
        assert self.adapter.unavailable({}) is None


# ---------------------------------------------------------------------------------- the public file


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in (*KEYS, "AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    nowhere = tmp_path_factory.mktemp("home") / "none"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(nowhere))


@pytest.mark.usefixtures("no_credentials")
class TestPriceFile:
    @responses.activate
    def test_without_credentials_the_public_file_is_read(self):
        responses.get(ADAPTER.bulk_url.format("us-east-1"), body=(PAYLOADS / "aws/index.csv").read_bytes())
        pages = ADAPTER.fetch({})
        parsed = ADAPTER.parse(pages, SEEN)
        assert prices(parsed) == {
            ("aws", "g6e.12xlarge", "us-east-1", "", "on-demand"): Decimal("10.49264"),
            ("aws", "p5.48xlarge", "us-east-1", "", "on-demand"): Decimal("55.04"),
        }
        assert [(u.name, u.count) for u in parsed.unknown_gpus] == [("p99.48xlarge", 1)]
        assert parsed.notes == ("no credentials: AWS public price file of us-east-1, on demand only",)
        assert b"m5.xlarge" not in pages[0]

    @responses.activate
    def test_the_file_is_that_of_the_users_region(self):
        responses.get(ADAPTER.bulk_url.format("eu-north-1"), body=(PAYLOADS / "aws/index.csv").read_bytes())
        assert json.loads(ADAPTER.fetch({"AWS_REGION": "eu-north-1"})[0])["region"] == "eu-north-1"

    @responses.activate
    @pytest.mark.parametrize("status", [403, 404])
    def test_a_file_that_is_not_there_is_an_error(self, status: int):
        responses.get(ADAPTER.bulk_url.format("us-east-1"), status=status)
        with pytest.raises(AnswerError, match=f"HTTP {status}"):
            ADAPTER.fetch({})

    @responses.activate
    def test_html_instead_of_the_file_gives_no_offer(self):
        responses.get(ADAPTER.bulk_url.format("us-east-1"), body=HTML)
        with pytest.raises(AnswerError, match="no GPU offer"):
            ADAPTER.parse(ADAPTER.fetch({}), SEEN)

    @responses.activate
    def test_an_unknown_profile_is_an_error_with_a_hint(self):
        with pytest.raises(AnswerError, match=r"ProfileNotFound.*aws sso login"):
            ADAPTER.fetch({"AWS_PROFILE": "nobody"})


# ---------------------------------------------------------------------------------- the calls


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Stubber, Stubber]]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    ec2, pricing = boto3.client("ec2"), boto3.client("pricing")
    with Stubber(ec2) as machines, Stubber(pricing) as products:
        yield machines, products


def answer(name: str) -> dict[str, object]:
    return json.loads((PAYLOADS / "aws" / f"{name}.json").read_text())["answer"]


def some_types(*names: str) -> dict[str, object]:
    return {"InstanceTypes": [t for t in answer("recorded-1")["InstanceTypes"] if t["InstanceType"] in names]}


def ask(stubbed: tuple[Stubber, Stubber]) -> list[bytes]:
    return aws_calls.one_region("us-east-1", stubbed[0].client, stubbed[1].client)


def stub_all_but_products(machines: Stubber, *names: str) -> None:
    machines.add_response("describe_instance_types", some_types(*names), {"Filters": ANY})
    machines.add_response("describe_instance_type_offerings", answer("recorded-2"))
    machines.add_response(
        "describe_spot_price_history",
        answer("recorded-4"),
        {"InstanceTypes": list(names), "ProductDescriptions": ["Linux/UNIX"], "StartTime": ANY},
    )


def filters_of(name: str, value: str) -> dict[str, object]:
    wanted = {"regionCode": "us-east-1", **aws_calls.FILTERS, name: value}
    return {
        "ServiceCode": "AmazonEC2",
        "FormatVersion": "aws_v1",
        "Filters": [{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in wanted.items()],
    }


def test_every_price_is_asked_for_with_all_filters(stubbed: tuple[Stubber, Stubber]):
    machines, products = stubbed
    stub_all_but_products(machines, "p5.48xlarge")
    products.add_response("get_products", answer("recorded-3"), filters_of("instanceFamily", "GPU instance"))
    machines.add_response(
        "describe_capacity_block_offerings",
        answer("recorded-5"),
        {"InstanceType": "p5.48xlarge", "InstanceCount": 1, "CapacityDurationHours": 24},
    )
    parsed = ADAPTER.parse(ask(stubbed), SEEN)
    assert {o.market for o in parsed.offers} == {"on-demand", "spot", "capacity-block"}
    assert price_of(parsed.offers, "p5.48xlarge", "on-demand").usd_per_hour == Decimal("55.04")
    machines.assert_no_pending_responses()
    products.assert_no_pending_responses()


def test_a_type_that_its_family_leaves_out_is_asked_for_by_name(stubbed: tuple[Stubber, Stubber]):
    machines, products = stubbed
    stub_all_but_products(machines, "g99.12xlarge")
    products.add_response("get_products", answer("recorded-3"), filters_of("instanceFamily", "GPU instance"))
    products.add_response("get_products", {"PriceList": []}, filters_of("instanceType", "g99.12xlarge"))
    ask(stubbed)
    products.assert_no_pending_responses()


def test_pages_of_products_are_followed(stubbed: tuple[Stubber, Stubber]):
    machines, products = stubbed
    stub_all_but_products(machines, "p5.4xlarge", "p5.48xlarge")
    first, second = answer("recorded-3")["PriceList"][:1], answer("recorded-3")["PriceList"][4:5]
    products.add_response("get_products", {"PriceList": first, "NextToken": "more"})
    products.add_response(
        "get_products",
        {"PriceList": second},
        {**filters_of("instanceFamily", "GPU instance"), "NextToken": "more"},
    )
    for _ in range(2):
        machines.add_response("describe_capacity_block_offerings", {"CapacityBlockOfferings": []})
    parsed = ADAPTER.parse(ask(stubbed), SEEN)
    assert price_of(parsed.offers, "p5.4xlarge", "on-demand").usd_per_hour == Decimal("6.88")


@pytest.mark.parametrize("code", ["UnsupportedOperation", "RequestLimitExceeded", "InternalError"])
def test_a_call_that_is_refused_leaves_the_others(stubbed: tuple[Stubber, Stubber], code: str):
    machines, products = stubbed
    stub_all_but_products(machines, "p5.48xlarge")
    products.add_response("get_products", answer("recorded-3"))
    machines.add_client_error("describe_capacity_block_offerings", code)
    parsed = ADAPTER.parse(ask(stubbed), SEEN)
    assert {o.market for o in parsed.offers} == {"on-demand", "spot"}
    assert [n for n in parsed.notes if f"blocks: {code}" in n]


def test_a_region_that_is_not_enabled_ends_there(stubbed: tuple[Stubber, Stubber]):
    stubbed[0].add_client_error("describe_instance_types", "AuthFailure")
    assert [json.loads(p) for p in ask(stubbed)] == [
        {"call": "types", "region": "us-east-1", "error": "AuthFailure"}
    ]


class Broken:
    """A client that fails as the SDK does."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get_paginator(self, _: str) -> "Broken":
        return self

    def paginate(self, **_: object) -> list[dict[str, object]]:
        raise self.error


def sdk_errors() -> list[Exception]:
    from botocore.parsers import ResponseParserError

    refusal = {"Error": {"Code": "ThrottlingException"}}
    return [
        ClientError(refusal, "DescribeInstanceTypes"),
        EndpointConnectionError(endpoint_url="https://ec2.invalid"),
        BotoCoreError(),
        ResponseParserError("half an XML"),
    ]


@pytest.mark.parametrize("error", sdk_errors(), ids=lambda e: type(e).__name__)
def test_no_error_of_the_sdk_gets_through(error: Exception):
    (page,) = aws_calls.one_region("us-east-1", Broken(error), Broken(error))
    assert json.loads(page)["error"] in ("ThrottlingException", type(error).__name__)


@mock_aws
def test_machines_and_zones_are_read_from_moto(monkeypatch: pytest.MonkeyPatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws_calls, "GPU_TYPES", ("p5*",))
    monkeypatch.setattr(aws_calls, "_blocks", lambda *_: [])  # moto has none
    pages = aws_calls.all_regions(boto3.session.Session(), ["us-east-1"])
    calls = {json.loads(p)["call"] for p in pages if "error" not in json.loads(p)}
    assert {"types", "offerings", "spot"} <= calls
    parsed = ADAPTER.parse(pages, datetime(2026, 11, 30, tzinfo=UTC))
    p5 = [o for o in parsed.offers if o.instance_type == "p5.48xlarge" and o.market == "on-demand"]
    assert [(o.gpu, o.gpus_per_node, o.available, o.usd_per_hour) for o in p5] == [
        ("H100-SXM5-80GB", 8, True, None)  # moto has no prices: unknown, and its 0.00001 is no spot price
    ]
    assert {o.usd_per_hour for o in parsed.offers} == {None}


@mock_aws
def test_no_region_that_answers_is_an_error(monkeypatch: pytest.MonkeyPatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        aws_calls,
        "one_region",
        lambda region, *_: [json.dumps({"call": "types", "region": region, "error": "AuthFailure"}).encode()],
    )
    with pytest.raises(AnswerError, match="no region answered: AuthFailure"):
        aws_calls.all_regions(boto3.session.Session(), ["us-east-1", "me-south-1"])
