"""The shipped catalog: every row sourced, priced per node, believed only where it can be."""

import csv
import re
from datetime import UTC, datetime
from decimal import Decimal
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.hardware.gpus import gpus
from planner.hardware.links import link
from planner.types import Offer
from providers import catalog
from providers.base import key, violations
from providers.catalog import Correction, corrected, newest, offer_of_row, overlay, seen, shipped
from providers.checks import outliers, usd_per_gpu_hour

NEEDED = ("aws", "gcp", "azure", "lambda", "runpod", "vast", "nebius", "verda", "coreweave", "oci", "crusoe")
MARKETS = {"on-demand", "spot", "capacity-block", "community", "reserved", "owned"}


def rows(name: str) -> list[dict[str, str]]:
    text = files("providers").joinpath(f"data/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def of(
    provider: str, instance_type: str, market: str = "on-demand", region: str | None = None
) -> list[Offer]:
    return [
        o
        for o in shipped()
        if (o.provider, o.instance_type, o.market) == (provider, instance_type, market)
        and region in (None, o.region)
    ]


# ------------------------------------------------------------------------------- rows


def test_the_catalog_keeps_the_contract():
    assert violations(shipped()) == ()


def test_every_row_is_a_valid_offer():
    for offer in shipped():
        assert Offer.model_validate(offer.model_dump()) == offer


@pytest.mark.parametrize("provider", NEEDED)
def test_the_catalog_has_offers_with_a_price_of(provider: str):
    assert any(o.usd_per_hour is not None for o in shipped() if o.provider == provider)


def test_every_row_names_a_source_with_address_and_licence():
    known = {r["id"]: r for r in rows("sources.csv")}
    for row in rows("catalog.csv"):
        source = known[row["source"]]
        assert source["title"]
        assert source["url"].startswith("https://")
        assert source["licence"]


def test_no_source_is_listed_that_no_row_uses():
    assert {r["id"] for r in rows("sources.csv")} == {r["source"] for r in rows("catalog.csv")}


def test_every_date_is_a_day_or_nothing():
    for row in rows("catalog.csv"):
        assert row["price_date"] == "" or seen(row["price_date"]) is not None


def test_an_undated_row_says_what_its_source_said_of_the_date():
    undated = [r for r in rows("catalog.csv") if not r["price_date"] and r["usd_per_hour"]]
    assert undated
    assert all("date not stated" in r["note"] for r in undated)


def test_no_price_is_from_the_future():
    assert max(o.price_seen for o in shipped() if o.price_seen) <= datetime(2026, 11, 30, tzinfo=UTC)


def test_every_market_is_one_of_ours():
    assert {o.market for o in shipped()} <= MARKETS


def test_every_gpu_is_in_the_gpu_table():
    assert {o.gpu for o in shipped()} <= {g.id for g in gpus()}


def test_every_link_is_in_the_link_table():
    for each in {o.links.intra for o in shipped()} | {o.links.inter for o in shipped()}:
        assert link(each).id == each


def test_every_provider_of_the_catalog_has_its_billing_rules():
    assert {o.provider for o in shipped()} == set(catalog.provider_rules())


def test_rows_are_sorted_so_that_a_change_is_a_small_diff():
    keys = [
        (r["provider"], r["instance_type"], r["region"], r["zone"], r["market"]) for r in rows("catalog.csv")
    ]
    assert keys == sorted(keys)
    assert len(keys) == len(set(keys))


def test_money_is_decimal_and_never_a_float():
    assert {type(o.usd_per_hour) for o in shipped()} == {Decimal, type(None)}


def test_a_price_is_of_the_node_not_of_a_gpu():
    """Within a provider, a GPU in a machine of 8 costs about what it costs alone."""
    alone = {
        (o.provider, o.gpu, o.market, o.region): usd_per_gpu_hour(o)
        for o in shipped()
        if o.gpus_per_node == 1 and o.usd_per_hour is not None and o.price_seen
    }
    checked = 0
    for o in shipped():
        single = alone.get((o.provider, o.gpu, o.market, o.region))
        each = usd_per_gpu_hour(o)
        if o.gpus_per_node == 8 and single and each and o.price_seen:
            assert 0.4 <= each / single <= 2.5, key(o)
            checked += 1
    assert checked > 30


