"""``plan compare``: rent or buy, and what the user brings to ``suggest`` and ``prices``."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from planner.cli import main
from planner.cli.prices.comparison import CompareDocument, Comparison, comparison
from planner.cli.screens import compare as screens_compare
from planner.cli.text import Terminal
from planner.ownership import OwnedMachine
from planner.types import Links, Offer
from providers import owned
from tests.cli.test_screens import Screen

NOW = datetime(2026, 11, 30, tzinfo=UTC)
MACHINE = "2x rtx-4090, purchase_usd=5200, electricity_usd_per_kwh=0.30, hours_used_per_month=300"
WHOLE = f"{MACHINE}, power_idle_w=120, hosting_usd_per_month=0, resale_usd=0, power_load_w=1200"
Run = Callable[..., str]


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PLAN_CACHE_DIR", str(tmp_path / "cache"))

    def run(*arguments: str, code: int = 0) -> str:
        assert main.run(arguments) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return run


def rental(price: str, gpus: int = 2, **changed: object) -> Offer:
    fields = {
        "provider": "acme",
        "instance_type": f"{gpus}x 4090",
        "region": "north-1",
        "market": "on-demand",
        "gpu": "RTX 4090",
        "gpus_per_node": gpus,
        "links": Links(intra="pcie4-host", inter="ethernet"),
        "usd_per_hour": Decimal(price),
        "price_seen": NOW - timedelta(days=3),
        "source": "a price list",
        **changed,
    }
    return Offer.model_validate(fields)


def machine(words: str = WHOLE) -> OwnedMachine:
    return owned.machines_of(words)[0]


def against(*offers: Offer, words: str = WHOLE, top: int = 9) -> Comparison:
    return comparison("mine", machine(words), offers, top)


def drawn(found: Comparison, width: int = 100) -> str:
    return screens_compare.comparisons([found], NOW, Terminal(width=width))


# ---------------------------------------------------------------------------------- what is compared


def test_only_the_same_gpu_is_compared():
    found = against(rental("1"), rental("0.1", gpu="L4", provider="other"))
    assert [r.provider for r in found.rents] == ["acme"]
    assert found.num_offers == 1


def test_a_larger_machine_is_rented_whole_and_small_ones_are_taken_together():
    whole, several = against(rental("4", 8)).rents[0], against(rental("0.4", 1)).rents[0]
    assert (whole.num_nodes, whole.usd_per_hour) == (1, "4")
    assert (several.num_nodes, several.usd_per_hour) == (2, "0.8")
    three = against(rental("1", 2), words=WHOLE.replace("2x", "3x")).rents[0]
    assert (three.num_nodes, three.usd_per_hour) == (2, "2")


def test_the_reference_is_one_machine_that_is_not_taken_away():
    spot = rental("0.5", market="spot", provider="spotty")
    small = rental("0.3", 1, provider="small")
    found = against(spot, small, rental("1.2"))
    assert [r.provider for r in found.rents] == ["spotty", "small", "acme"]
    assert found.reference.provider == "acme"
    assert found.cheaper == found.reference.cheaper


def test_each_provider_and_market_is_listed_once_with_its_cheapest():
    found = against(rental("2"), rental("1", region="south-1"), rental("3", market="spot"))
    assert [(r.region, r.market) for r in found.rents] == [("south-1", "on-demand"), ("north-1", "spot")]
    assert len(against(rental("2"), rental("1", market="spot"), top=1).rents) == 1


def test_an_offer_without_a_price_is_not_compared():
    assert against(rental("1").model_copy(update={"usd_per_hour": None})).rents == ()


# ---------------------------------------------------------------------------------- figures


def test_break_even_lies_where_both_costs_of_a_month_meet():
    """own(h) = 5200/48 + 0.036 (730 - h) + 0.36 h, rent(h) = 0.8 h."""
    rent = against(rental("0.8")).rents[0]
    at = (Decimal(5200) / 48 + Decimal("0.036") * 730) / (Decimal("0.8") - Decimal("0.36") + Decimal("0.036"))
    assert float(rent.break_even_hours_per_month) == pytest.approx(float(at), abs=1e-3)
    assert rent.cheaper == "own"


def test_the_table_by_use_changes_sides_at_the_break_even():
    found = against(rental("0.8"))
    at = float(found.reference.break_even_hours_per_month)
    for use in found.by_use:
        assert (Decimal(use.own_usd) < Decimal(use.rent_usd)) == (use.hours > at)


def test_scaling_multiplies_purchase_and_months():
    found = against(rental("0.8"))
    one, *more = found.by_fleet
    for fleet in more:
        assert fleet.gpus == 2 * fleet.machines
        assert Decimal(fleet.purchase_usd) == fleet.machines * Decimal(one.purchase_usd)
        assert Decimal(fleet.rent_usd_per_month) == fleet.machines * Decimal(one.rent_usd_per_month)


def test_dearer_electricity_raises_the_cost_and_the_break_even():
    cheap, dear = (against(rental("0.8"), words=WHOLE.replace("0.30", usd)) for usd in ("0.15", "0.30"))
    assert Decimal(cheap.usd_per_month) < Decimal(dear.usd_per_month)
    assert Decimal(cheap.reference.break_even_hours_per_month) < Decimal(
        dear.reference.break_even_hours_per_month
    )


def test_without_a_purchase_price_whether_to_buy_is_unknown():
    found = against(rental("0.8"), words="2x rtx-4090")
    assert found.cheaper == "unknown"
    assert found.rents[0].break_even_hours_per_month is None
    assert "unknown without purchase_usd" in drawn(found)


# ---------------------------------------------------------------------------------- the screen


def test_owning_and_renting_stand_side_by_side():
    screen = drawn(against(rental("0.8")))
    assert "OWN" in screen
    assert "Cloud: acme 2x 4090 (north-1), $0.80 / h, price age 3 d *" in screen
    for word in ("purchase", "operation", "scaling", "a month", "BREAK-EVEN", "USE A MONTH", "MACHINES"):
        assert word in screen
    assert "Own: it is cheaper from 283 h of use a month" in screen


def test_parts_that_are_not_known_make_every_own_figure_a_lower_bound():
    screen = drawn(against(rental("0.8"), words=MACHINE))
    assert "unknown power when idle, hosting" in screen
    assert "≥" in screen
    assert "at least" in screen
    assert "≥" not in drawn(against(rental("0.8")))


def test_assumptions_are_named():
    screen = drawn(against(rental("0.8"), words="2x rtx-4090"))
    assert "Assumed: electricity 0.16 USD/kWh; 365 h of use a month; 1260 W under load" in screen


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ("0.2", "is cheaper whatever the use"),
        ("0.6", "Rent: owning is cheaper only from"),
        ("2", "paid back after"),
    ],
)
def test_the_verdict_says_which_and_from_when(price: str, said: str):
    assert said in screens_compare.verdict(against(rental(price)))


def test_no_offer_of_the_gpu_leaves_nothing_to_compare_with():
    screen = drawn(against())
    assert "Cloud: no offer of RTX 4090 has a price" in screen
    assert "nothing to compare with" in screen


@pytest.mark.parametrize("width", [80, 100])
def test_the_screen_of_a_comparison(width: int, snapshot: SnapshotAssertion):
    offers = (
        rental("0.8"),
        rental("0.55", market="spot", price_seen=NOW - timedelta(days=40)),
        rental("0.3", 1, provider="small", market="community", price_seen=None),
        rental("3.6", 8, provider="big", price_seen=NOW - timedelta(hours=2)),
    )
    screen = drawn(against(*offers, words=MACHINE), width)
    assert f"{screen}\n" == snapshot.use_extension(Screen)


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(width: int):
    offers = (rental("0.8"), rental("0.6", market="community", provider="a-provider-of-long-name"))
    for words in (WHOLE, MACHINE, "2x rtx-4090"):
        assert max(map(len, drawn(against(*offers, words=words), width).splitlines())) <= width


# ---------------------------------------------------------------------------------- the command


def test_the_document_is_that_of_its_schema(plan: Run):
    found = CompareDocument.model_validate_json(plan("compare", "--own", WHOLE, "--own", "l40s", "--json"))
    assert [c.gpu for c in found.comparisons] == ["RTX 4090", "L40S"]
    assert found.comparisons[0].rents
    assert plan("compare", "--own", WHOLE, "--quiet").split() == [found.comparisons[0].cheaper]


def test_filters_choose_what_is_compared(plan: Run):
    answer = json.loads(plan("compare", "--own", WHOLE, "--provider", "runpod", "--spot", "--json"))
    (found,) = answer["comparisons"]
    assert {(r["provider"], r["market"]) for r in found["rents"]} == {("runpod", "spot")}


def test_the_users_own_prices_are_compared_too(plan: Run, tmp_path: Path):
    path = tmp_path / "mine.csv"
    path.write_text("provider,gpu,gpus,price_per_hour\nregio,rtx-4090,2,0.05\n")
    found = json.loads(plan("compare", "--own", WHOLE, "--price-list", str(path), "--json"))
    assert found["comparisons"][0]["reference"]["provider"] == "regio"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say which machine"),
        (["--own", "2x rtx-4900"], "did you mean"),
        (["--own", WHOLE, "--provider", "nosuch"], "nosuch"),
        (["--own", WHOLE, "--market", "free"], "--market"),
        (["--own", WHOLE, "--price-list", "nosuch.csv"], "no such file"),
        (["--own", WHOLE, "--top", "0"], "--top"),
    ],
)
def test_bad_input_is_one_error_and_a_hint(plan: Run, arguments: list[str], said: str):
    printed = plan("compare", *arguments, code=2)
    assert printed.startswith("error: ")
    assert said in printed
    assert "\nhint: " in printed


# ---------------------------------------------------------------------------------- suggest and prices


SMALL = ("--params", "125M", "--tokens", "100M", "--top", "1")


def test_suggest_ranks_owned_machines_and_names_their_assumptions(plan: Run):
    answer = json.loads(plan("suggest", *SMALL, "--own", MACHINE, "--provider", "own", "--json"))
    (best,) = answer["candidates"]
    assert (best["offer"]["provider"], best["offer"]["market"]) == ("own", "owned")
    assert best["cost_is_complete"]
    assert any("1260 W under load" in a for a in answer["assumptions"])


def test_suggest_uses_no_more_machines_than_there_are(plan: Run):
    three = f"{MACHINE}, machines=3, network_gbit_per_s=100"
    answer = json.loads(plan("suggest", *SMALL, "--own", three, "--provider", "own", "--json"))
    assert all(c["shape"]["num_nodes"] <= 3 for c in answer["candidates"])


def test_suggest_takes_the_users_prices(plan: Run, tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("- {provider: regio, gpu: L40S, gpus: 1, price_per_hour: 0.01}\n")
    answer = json.loads(plan("suggest", *SMALL, "--price-list", str(path), "--json"))
    assert answer["candidates"][0]["offer"]["provider"] == "regio"


def test_prices_shows_the_users_prices_and_discounts(plan: Run, tmp_path: Path):
    path = tmp_path / "mine.csv"
    path.write_text(
        "provider,instance_type,region,market,price_per_hour,discount_factor\n"
        "aws,p5.48xlarge,us-east-1,reserved,30,\naws,,,on-demand,,0.5\n"
    )
    gpu = ("--provider", "aws", "--gpu", "h100-sxm5-80gb", "--region", "us-east-1", "--json")
    before = {
        (o["instance_type"], o["market"]): o["usd_per_hour"]
        for o in json.loads(plan("prices", *gpu))["offers"]
    }
    after = {
        (o["instance_type"], o["market"]): o["usd_per_hour"]
        for o in json.loads(plan("prices", *gpu, "--price-list", str(path)))["offers"]
    }
    on_demand = ("p5.48xlarge", "on-demand")
    assert Decimal(after[on_demand]) == Decimal(before[on_demand]) / 2
    assert after["p5.48xlarge", "reserved"] == "30"
    assert after["p5.48xlarge", "spot"] == before["p5.48xlarge", "spot"]


def test_a_running_cluster_is_asked_only_where_it_is_named(plan: Run, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def nodes(address: str) -> list[dict[str, object]]:
        asked.append(address)
        resources = {"CPU": 16.0, "GPU": 2.0, "accelerator_type:GeForce-RTX-4090": 1.0}
        return [{"Alive": True, "NodeID": "a", "Resources": resources}]

    monkeypatch.setattr(owned, "ray_nodes", nodes)
    plan("compare", "--own", WHOLE)
    assert asked == []
    (found,) = json.loads(plan("compare", "--own-ray", "auto", "--json"))["comparisons"]
    assert asked == ["auto"]
    assert (found["gpu"], found["gpus"], found["cheaper"]) == ("RTX 4090", 2, "unknown")


def test_a_machine_that_is_paid_for_costs_what_it_takes_to_run(plan: Run):
    paid = "2x rtx-4090, purchase_usd=0, power_idle_w=60, hosting_usd_per_month=0"
    screen = " ".join(plan("compare", "--own", paid).split())
    for said in ("purchase already paid for", "it is already paid for.", "unknown for each further machine"):
        assert said in screen
    (found,) = json.loads(plan("compare", "--own", paid, "--json"))["comparisons"]
    assert (found["purchase_usd"], found["purchase_usd_per_month"], found["cheaper"]) == ("0", "0", "own")
    assert found["unknown"] == []
    assert not any("life" in said or "resale" in said for said in found["assumed"])
    assert found["by_fleet"][1]["purchase_usd"] is None
