"""Ages of prices, against a time that is passed in."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.age import age_days, age_s, ages, mark, warning


@pytest.mark.parametrize(
    ("delta", "word"),
    [({"hours": 23}, "fresh"), ({"hours": 25}, "marked"), ({"days": 29}, "marked"), ({"days": 31}, "old")],
)
def test_a_day_is_marked_and_a_month_is_old(delta: dict[str, float], word: str, seen_at):
    assert mark(seen_at, seen_at + timedelta(**delta)) == word


def test_a_price_without_a_date_is_old(an_offer, seen_at):
    assert mark(None, seen_at) == "old"
    assert age_days(an_offer(price_seen=None), seen_at) is None


@given(delta=st.timedeltas(timedelta(days=-400), timedelta(days=400)))
def test_an_age_is_never_negative(delta: timedelta, seen_at):
    assert (age_s(seen_at, seen_at + delta) or 0) >= 0


def test_ages_count_only_offers_with_a_price(an_offer, seen_at):
    found = ages(
        [
            an_offer(),
            an_offer(region="b", price_seen=None),
            an_offer(region="c", price_seen=None, usd_per_hour=None, unknown_why="not sold"),
        ],
        seen_at + timedelta(days=40),
    )
    assert (found.num_priced, found.num_old, found.num_undated) == (2, 2, 1)
    assert found.oldest == found.newest == seen_at


def test_old_prices_give_one_line_for_the_header(an_offer, seen_at):
    line = warning(ages([an_offer(), an_offer(region="b", price_seen=None)], seen_at + timedelta(days=40)))
    assert line == (
        "2 of 2 prices are older than 30 days, 1 of them of unknown age (oldest dated 2026-11-01)"
    )


def test_fresh_prices_give_no_warning(an_offer):
    assert warning(ages([an_offer(usd_per_hour=Decimal(1))], datetime(2026, 11, 2, tzinfo=UTC))) is None
