"""Prices of DigitalOcean."""

import json
from decimal import Decimal
from typing import ClassVar

import pytest
import responses

from providers.base import AnswerError
from tests.providers.contract import SECRET, SEEN, HttpAdapterContract

GIB = 2**30


class TestDigitalOcean(HttpAdapterContract):
    module = "digitalocean"
    environment: ClassVar[dict[str, str]] = {"DIGITALOCEAN_ACCESS_TOKEN": SECRET}

    def test_the_price_is_of_the_droplet_in_each_of_its_regions(self):
        offers = [o for o in self.parsed().offers if o.instance_type == "gpu-h100x8-640gb"]
        assert {o.region for o in offers} == {"nyc2", "tor1"}
        assert {o.usd_per_hour for o in offers} == {Decimal("23.92")}

    def test_a_size_without_regions_is_sold_out(self):
        offer = self.offer("gpu-mi300x8-1536gb")
        assert (offer.region, offer.available, offer.gpus_per_node) == ("any", False, 8)

    def test_a_new_size_is_read_from_gpu_info(self):
        offer = self.offer("gpu-h200x1-141gb")
        assert (offer.gpu, offer.gpus_per_node, offer.vcpus) == ("H200-SXM-141GB", 1, 24)
        assert offer.host_memory_bytes == 240 * GIB
        assert offer.local_disk_bytes == 5840 * GIB

    def test_a_size_that_no_region_has_is_not_available_whatever_it_says(self):
        page = json.loads(self.recorded()[0])
        page["sizes"][5]["available"] = True
        (offer,) = self.adapter.parse([json.dumps({"sizes": [page["sizes"][5]]}).encode()], SEEN).offers
        assert offer.available is False

    def test_a_gpu_with_another_memory_is_not_taken_for_ours(self):
        page = json.loads(self.recorded()[0])
        page["sizes"][2]["gpu_info"]["vram"]["amount"] = 96
        found = self.adapter.parse([json.dumps(page).encode()], SEEN)
        assert "gpu-h200x1-141gb" not in {o.instance_type for o in found.offers}
        assert "nvidia_h200 (96 GB)" in {u.name for u in found.unknown_gpus}

    def test_droplets_without_gpus_are_left_out(self):
        assert not [o for o in self.parsed().offers if o.instance_type.startswith("s-")]

    def test_a_gpu_size_that_does_not_say_its_gpus_is_not_read(self):
        page = json.loads(self.recorded()[0])
        del page["sizes"][1]["gpu_info"]
        assert self.adapter.parse([json.dumps(page).encode()], SEEN).num_unread == 1

    def test_there_is_no_spot_market(self):
        assert {o.market for o in self.parsed().offers} == {"on-demand"}

    def test_the_other_name_of_the_token_is_read_too(self):
        assert self.adapter.unavailable({"DIGITALOCEAN_TOKEN": SECRET}) is None

    @responses.activate
    def test_pages_are_followed_to_the_end(self):
        first = json.loads(self.recorded()[0])
        first["links"] = {"pages": {"next": f"{self.adapter.url}?page=2&per_page=200"}}
        responses.get(f"{self.adapter.url}?per_page=200", json=first)
        responses.get(f"{self.adapter.url}?page=2&per_page=200", body=self.payload("second_page"))
        assert len(self.adapter.fetch(self.environment)) == 2

    @responses.activate
    def test_the_token_is_not_sent_to_another_host(self):
        page = json.loads(self.recorded()[0])
        page["links"] = {"pages": {"next": "https://example.org/v2/sizes?page=2"}}
        responses.get(self.adapter.url, json=page)
        with pytest.raises(AnswerError, match="another host"):
            self.adapter.fetch(self.environment)
        assert len(responses.calls) == 1
