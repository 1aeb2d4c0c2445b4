"""Offers by filter, and what is said of the rest."""

import socket
from datetime import UTC, datetime

import pytest

from planner.errors import UserError
from providers import registry

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def test_without_filters_all_offers_come_sorted_and_the_same_each_time():
    first, second = registry.offers(), registry.offers()
    assert first.offers == second.offers
    assert len(first.offers) > 1000
    assert first.num_unpriced == sum(o.usd_per_hour is None for o in first.offers)


def test_no_network_is_used(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert registry.offers().offers


@pytest.mark.parametrize("provider", ["aws", "Lambda"])
def test_a_provider_is_found_in_any_spelling(provider: str):
    assert {o.provider for o in registry.offers([provider]).offers} == {provider.lower()}


def test_filters_hold_together():
    found = registry.offers(["aws", "gcp"], gpus=["H100"], market="spot", regions=["us-east-1"]).offers
    assert found
    for offer in found:
        assert offer.provider in ("aws", "gcp")
        assert offer.gpu.startswith("H100")
        assert (offer.market, offer.region) == ("spot", "us-east-1")


def test_on_demand_means_whatever_is_not_taken_away():
    assert {o.market for o in registry.offers(market="on-demand").offers} >= {"on-demand", "community"}
    assert "spot" not in {o.market for o in registry.offers(market="on-demand").offers}


def test_an_unknown_provider_is_refused_with_near_names():
    with pytest.raises(UserError, match="did you mean nebius"):
        registry.offers(["nebbius"])


def test_an_unknown_region_is_refused_with_near_names():
    with pytest.raises(UserError, match=r"did you mean .*us-east-1"):
        registry.offers(regions=["us-eest-1"])


def test_a_provider_without_any_offer_is_skipped_with_the_reason():
    assert [(s.provider, "floor" in s.reason) for s in registry.offers().skipped] == [("akash", True)]


def test_what_is_not_an_offer_is_counted_for_the_providers_asked_for():
    assert {n.provider for n in registry.offers(["gcp"]).not_offered} == {"gcp"}


def test_old_prices_are_warned_of_when_a_time_is_given():
    assert registry.offers().warnings == ()
    assert registry.offers().ages is None
    found = registry.offers(now=NOW)
    assert len(found.warnings) == 1
    assert found.ages is not None
    assert found.ages.num_old > 0
