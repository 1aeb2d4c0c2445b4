"""Prices of Oracle Cloud."""

import json
import re
from decimal import Decimal

import pytest
import responses

from providers.base import Parsed
from providers.oci import Oci
from tests.providers.contract import SEEN, HttpAdapterContract

ASHBURN = {"region": "us-ashburn-1"}


class TestOci(HttpAdapterContract):
    module = "oci"
    pages_of_a_fetch = 2

    def serve(self, content: bytes = b"", *, status: int = 200, **more: object) -> None:
        super().serve(content, status=status, **more)
        body = more.pop("body", content)
        responses.get(self.adapter.shapes_url, body=body, status=status, **more)

    def with_broken(self, name: str) -> Parsed:
        """A broken list of prices in the place of the prices, of shapes in the place of the shapes."""
        good = self.recorded()
        broken = self.payload(name)
        is_prices = "partNumber" in json.loads(broken)["items"][0]
        return self.adapter.parse([broken, good[1]] if is_prices else [good[0], broken], SEEN)

    def test_a_price_per_gpu_becomes_the_price_of_the_machine(self):
        assert self.offer("BM.GPU.H100.8", **ASHBURN).usd_per_hour == Decimal(80)

    def test_a_price_per_ocpu_is_multiplied_by_the_ocpus(self):
        assert self.offer("VM.GPU.A10.1", **ASHBURN).usd_per_hour == Decimal("0.0667") * 15

    def test_preemptible_machines_cost_half(self):
        assert self.offer("VM.GPU3.1", "spot", **ASHBURN).usd_per_hour == Decimal("2.95") / 2
        assert {o.instance_type for o in self.parsed().offers if o.market == "spot"} == {"VM.GPU3.1"}

    def test_one_price_holds_in_every_region(self):
        offers = [o for o in self.parsed().offers if o.instance_type == "BM.GPU.H100.8"]
        assert len({o.region for o in offers}) == len(offers) > 1
        assert len({o.usd_per_hour for o in offers}) == 1
        found = Oci(regions=("uk-london-1",)).parse(self.recorded(), SEEN)
        assert {o.region for o in found.offers} == {"uk-london-1"}

    def test_what_a_name_adds_in_brackets_is_no_part_of_the_type(self):
        assert self.offer("BM.GPU.GB200.4", **ASHBURN).gpus_per_node == 4

    def test_a_part_without_a_price_is_unknown(self):
        offer = self.offer("BM.GPU.H200.8", **ASHBURN)
        assert (offer.usd_per_hour, offer.unknown_why) == (None, "no price of part B12345")

    def test_a_new_shape_without_processors_leaves_them_unknown(self):
        offer = self.offer("BM.GPU.H100.16", **ASHBURN)
        assert (offer.gpus_per_node, offer.vcpus, offer.host_memory_bytes) == (16, None, None)

    def test_hidden_shapes_and_those_without_gpus_are_left_out(self):
        names = {o.instance_type for o in self.parsed().offers}
        assert not names & {"BM.GPU.A100-v2.8", "BM.Standard.E4.128"}

    @pytest.mark.parametrize("metric", ["GPU Per Month", "Instance Per Hour"])
    def test_a_metric_that_we_do_not_know_is_no_price(self, metric: str):
        page = json.loads(self.recorded()[0])
        page["items"][0]["metricName"] = metric
        found = self.adapter.parse([json.dumps(page).encode(), self.recorded()[1]], SEEN)
        assert found.num_unread == 2
        assert not [o for o in found.offers if re.match(r"BM\.GPU\.H100", o.instance_type)]
