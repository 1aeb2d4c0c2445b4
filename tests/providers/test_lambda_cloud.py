"""Prices of Lambda."""

from decimal import Decimal
from typing import ClassVar

import responses

from tests.providers.contract import SECRET, HttpAdapterContract


class TestLambda(HttpAdapterContract):
    module = "lambda_cloud"
    environment: ClassVar[dict[str, str]] = {"LAMBDA_API_KEY": SECRET}

    def test_cents_of_a_node_become_dollars_of_a_node(self):
        assert self.offer("gpu_8x_h100_sxm5", region="us-east-1").usd_per_hour == Decimal("31.92")

    def test_only_regions_with_capacity_are_listed(self):
        assert {o.region for o in self.parsed().offers if o.instance_type == "gpu_8x_h100_sxm5"} == {
            "us-east-1",
            "us-west-3",
        }

    def test_a_type_that_is_sold_out_is_kept_as_not_available(self):
        offer = self.offer("gpu_8x_b200_sxm6")
        assert (offer.region, offer.available) == ("any", False)
        assert "sold out" in offer.note

    def test_a_new_type_is_read_from_its_description(self):
        offer = self.offer("gpu_2x_h200_new")
        assert (offer.gpu, offer.gpus_per_node, offer.vcpus) == ("H200-SXM-141GB", 2, 52)

    def test_machines_without_gpus_are_left_out(self):
        assert not [o for o in self.parsed().offers if o.instance_type.startswith("cpu")]

    @responses.activate
    def test_the_key_goes_into_the_header(self):
        self.serve(self.recorded()[0])
        self.adapter.fetch(self.environment)
        assert responses.calls[0].request.headers["Authorization"] == f"Bearer {SECRET}"
        assert SECRET not in responses.calls[0].request.url
