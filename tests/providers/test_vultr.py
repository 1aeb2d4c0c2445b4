"""Prices of Vultr."""

import json
from decimal import Decimal

import responses

from tests.providers.contract import SEEN, HttpAdapterContract


class TestVultr(HttpAdapterContract):
    module = "vultr"
    pages_of_a_fetch = 2

    def test_prices_are_by_the_hour_not_a_share_of_the_month(self):
        assert self.offer("vcg-a100-12c-120g-80vram", region="fra").usd_per_hour == Decimal("2.397")
        assert self.offer("vbm-112c-2048gb-8-h100-gpu").usd_per_hour == Decimal("23.92")

    def test_preemptible_machines_are_the_spot_market(self):
        assert self.offer("vbm-112c-2048gb-8-h100-gpu", "spot").usd_per_hour == Decimal("18.4")

    def test_a_share_of_a_gpu_is_no_offer(self):
        assert not [o for o in self.parsed().offers if o.instance_type.endswith("-4vram")]

    def test_memory_tells_how_many_gpus_a_cloud_plan_has(self):
        assert self.offer("vcg-l40s-32c-360g-96vram").gpus_per_node == 2

    def test_a_plan_without_gpu_fields_is_read_from_its_id(self):
        offer = self.offer("vcg-a40-96c-480g-192vram")
        assert (offer.gpu, offer.gpus_per_node, offer.market) == ("A40", 4, "on-demand")

    def test_a_plan_that_is_preemptible_only_has_no_price_on_demand(self):
        markets = {o.market for o in self.parsed().offers if o.instance_type.startswith("vcg-b200")}
        assert markets == {"spot"}

    def test_a_metal_plan_says_its_gpus_in_its_id(self):
        offer = self.offer("vbm-256c-3072gb-8-mi355x-gpu")
        assert (offer.gpu, offer.gpus_per_node, offer.vcpus) == ("MI355X", 8, 256)

    def test_an_id_whose_memory_contradicts_its_gpu_is_not_read(self):
        plan = json.loads(self.recorded()[0])["plans"][4]
        plan["id"] = "vcg-mi325x-252c-2872g-1536vram"
        page = json.dumps({"plans": [*json.loads(self.recorded()[0])["plans"], plan]}).encode()
        found = self.adapter.parse([page], SEEN)
        assert found.num_unread == 1
        assert "is no number of MI325X" in found.notes[0]

    def test_a_count_that_contradicts_the_id_is_not_read(self):
        page = json.loads(self.recorded()[1])
        page["plans_metal"][3]["gpu_count"] = 4
        assert self.adapter.parse([json.dumps(page).encode()], SEEN).num_unread == 1
        page["plans_metal"][3]["gpu_count"] = 8
        assert self.adapter.parse([json.dumps(page).encode()], SEEN).num_unread == 0

    def test_empty_locations_are_left_out(self):
        assert "" not in {o.region for o in self.parsed().offers}

    @responses.activate
    def test_pages_are_followed_by_their_cursor(self):
        first = json.loads(self.recorded()[0])
        first["meta"]["links"]["next"] = "bmV4dA=="
        responses.get(f"{self.adapter.url}/plans?type=all&per_page=500", json=first)
        responses.get(
            f"{self.adapter.url}/plans?type=all&per_page=500&cursor=bmV4dA%3D%3D",
            body=self.payload("second_page"),
        )
        responses.get(f"{self.adapter.url}/plans-metal?per_page=500", body=self.recorded()[1])
        assert len(self.adapter.fetch({})) == 3
