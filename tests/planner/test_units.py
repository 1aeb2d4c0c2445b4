"""Quantities as people type them, and as we print them."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import units
from planner.errors import UserError
from planner.types import Band

PARSERS = (
    units.parse_count,
    units.parse_int,
    units.parse_fraction,
    units.parse_usd,
    units.parse_duration,
    units.parse_bytes,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1B", 1e9),
        ("1.3b", 1.3e9),
        ("350M", 350e6),
        ("2e9", 2e9),
        ("1,000", 1000),
        ("262k", 262e3),
        ("1.00 B", 1e9),
        ("1 billion", 1e9),
        ("20.1 B", 20.1e9),
        (" 7 ", 7),
    ],
)
def test_count_reads_the_forms_people_type(text: str, value: float) -> None:
    assert units.parse_count(text, "--params") == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$200", "200"),
        ("200", "200"),
        ("1.5k", "1500"),
        ("200 USD", "200"),
        ("$1,000.50", "1000.50"),
        ("2e2", "200"),
    ],
)
def test_money_reads_the_forms_people_type(text: str, value: str) -> None:
    assert units.parse_usd(text, "--budget") == Decimal(value)


@pytest.mark.parametrize(
    ("text", "value_s"),
    [
        ("48h", 172800),
        ("2d", 172800),
        ("90m", 5400),
        ("1d12h", 129600),
        ("1.5 hours", 5400),
        ("1 day 2 h", 93600),
    ],
)
def test_duration_reads_the_forms_people_type(text: str, value_s: float) -> None:
    assert units.parse_duration(text, "--deadline") == value_s


def test_memory_tells_gib_from_gb() -> None:
    assert units.parse_bytes("80GiB", "--memory") == 80 * 2**30
    assert units.parse_bytes("80 GB", "--memory") == 80e9


@pytest.mark.parametrize(("text", "value"), [("0.2", 0.2), ("20%", 0.2), ("0", 0.0), ("20 %", 0.2)])
def test_fraction_reads_share_and_percent(text: str, value: float) -> None:
    assert units.parse_fraction(text, "--headroom") == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "nan", "inf", "-inf", "1e999", "1e19", "abc", "1,5", "1,5B", "1X", "--", "٣"]
)
def test_count_refuses_what_is_no_sensible_number(text: str) -> None:
    with pytest.raises(UserError, match="--params"):
        units.parse_count(text, "--params")


@pytest.mark.parametrize("text", ["48", "0h", "-2h", "nan h", "5 parsecs", "1e9d", "2h junk", "h", ""])
def test_duration_refuses_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(UserError, match="--deadline"):
        units.parse_duration(text, "--deadline")


@pytest.mark.parametrize("text", ["0", "$-5", "nan", "200 EUR", "€200", "1e300", "$", "0.001"])
def test_money_refuses_what_is_no_budget(text: str) -> None:
    with pytest.raises(UserError, match="--budget"):
        units.parse_usd(text, "--budget")


@pytest.mark.parametrize("text", ["1", "100%", "-0.1", "20", "x", "nan"])
def test_fraction_refuses_what_is_not_below_one(text: str) -> None:
    with pytest.raises(UserError, match="--headroom"):
        units.parse_fraction(text, "--headroom")


def test_negative_number_is_called_negative() -> None:
    with pytest.raises(UserError, match="is negative"):
        units.parse_count("-5", "--params")


def test_int_refuses_a_fraction_of_a_gpu() -> None:
    with pytest.raises(UserError, match="not a whole number"):
        units.parse_int("1.5", "--tp")


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text(max_size=80))
def test_parser_raises_nothing_but_user_error(parse: object, text: str) -> None:
    try:
        value = parse(text, "--option")  # type: ignore[operator]
    except UserError as error:
        message, hint = str(error), error.hint
    else:
        message, hint = "", "none needed"
        assert math.isfinite(value)
        assert value >= 0
    assert "\n" not in message
    assert hint


NUMBER_LIKE = st.text(alphabet="0123456789.,eEkKmMbBgGtThHdDs$%-+ naif", min_size=1, max_size=16)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=NUMBER_LIKE)
def test_parser_survives_what_looks_like_a_number(parse: object, text: str) -> None:
    try:
        value = parse(text, "--option")  # type: ignore[operator]
    except UserError:
        return
    assert math.isfinite(value)
    assert value >= 0


@given(value=st.floats(min_value=1, max_value=9e14))
def test_count_reads_back_what_it_prints(value: float) -> None:
    assert units.parse_count(units.count(value), "--params") == pytest.approx(value, rel=0.006)


@given(value_h=st.floats(min_value=2 / 3600, max_value=8e5))
def test_duration_reads_back_what_it_prints(value_h: float) -> None:
    assert units.parse_duration(units.hours(value_h), "--deadline") == pytest.approx(value_h * 3600, rel=0.26)


@given(value_h=st.floats(min_value=10, max_value=8e5))
def test_long_duration_reads_back_closely(value_h: float) -> None:
    assert units.parse_duration(units.hours(value_h), "--deadline") == pytest.approx(
        value_h * 3600, rel=0.051
    )


@given(value=st.floats(min_value=0.01, max_value=1e11))
def test_money_reads_back_what_it_prints(value: float) -> None:
    assert float(units.parse_usd(units.usd(value), "--budget")) == pytest.approx(value, rel=0.05, abs=0.006)


@given(value_gib=st.floats(min_value=0.01, max_value=1e6))
def test_memory_reads_back_what_it_prints(value_gib: float) -> None:
    printed = units.gib(value_gib * 2**30)
    assert units.parse_bytes(printed, "--memory") == pytest.approx(
        value_gib * 2**30, rel=0.01, abs=2**30 * 0.006
    )


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (units.hours_band(Band(low=84, mid=95, high=108)), "95 h (84–108)"),
        (units.hours_band(Band(low=0.5, mid=0.75, high=1.1)), "45 min (30–66)"),
        (units.gib_band(Band(low=37.5 * 2**30, mid=39 * 2**30, high=40.6 * 2**30)), "39.0 GiB (37.5–40.6)"),
        (units.usd_band(Band(low=166, mid=189, high=212)), "$189 (166–212)"),
        (units.usd_band(Band(low=7, mid=8.4, high=10.2)), "$8.40 (7.00–10.20)"),
        (units.usd(1017), "$1,017"),
        (units.count(999_600), "1.00 M"),
        (units.count(262_144), "262 k"),
        (units.count(2048), "2,048"),
        (units.signed_percent(-0.03), "−3 %"),
        (units.signed_percent(0.001), "±0 %"),
        (units.gb_per_s(3.35e12), "3,350 GB/s"),
        (units.age(3 * 3600), "3 h"),
        (units.age(8.2 * 86400), "8 d"),
        (units.seconds_band(Band(low=3.4, mid=3.86, high=4.32)), "3.86 s (3.40–4.32)"),
        (units.seconds(0.31), "310 ms"),
        (units.usd_total(Band(low=170, mid=182, high=190), ["egress"]), "≥ $182 + unknown egress"),
        (units.usd_total(Band(low=170, mid=182, high=190), []), "$182 (170–190)"),
        (units.usd_total(None, ["compute", "egress"]), "unknown compute + unknown egress"),
    ],
)
def test_quantity_prints_as_on_the_screens(printed: str, expected: str) -> None:
    assert printed == expected


@pytest.mark.parametrize(
    "show",
    [
        units.count,
        units.whole,
        units.percent,
        units.gib,
        units.gib_band,
        units.gib_number,
        units.usd,
        units.usd_band,
        units.usd_number,
        units.usd_per_hour,
        units.hours,
        units.hours_band,
        units.duration,
        units.seconds,
        units.seconds_band,
        units.age,
        units.tokens_per_s,
        units.gb_per_s,
    ],
)
def test_unknown_quantity_says_so(show: object) -> None:
    assert show(None) == "unknown"  # type: ignore[operator]


@pytest.mark.parametrize(
    ("value", "shown"), [(0.1063, "0.11"), (3.0, "3"), (9.94, "9.9"), (9.96, "10"), (7_070_727, "7,070,727")]
)
def test_gpu_hours_are_never_rounded_to_zero(value, shown):
    assert units.gpu_hours(value) == shown
