"""Prices of RunPod."""

import json
from decimal import Decimal

import pytest
import responses

from providers.runpod import query
from tests.providers.contract import SECRET, HttpAdapterContract


class TestRunpod(HttpAdapterContract):
    module = "runpod"

    def test_a_price_per_gpu_becomes_that_of_the_pod_bids_too(self):
        assert self.offer("8x NVIDIA H100 80GB HBM3").usd_per_hour == Decimal("31.92")
        assert self.offer("8x NVIDIA H100 80GB HBM3", "spot").usd_per_hour == Decimal("15.92")

    def test_community_machines_are_a_market_of_their_own(self):
        assert self.offer("1x NVIDIA H100 80GB HBM3", "community").usd_per_hour == Decimal("2.69")
        assert self.offer("1x NVIDIA H100 80GB HBM3").usd_per_hour == Decimal("3.99")

    def test_a_pod_that_is_larger_than_any_host_is_not_offered(self):
        assert not [o for o in self.parsed().offers if o.instance_type == "8x NVIDIA RTX A5000"]

    def test_no_stock_is_said(self):
        assert self.offer("1x AMD Instinct MI300X OAM").available is False
        assert self.offer("1x NVIDIA GeForce RTX 4090").available is True

    def test_no_price_is_unknown_not_0(self):
        offer = self.offer("1x NVIDIA RTX A5000")
        assert (offer.usd_per_hour, offer.unknown_why) == (None, "the provider states no price")

    @responses.activate
    @pytest.mark.parametrize(
        ("environment", "header"), [({}, None), ({"RUNPOD_API_KEY": SECRET}, f"Bearer {SECRET}")]
    )
    def test_a_key_is_sent_where_there_is_one(self, environment: dict[str, str], header: str | None):
        self.serve(self.recorded()[0])
        self.adapter.fetch(environment)
        request = responses.calls[0].request
        assert request.headers.get("Authorization") == header
        assert json.loads(request.body)["query"] == query()

    def test_the_query_asks_for_every_count_in_both_clouds(self):
        assert query().count("lowestPrice") == 8
        assert query().count("{") == query().count("}")
