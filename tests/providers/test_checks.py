"""When a price is not believed."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.base import key
from providers.checks import (
    median,
    medians,
    outliers,
    spot_is_on_demand,
    unbelievable,
    without_outliers,
)


@pytest.fixture
def three(an_offer):
    return [an_offer(provider=p, usd_per_hour=Decimal(usd)) for p, usd in (("a", 24), ("b", 28), ("c", 20))]


@pytest.mark.parametrize("price", ["0", "-0.5", "NaN", "Infinity", "700.0", "0.00001"])
def test_a_price_that_is_no_price_has_a_reason(price: str):
    assert unbelievable(Decimal(price))


@given(st.decimals("0.01", "699", allow_nan=False, allow_infinity=False))
def test_an_ordinary_price_is_believed(price: Decimal):
    assert unbelievable(price) is None


def test_spot_is_only_doubted_where_both_prices_are_known_and_equal():
    assert spot_is_on_demand(Decimal("2.00"), Decimal("2"))
    assert spot_is_on_demand(Decimal("1.99"), Decimal("2")) is None
    assert spot_is_on_demand(None, Decimal("2")) is None
    assert spot_is_on_demand(Decimal("2"), None) is None


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=9))
def test_half_of_the_values_lie_on_each_side_of_the_median(values: list[float]):
    middle = median(values)
    assert sum(v <= middle for v in values) >= len(values) / 2
    assert sum(v >= middle for v in values) >= len(values) / 2


def test_every_provider_counts_once_in_the_middle_price(an_offer, three):
    many = [an_offer(provider="a", region=f"r{i}", usd_per_hour=Decimal(80)) for i in range(50)]
    assert medians([*many, *three[1:], an_offer(provider="d", usd_per_hour=Decimal(24))])[
        "H100-SXM5-80GB", "on-demand"
    ] == pytest.approx(26 / 8)


@pytest.mark.parametrize(("usd", "odd"), [("4.7", True), ("4.9", False), ("119", False), ("121", True)])
def test_a_price_outside_a_fifth_to_five_times_the_middle_is_an_outlier(usd: str, odd: bool, an_offer):
    usual = [an_offer(provider=p, usd_per_hour=Decimal(24)) for p in "abcde"]
    asked = an_offer(provider="b", region="x", usd_per_hour=Decimal(usd))
    assert (key(asked) in {o.key for o in outliers([*usual, asked])}) == odd


def test_an_outlier_loses_its_price_unless_it_is_explained(an_offer, three):
    odd = an_offer(provider="d", usd_per_hour=Decimal("1"))
    assert without_outliers([*three, odd], frozenset())[3].usd_per_hour is None
    assert "not believed" in (without_outliers([*three, odd], frozenset())[3].unknown_why or "")
    assert without_outliers([*three, odd], frozenset({key(odd)}))[3] == odd


def test_another_market_has_its_own_middle(an_offer, three):
    spot = an_offer(market="spot", usd_per_hour=Decimal("3"))
    assert outliers([*three, spot]) == ()
