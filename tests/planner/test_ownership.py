"""What owning costs, and where it meets renting."""

import csv
from decimal import Decimal
from importlib.resources import files

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from planner.ownership import HOURS_A_MONTH, OwnedMachine, Ownership, break_even, defaults, ownership

FULL = {
    "gpu": "RTX 4090",
    "gpus": 2,
    "purchase_usd": Decimal(4800),
    "resale_usd": Decimal(0),
    "lifetime_years": Decimal(4),
    "power_load_w": Decimal(1000),
    "power_idle_w": Decimal(100),
    "electricity_usd_per_kwh": Decimal("0.30"),
    "hosting_usd_per_month": Decimal(10),
    "hours_used_per_month": Decimal(300),
}


def machine(**changed: object) -> OwnedMachine:
    return OwnedMachine.model_validate({**FULL, **changed})


def cost(**changed: object) -> Ownership:
    return ownership(machine(**changed))


money = st.decimals(1, 100_000, places=2)
prices = st.decimals("0.01", "50", places=3)
hours = st.decimals(1, HOURS_A_MONTH, places=1)
machines = st.builds(
    machine,
    purchase_usd=money,
    lifetime_years=st.decimals("0.5", 10, places=1),
    power_load_w=st.decimals(100, 15_000, places=0),
    power_idle_w=st.decimals(0, 100, places=0),
    electricity_usd_per_kwh=st.decimals("0.01", 1, places=3),
    hosting_usd_per_month=st.decimals(0, 5000, places=2),
    hours_used_per_month=hours,
)


def test_a_month_is_purchase_hosting_idle_and_load():
    """4800 / 48 + 10 + 430 h x 0.1 kW x 0.30 + 300 h x 1 kW x 0.30."""
    assert cost().month_usd(Decimal(300)) == 100 + 10 + Decimal("12.9") + 90
    assert cost().usd_per_hour == Decimal("212.9") / 300


def test_what_it_brings_at_the_end_is_not_lost():
    assert cost(resale_usd=Decimal(1200)).purchase_usd_per_month == 75


@given(machines)
def test_dearer_electricity_raises_the_cost(each: OwnedMachine):
    double = each.model_copy(update={"electricity_usd_per_kwh": each.electricity_usd_per_kwh * 2})
    before, after = ownership(each), ownership(double)
    assert after.usd_per_hour > before.usd_per_hour
    assert after.load_usd_per_hour == 2 * before.load_usd_per_hour


@given(machines, hours, hours)
def test_more_use_costs_more_a_month_and_less_an_hour(each: OwnedMachine, some: Decimal, more: Decimal):
    assume(some < more)
    found = ownership(each)
    assert found.month_usd(some) <= found.month_usd(more)
    assert found.month_usd(some) / some >= found.month_usd(more) / more


@given(machines, prices)
def test_at_the_break_even_both_lines_meet_and_cross(each: OwnedMachine, rent: Decimal):
    found = ownership(each)
    at = break_even(each, found, rent).hours_per_month
    if at is None:
        assert found.month_usd(HOURS_A_MONTH) > rent * HOURS_A_MONTH
        return
    assert found.month_usd(at) == pytest.approx(rent * at)
    assert found.month_usd(at / 2) > rent * at / 2
    assert found.month_usd(at * 2) < rent * at * 2


@given(machines, prices)
def test_after_the_payback_the_rent_saved_has_paid_for_the_machine(each: OwnedMachine, rent: Decimal):
    found = ownership(each)
    total = break_even(each, found, rent).hours_total
    used = found.hours_used_per_month
    running = (found.month_usd(used) - found.purchase_usd_per_month) / used
    if total is None:
        life_h = used * found.lifetime_months
        assert each.purchase_usd + running * life_h >= rent * life_h * Decimal("0.999999")
    else:
        assert each.purchase_usd + running * total == pytest.approx(rent * total)


@given(machines, prices)
def test_the_month_break_even_and_the_payback_say_the_same(each: OwnedMachine, rent: Decimal):
    """Paid back within its life exactly where the stated use is above the break-even."""
    found = break_even(each, ownership(each), rent)
    above = found.hours_per_month is not None and each.hours_used_per_month > found.hours_per_month
    if found.hours_per_month is not None:
        assume(abs(each.hours_used_per_month / found.hours_per_month - 1) > Decimal("0.0001"))
    assert (found.hours_total is not None) == above


@given(machines, prices)
def test_a_dearer_rent_never_raises_the_break_even(each: OwnedMachine, rent: Decimal):
    found = ownership(each)
    cheap, dear = (break_even(each, found, r).hours_per_month for r in (rent, rent * 2))
    assert cheap is None or dear <= cheap


def test_without_a_purchase_price_nothing_is_known_of_buying():
    each = machine(purchase_usd=None)
    assert break_even(each, ownership(each), Decimal(5)).is_known is False
    assert ownership(each).unknown == ("purchase price",)


def test_what_was_not_said_is_assumed_and_named_or_unknown_and_named():
    found = ownership(OwnedMachine(gpu="RTX 4090", gpus=2))
    assert found.assumed == (
        "electricity 0.16 USD/kWh",
        "365 h of use a month",
        "1260 W under load (2 × 450 W × 1.4)",
    )
    assert found.unknown == ("purchase price", "power when idle", "hosting")
    assert (found.purchase_usd_per_month, found.idle_usd_per_hour, found.hosting_usd_per_month) == (None,) * 3


def test_what_was_said_is_not_assumed():
    assert cost().assumed == ()
    assert cost().unknown == ()
    assert cost(lifetime_years=None, resale_usd=None).assumed == ("a life of 4 years", "no resale value")


def test_a_machine_that_never_idles_needs_no_idle_power():
    assert cost(power_idle_w=None, hours_used_per_month=HOURS_A_MONTH).unknown == ()


def test_a_server_draws_more_around_its_gpus_than_a_pc():
    server = ownership(OwnedMachine(gpu="H100-SXM5-80GB", gpus=8))
    assert "10080 W under load (8 × 700 W × 1.8)" in server.assumed


def test_no_known_cost_is_no_price():
    each = OwnedMachine(gpu="RTX 4090", electricity_usd_per_kwh=Decimal(0))
    assert ownership(each).usd_per_hour is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("purchase_usd", -1),
        ("purchase_usd", "NaN"),
        ("lifetime_years", 0),
        ("hours_used_per_month", 731),
        ("power_load_w", -1),
        ("gpus", 0),
    ],
)
def test_figures_that_cannot_be_are_refused(name: str, value: object):
    with pytest.raises(ValidationError):
        machine(**{name: value})


def test_every_assumption_has_a_source_a_unit_and_a_date():
    text = files("planner").joinpath("data/ownership.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert {r["name"] for r in rows} == set(defaults())
    assert all(r["source"] and r["unit"] and len(r["date"]) == 10 for r in rows)
