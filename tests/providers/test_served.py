"""Live prices over the shipped catalog."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from planner.types import Offer
from providers import registry, snapshot
from providers.catalog import shipped
from providers.served import merged, served
from providers.snapshot import Snapshot

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
Build = Callable[..., Offer]


def live(of: Offer, price: str | None, **changed: object) -> Offer:
    """``of`` as a live adapter sees it now."""
    new = {
        "usd_per_hour": None if price is None else Decimal(price),
        "unknown_why": None if price else "no price",
        "price_seen": NOW,
        "origin": "live",
        "source": "an API",
        **changed,
    }
    return of.model_copy(update=new)


def a_shipped(market: str = "on-demand", provider: str = "aws", gpu: str = "H100") -> Offer:
    return next(
        o
        for o in shipped()
        if (o.provider, o.market) == (provider, market) and o.gpu.startswith(gpu) and o.usd_per_hour
    )


def keep(*offers: Offer, complete: bool = False, provider: str = "aws", seen: datetime = NOW) -> None:
    snapshot.save(Snapshot(provider, seen, complete, offers), snapshot.directory())


def find(of: Offer) -> list[Offer]:
    return [
        o
        for o in registry.offers([of.provider]).offers
        if (o.instance_type, o.region, o.market) == (of.instance_type, of.region, of.market)
    ]


def test_without_snapshots_the_catalog_is_served():
    assert served().offers == shipped()


def test_a_live_price_takes_the_place_of_the_shipped_one():
    old = a_shipped()
    assert old.usd_per_hour is not None
    keep(live(old, str(old.usd_per_hour + 1)))
    (found,) = find(old)
    assert (found.usd_per_hour, found.origin) == (old.usd_per_hour + 1, "live")
    assert len(served().offers) == len(shipped())


def test_spot_prices_of_zones_take_the_place_of_the_one_of_the_region():
    old = a_shipped("spot")
    assert old.usd_per_hour is not None
    low, high = str(old.usd_per_hour), str(old.usd_per_hour * 2)
    keep(live(old, low, zone="az1"), live(old, high, zone="az2"))
    assert {o.zone for o in find(old)} == {"az1", "az2"}


def test_a_provider_that_names_everything_drops_the_rest_of_its_catalog(an_offer: Build):
    old = a_shipped(provider="lambda")
    keep(live(old, str(old.usd_per_hour)), complete=True, provider="lambda")
    assert len(registry.offers(["lambda"]).offers) == 1


def test_a_shipped_price_that_is_newer_than_the_snapshot_stays(an_offer: Build):
    old = an_offer(price_seen=NOW + timedelta(days=1))
    seen_before = Snapshot("acme", NOW, True, (live(old, "20", region="other"),))
    assert old in merged([old], seen_before.offers, [seen_before])


@pytest.mark.parametrize("factor", ["0.19", "5.1"])
def test_a_live_price_far_from_the_shipped_one_of_its_market_is_not_believed(factor: str):
    old = a_shipped(gpu="L4")
    middle = Decimal("0.8") * old.gpus_per_node
    keep(live(old, str(middle * Decimal(factor) * (2 if factor > "1" else Decimal("0.5")))))
    (found,) = find(old)
    assert found.usd_per_hour is None
    assert "not believed" in str(found.unknown_why)


def test_a_live_spot_price_that_equals_the_price_on_demand_is_no_spot_market():
    demand, spot = a_shipped(), a_shipped()
    keep(live(demand, str(demand.usd_per_hour)), live(spot, str(spot.usd_per_hour), market="spot"))
    found = [o for o in find(spot.model_copy(update={"market": "spot"}))]
    assert [(o.usd_per_hour, "spot equals on-demand" in str(o.unknown_why)) for o in found] == [(None, True)]


def test_the_overlay_corrects_live_rows_too():
    old = a_shipped()
    keep(live(old, "6.88", instance_type="p5.4xlarge", region="nowhere-1", gpus_per_node=0, gpu="T4"))
    (found,) = [o for o in registry.offers(["aws"]).offers if o.region == "nowhere-1"]
    assert (found.gpu, found.gpus_per_node) == ("H100-SXM5-80GB", 1)


def test_a_damaged_file_is_warned_of_and_the_catalog_serves():
    keep(live(a_shipped(), "1"))
    snapshot.path_of("aws", snapshot.directory()).write_text("damaged")
    registry.provider_names()  # read first by something that shows no warnings
    found = registry.offers()
    assert found.offers == shipped()
    assert [w for w in found.warnings if "set aside as aws.bad" in w]


def test_a_gpu_that_this_version_does_not_know_is_left_out_with_a_warning():
    keep(live(a_shipped(), "55"), live(a_shipped(), "99", gpu="H999", region="nowhere-2"))
    found = registry.offers()
    assert "nowhere-2" not in registry.region_names()
    assert [w for w in found.warnings if "1 live prices of GPUs" in w]


def test_a_new_file_is_seen_at_once():
    assert served().offers == shipped()
    keep(live(a_shipped(), "55.5"))
    assert served().offers != shipped()


def test_unknown_gpu_strings_of_snapshots_are_shown(an_offer: Build):
    from providers.base import UnknownGpu

    snapshot.save(
        Snapshot("aws", NOW, False, (live(a_shipped(), "55"),), (UnknownGpu("aws", "Zeus", 3),)),
        snapshot.directory(),
    )
    assert [(u.name, u.count) for u in registry.offers().unknown_gpus] == [("Zeus", 3)]


def test_no_adapter_and_no_sdk_is_imported_to_serve(tmp_path: Path):
    import os
    import subprocess
    import sys

    script = (
        "import sys; from providers import registry; registry.offers();"
        "print([m for m in ('boto3', 'botocore', 'requests', 'providers.aws', 'providers.adapters')"
        " if m in sys.modules])"
    )
    environment = {**os.environ, "PLAN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "[]", done.stderr


def test_problems_with_files_are_told_apart_from_old_prices():
    keep(live(a_shipped(), "55"))
    assert registry.problems() == ()
    snapshot.path_of("aws", snapshot.directory()).write_text("damaged")
    assert len(registry.problems()) == 1
