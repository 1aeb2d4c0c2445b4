"""Prices of Google Cloud: sums of parts."""

import json
from decimal import Decimal
from typing import ClassVar

import responses

from tests.providers.contract import SECRET, SEEN, HttpAdapterContract


class TestGcp(HttpAdapterContract):
    module = "gcp"
    environment: ClassVar[dict[str, str]] = {"GCP_API_KEY": SECRET}

    def test_a_node_costs_its_cores_memory_and_gpus(self):
        cores, ram, gpu = Decimal("0.031611"), Decimal("0.004237"), Decimal("2.933908")
        assert self.offer("a2-highgpu-1g").usd_per_hour == 12 * cores + 85 * ram + gpu

    def test_a_fixed_local_ssd_is_part_of_the_price(self):
        with_disk = self.offer("a2-ultragpu-1g").usd_per_hour
        assert with_disk is not None
        bare = 12 * Decimal("0.031611") + 170 * Decimal("0.004237") + Decimal("3.92808")
        assert with_disk - bare == (375 * Decimal("0.08") / 730).quantize(Decimal("0.000001"))

    def test_the_slice_of_a_b200_is_the_whole_machine(self):
        assert self.offer("a4-highgpu-8g").usd_per_hour == 8 * Decimal("16.11")

    def test_a_spot_sku_that_says_on_demand_is_spot(self):
        assert self.offer("a4-highgpu-8g", "spot").usd_per_hour == 8 * Decimal("4.9542")

    def test_flex_start_does_not_lower_the_price_on_demand(self):
        offer = self.offer("a3-highgpu-8g")
        assert (offer.usd_per_hour, offer.unknown_why) == (
            None,
            "no price of 'a3 instance core' in us-central1",
        )

    def test_small_a3_machines_are_not_sold_on_demand(self):
        assert not [o for o in self.parsed().offers if o.instance_type == "a3-highgpu-1g"]

    def test_the_sku_of_fewer_regions_counts_in_either_order(self):
        page = json.loads(self.recorded()[0])
        narrow = json.loads(json.dumps(page["skus"][2]))
        narrow["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["nanos"] = 0
        page["skus"][2]["serviceRegions"] = ["us-central1", "us-east1"]
        for skus in ([*page["skus"], narrow], [narrow, *page["skus"]]):
            parsed = self.adapter.parse([json.dumps({"skus": skus}).encode()], SEEN)
            (offer,) = [
                o
                for o in parsed.offers
                if (o.instance_type, o.market, o.region) == ("a2-highgpu-1g", "on-demand", "us-central1")
            ]
            assert offer.usd_per_hour == Decimal("2.739477")

    @responses.activate
    def test_pages_are_followed_by_token_and_the_key_is_in_no_address(self):
        first = {**json.loads(self.recorded()[0]), "nextPageToken": "more"}
        responses.get(self.adapter.url, json=first)
        responses.get(self.adapter.url, body=self.payload("second_page"))
        assert len(self.adapter.fetch(self.environment)) == 2
        assert "pageToken=more" in responses.calls[1].request.url
        assert not [c for c in responses.calls if SECRET in c.request.url]