@pytest.mark.parametrize(
    ("instance_type", "usd"),
    [("1x NVIDIA H100 80GB HBM3", "3.99"), ("8x NVIDIA H100 80GB HBM3", "31.92")],
)
def test_runpod_prices_are_multiplied_from_its_price_per_gpu(instance_type: str, usd: str):
    assert [o.usd_per_hour for o in of("runpod", instance_type)] == [Decimal(usd)]


# ------------------------------------------------------------------------------- what is not an offer


def test_fractions_of_a_gpu_and_bid_floors_are_left_out_and_counted():
    counted = {(n.provider, n.reason): n.count for n in catalog.not_offered()}
    assert counted["gcp", "fractional GPU"] == 30
    assert counted["mithril", "bid floor, not a price"] == 4
    assert not [
        o for o in shipped() if o.instance_type in ("g4-standard-6", "g4-standard-12", "g4-standard-24")
    ]


def test_starting_at_prices_of_a_marketplace_are_not_offers():
    assert not [o for o in shipped() if o.provider == "akash"]


def test_retired_sizes_are_not_offers():
    assert not [o for o in shipped() if o.instance_type in ("Standard_NC6s_v3", "Standard_NC12s_v3")]


@pytest.mark.parametrize("size", ["a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"])
def test_sizes_sold_as_spot_only_have_no_on_demand_offer(size: str):
    assert of("gcp", size, "spot")
    assert not of("gcp", size, "on-demand")


def test_what_is_sold_by_reservation_only_has_an_unknown_price():
    for offer in of("aws", "p5e.48xlarge", "capacity-block"):
        assert offer.usd_per_hour is None
        assert "capacity blocks" in (offer.unknown_why or "")
    assert not of("aws", "p5e.48xlarge", "on-demand")


def test_marketplaces_sell_single_machines():
    assert {o.max_nodes for o in shipped() if o.provider in ("vast", "runpod")} == {1}


def test_machines_with_a_fabric_are_sold_in_numbers():
    assert of("aws", "p5.48xlarge")[0].max_nodes is None
    assert of("aws", "p5.48xlarge")[0].links.inter == "efa-v2"


# ------------------------------------------------------------------------------- slips of vendors


def slip(**wrong: str) -> Offer:
    row = {
        "provider": "aws",
        "instance_type": "p5.4xlarge",
        "region": "us-east-1",
        "zone": "",
        "market": "on-demand",
        "gpu": "H100-SXM5-80GB",
        "gpus_per_node": "1",
        "vcpus": "16",
        "memory_gib": "256",
        "local_disk_gib": "",
        "usd_per_hour": "6.88",
        "unknown_why": "",
        "network_gbps": "100",
        "intra": "none (one GPU)",
        "inter": "EFAv2 x1",
        "max_nodes": "",
        "price_date": "2026-07-20",
        "source": "karpenter-aws",
        "note": "",
    }
    return corrected([offer_of_row({**row, **wrong})], overlay())[0]


def test_a_count_of_no_gpu_is_corrected():
    assert slip(gpus_per_node="0").gpus_per_node == 1


def test_twelve_gpus_in_a_machine_of_eight_are_corrected():
    found = slip(provider="azure", instance_type="Standard_ND96isr_H100_v5", gpus_per_node="12")
    assert found.gpus_per_node == 8


def test_a_free_machine_that_is_not_sold_on_demand_is_unknown():
    found = slip(instance_type="p5e.48xlarge", gpu="H200-SXM-141GB", gpus_per_node="8", usd_per_hour="0")
    assert found.usd_per_hour is None
    assert found.unknown_why


@pytest.mark.parametrize("price", ["0", "-1", "700", "0.00001"])
def test_a_price_that_cannot_be_one_is_unknown_with_its_reason(price: str):
    found = slip(usd_per_hour=price)
    assert found.usd_per_hour is None
    assert found.unknown_why


def test_the_size_with_two_gpus_is_not_listed_with_one():
    assert {o.gpus_per_node for o in of("azure", "Standard_NC32ads_A10_v4")} == {2}


