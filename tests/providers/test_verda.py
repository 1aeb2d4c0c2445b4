"""Prices of Verda."""

import json
from decimal import Decimal
from typing import ClassVar

import pytest
import responses

from providers.base import AnswerError, Parsed
from tests.providers.contract import SECRET, SEEN, HttpAdapterContract


class TestVerda(HttpAdapterContract):
    module = "verda"
    environment: ClassVar[dict[str, str]] = {"VERDA_CLIENT_ID": "client-4711", "VERDA_CLIENT_SECRET": SECRET}
    pages_of_a_fetch = 3

    def serve(self, content: bytes = b"", *, status: int = 200, **more: object) -> None:
        """A token first, then the answer to everything else."""
        responses.post(f"{self.adapter.url}/oauth2/token", json={"access_token": "token-4711"})
        super().serve(content, status=status, **more)

    def with_broken(self, name: str) -> Parsed:
        return self.adapter.parse([self.payload(name), *self.recorded()[1:]], SEEN)

    def test_the_price_is_of_the_machine_not_of_a_gpu(self):
        assert self.offer("2A6000.20V").usd_per_hour == Decimal("1.98")
        assert self.offer("2A6000.20V").gpus_per_node == 2

    def test_a_type_is_offered_where_it_is_free(self):
        free = {(o.market, o.region) for o in self.parsed().offers if o.instance_type == "1H100.80S.30V"}
        assert free == {("on-demand", "FIN-01"), ("on-demand", "FIN-02"), ("spot", "FIN-02")}

    def test_a_type_that_is_free_nowhere_is_not_available(self):
        offer = self.offer("8B300.240V")
        assert (offer.region, offer.available) == ("any", False)

    def test_a_missing_spot_price_is_no_spot_offer_at_the_price_on_demand(self):
        assert {o.market for o in self.parsed().offers if o.instance_type == "2A6000.20V"} == {"on-demand"}

    def test_new_types_are_read_from_the_description(self):
        assert self.offer("4H200.141S.176V").gpu == "H200-SXM-141GB"
        assert self.offer("8B300.240V").gpu == "B300-SXM-288GB"

    def test_machines_without_gpus_are_left_out(self):
        assert not [o for o in self.parsed().offers if o.instance_type.startswith("CPU")]

    def test_a_price_in_euro_is_not_read_as_dollars(self):
        types = json.loads(self.recorded()[0])
        types[0]["currency"] = "eur"
        found = self.adapter.parse([json.dumps(types).encode(), *self.recorded()[1:]], SEEN)
        assert found.num_unread == 1

    def test_types_without_what_is_free_are_an_error(self):
        with pytest.raises(AnswerError, match="0 availabilities"):
            self.adapter.parse(self.recorded()[:1], SEEN)

    @responses.activate
    def test_the_secret_goes_into_the_body_and_the_token_into_the_header(self):
        self.serve(self.recorded()[0])
        self.adapter.fetch(self.environment)
        token, *rest = responses.calls
        assert json.loads(token.request.body)["client_secret"] == SECRET
        assert {c.request.headers["Authorization"] for c in rest} == {"Bearer token-4711"}
        assert [c.request.params for c in rest] == [
            {"currency": "usd"},
            {"isSpot": "false"},
            {"isSpot": "true"},
        ]
        assert not [c for c in responses.calls if SECRET in c.request.url]

    @responses.activate
    def test_an_answer_without_a_token_is_an_error(self):
        responses.post(f"{self.adapter.url}/oauth2/token", json={"token_type": "Bearer"})
        with pytest.raises(AnswerError, match="no access_token"):
            self.adapter.fetch(self.environment)
