"""Prices of Vast.ai."""

import json
from decimal import Decimal
from typing import ClassVar

import responses

from tests.providers.contract import SECRET, SEEN, HttpAdapterContract


class TestVast(HttpAdapterContract):
    module = "vast"
    environment: ClassVar[dict[str, str]] = {"VAST_API_KEY": SECRET}
    pages_of_a_fetch = 4

    def test_the_cheapest_machine_of_a_country_is_kept(self):
        assert self.offer("1x-RTX_4090", region="CN").usd_per_hour == Decimal("0.35")
        assert self.offer("1x-RTX_4090", region="DE").usd_per_hour == Decimal("0.42")

    def test_memory_tells_cards_of_one_name_apart(self):
        gpus = {o.instance_type: o.gpu for o in self.parsed().offers}
        assert gpus["1x-A100_SXM4_40GB"] == "A100-SXM4-40GB"
        assert gpus["1x-A100_SXM4_80GB"] == "A100-SXM4-80GB"

    def test_a_card_with_less_memory_than_ours_is_unknown(self):
        assert [u.name for u in self.parsed().unknown_gpus] == ["RTX 4060 Ti 8GB", "Zeus 9 48GB"]

    def test_the_price_of_a_machine_is_not_multiplied_by_its_gpus(self):
        assert self.offer("8x-H200").usd_per_hour == Decimal(24)

    def test_a_bid_is_the_price_of_the_spot_market(self):
        assert self.offer("8x-H200", "spot").usd_per_hour == Decimal(12)

    def test_unknown_cores_stay_unknown(self):
        assert self.offer("1x-RTX_4090", region="DE").vcpus is None

    def test_one_offer_that_is_no_list_is_read_as_documented(self):
        one = {"offers": json.loads(self.recorded()[0])["offers"][5]}
        assert len(self.adapter.parse([json.dumps(one).encode()], SEEN).offers) == 2

    @responses.activate
    def test_only_verified_machines_that_are_free_are_asked_for(self):
        self.serve(self.recorded()[0])
        self.adapter.fetch(self.environment)
        asked = [json.loads(c.request.body) for c in responses.calls]
        assert [a["num_gpus"]["eq"] for a in asked] == [1, 2, 4, 8]
        assert all(a["verified"] == {"eq": True} and a["rentable"] == {"eq": True} for a in asked)
