"""Prices of Azure."""

import json
from collections.abc import Callable
from decimal import Decimal

import pytest
import responses
from requests import PreparedRequest

from providers.azure import Azure
from providers.base import AnswerError
from tests.providers.contract import SEEN, HttpAdapterContract


class TestAzure(HttpAdapterContract):
    module = "azure"

    def asking(self) -> Azure:
        return Azure(regions=("eastus",))

    def test_windows_low_priority_and_reservations_are_no_prices_of_a_linux_node(self):
        assert self.offer("Standard_ND96isr_H100_v5").usd_per_hour == Decimal("98.32")
        assert self.offer("Standard_NC24ads_A100_v4").usd_per_hour == Decimal("3.673")

    def test_spot_is_a_market_of_its_own(self):
        assert self.offer("Standard_ND96isr_H100_v5", "spot").usd_per_hour == Decimal("18.169536")

    def test_a_price_of_the_future_does_not_count_yet(self):
        assert self.offer("Standard_ND96isr_H100_v5").usd_per_hour != Decimal("97")

    def test_the_product_of_cloud_services_does_not_count(self):
        assert self.offer("Standard_NC4as_T4_v3").usd_per_hour == Decimal("0.526")

    def test_a_price_of_0_is_unknown(self):
        offer = self.offer("Standard_NC40ads_H100_v5")
        assert (offer.usd_per_hour, offer.unknown_why) == (None, "price 0 is not above 0")

    def test_regions_are_lower_case(self):
        assert self.offer("Standard_NC24ads_A100_v4").region == "westus3"

    def test_the_number_of_gpus_is_that_of_the_catalog_not_of_the_name(self):
        assert self.offer("Standard_ND96isr_H100_v5").gpus_per_node == 8

    @responses.activate
    def test_pages_are_followed_to_the_end(self):
        first = json.loads(self.recorded()[0])
        first["NextPageLink"] = "https://prices.azure.com:443/api/retail/prices?$skip=1000"
        responses.get(self.adapter.url, json=first)
        responses.get("https://prices.azure.com:443/api/retail/prices", body=self.payload("second_page"))
        assert len(self.asking().fetch({})) == 2

    @responses.activate
    def test_a_full_page_without_a_link_is_followed_by_count(self):
        full = json.loads(self.recorded()[0])
        full["Items"] = full["Items"][:1] * 100
        responses.get(self.adapter.url, json=full)
        responses.get(self.adapter.url, body=self.payload("second_page"))
        assert len(self.asking().fetch({})) == 2
        assert responses.calls[1].request.url.endswith("skip=100")

    @responses.activate
    def test_a_next_page_on_another_host_is_refused(self):
        page = json.loads(self.recorded()[0])
        page["NextPageLink"] = "https://example.org/more"
        responses.get(self.adapter.url, json=page)
        with pytest.raises(AnswerError, match="another host"):
            self.asking().fetch({})

    @responses.activate
    def test_a_region_that_fails_is_noted_and_leaves_the_others(self):
        responses.get(self.adapter.url, body=self.recorded()[0], match=[self.region("eastus")])
        responses.get(self.adapter.url, status=500, match=[self.region("westus3")])
        parsed = self.adapter.parse(Azure(regions=("eastus", "westus3")).fetch({}), SEEN)
        assert parsed.offers == self.parsed().offers
        assert parsed.missing_regions == ("westus3",)
        assert [n for n in parsed.notes if "westus3 (prices.azure.com: HTTP 500)" in n]

    def region(self, name: str) -> Callable[[PreparedRequest], tuple[bool, str]]:
        """Match requests for a region."""
        return lambda request: (name in str(request.url), "another region")

    @responses.activate
    def test_paging_that_leads_back_is_an_error(self):
        page = json.loads(self.recorded()[0])
        page["NextPageLink"] = "https://prices.azure.com/api/retail/prices?$skip=7"
        responses.get(self.adapter.url, json=page)
        with pytest.raises(AnswerError, match="does not end"):
            self.asking().fetch({})