def test_every_correction_is_dated_sourced_and_reasoned():
    for c in overlay():
        assert seen(c.date)
        assert c.source
        assert c.reason
        assert c.field in ("gpu", "gpus_per_node", "usd_per_hour", "explained")


def test_a_price_seen_after_the_correction_stands(an_offer):
    rule = Correction("acme", "c99.8x", "*", "*", "usd_per_hour", "", "2026-10-01", "s", "was wrong")
    later, before = an_offer(), an_offer(price_seen=datetime(2026, 9, 1, tzinfo=UTC))
    assert corrected([later], [rule]) == (later,)
    assert corrected([before], [rule])[0].usd_per_hour is None


# ------------------------------------------------------------------------------- newest wins, spot, outliers


@given(days=st.permutations([1, 2, 3]))
def test_the_newest_row_of_a_key_wins_in_any_order(days: list[int], an_offer):
    rows_ = [an_offer(price_seen=datetime(2026, 1, d, tzinfo=UTC), usd_per_hour=Decimal(d)) for d in days]
    assert [o.usd_per_hour for o in newest(rows_)] == [Decimal(3)]


@given(undated_first=st.booleans())
def test_a_row_without_a_date_loses_against_any_date(undated_first: bool, an_offer):
    pair = [an_offer(price_seen=None, usd_per_hour=Decimal(1)), an_offer(usd_per_hour=Decimal(9))]
    assert [o.usd_per_hour for o in newest(pair if undated_first else pair[::-1])] == [Decimal(9)]


def test_other_zones_and_markets_are_other_offers(an_offer):
    assert len(newest([an_offer(), an_offer(zone="a"), an_offer(market="spot"), an_offer(region="x")])) == 4


def test_a_spot_price_that_equals_on_demand_means_no_spot_market():
    spot = of("aws", "p5.48xlarge", "spot", "ca-central-1")[0]
    assert spot.usd_per_hour is None
    assert "equals on-demand" in (spot.unknown_why or "")


def test_the_outliers_of_the_catalog_are_these_and_each_is_explained():
    """Price per GPU-hour outside 0.2 to 5 times the middle of its GPU and market, with the source."""
    listed = {(o.key[0], o.key[1], o.source.split(" @")[0]) for o in outliers(shipped())}
    assert listed == {
        ("verda", "1V100.6V", "toolshedlabs-hash/gpu-price-feed, data/history/v2/2026-10.jsonl"),
        ("vast", "1x-A100_SXM4 40GB", "ewyluda/gpu-price-index, data/observations/2026/2026-10-10.csv"),
        ("vast", "1x-Tesla_V100", "skypilot-catalog, catalogs/v9/vast"),
        ("vast", "2x-Tesla_V100", "skypilot-catalog, catalogs/v9/vast"),
        ("vast", "4x-Tesla_V100", "skypilot-catalog, catalogs/v9/vast"),
    }
    reasons = {(c.provider, c.instance_type): c.reason for c in overlay() if c.field == "explained"}
    assert all(reasons[o.key[0], o.key[1]] for o in outliers(shipped()))


def test_a_newer_observation_makes_an_undated_price_unknown():
    (spot,) = of("verda", "1H100.80S.32V", "spot")
    (on_demand,) = of("verda", "1H100.80S.32V")
    assert on_demand.usd_per_hour == Decimal("3.627")
    assert spot.usd_per_hour is None
    assert "2.29" in (spot.unknown_why or "")


@pytest.mark.parametrize("family", [r"Standard_NC\d+ads_A100_v4", r"Standard_NC\d+ad(s|is)_H100_v5"])
def test_sizes_of_one_azure_family_cost_the_same_per_gpu(family):
    """A price of a Windows machine is 0.046 per vCPU higher: it would stand out here."""
    per_gpu: dict[tuple[str, str], list[Decimal]] = {}
    for o in shipped():
        if o.provider == "azure" and o.usd_per_hour is not None and re.fullmatch(family, o.instance_type):
            per_gpu.setdefault((o.region, o.market), []).append(o.usd_per_hour / o.gpus_per_node)
    assert sum(len(prices) > 1 for prices in per_gpu.values()) >= 10
    assert all(max(prices) <= min(prices) * Decimal("1.01") for prices in per_gpu.values())
