"""The user's own price list: read whole, or refused with line and field."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UserError
from planner.types import Offer
from providers.base import violations
from providers.catalog import shipped
from providers.price_list import PriceList, PriceRow, applied, parse, read

SEEN = datetime(2026, 11, 30, tzinfo=UTC)
Build = Callable[..., Offer]


def listed(text: str, name: str = "mine.csv") -> PriceList:
    return parse(text, name, SEEN)


def one(text: str, name: str = "mine.csv") -> Offer:
    (found,) = listed(text, name).offers
    return found


# ---------------------------------------------------------------------------------- prices


def test_a_machine_of_the_catalog_needs_only_its_name_and_price():
    offer = one(
        "provider,instance_type,region,market,price_per_hour\naws,p5.48xlarge,us-east-1,reserved,30\n"
    )
    assert (offer.gpu, offer.gpus_per_node, offer.market) == ("H100-SXM5-80GB", 8, "reserved")
    assert offer.usd_per_hour == 30
    assert offer.links == next(o.links for o in shipped() if o.instance_type == "p5.48xlarge")
    assert (offer.origin, offer.source, offer.price_seen) == ("own", "mine.csv line 2", SEEN)
    assert "egress" in offer.not_included


def test_a_private_cloud_says_what_its_machines_are():
    offer = one(
        "provider,gpu,gpus,price_per_gpu_hour,inter_node,max_nodes,memory_gib,not_included\n"
        "Regio,h100-sxm5-80gb,8,1.9,IB NDR,4,2048,tax|egress\n"
    )
    assert (offer.provider, offer.instance_type, offer.region) == ("regio", "8x H100-SXM5-80GB", "any")
    assert offer.usd_per_hour == Decimal("15.2")
    assert (offer.links.inter, offer.max_nodes) == ("ib-ndr", 4)
    assert offer.host_memory_bytes == 2048 * 2**30
    assert offer.not_included == ("tax", "egress")


@pytest.mark.parametrize("name", ["mine.csv", "mine.yaml"])
def test_another_currency_is_turned_into_dollars_at_the_stated_rate(name: str):
    text = {
        "mine.csv": "provider,gpu,gpus,price_per_hour,currency,usd_per_unit\nx,L4,1,0.50,eur,1.08\n",
        "mine.yaml": (
            "rates: {EUR: 1.08}\n"
            "rows:\n- {provider: x, gpu: L4, gpus: 1, price_per_hour: 0.50, currency: eur}\n"
        ),
    }[name]
    assert one(text, name).usd_per_hour == Decimal("0.54")


def test_a_rate_of_the_row_goes_before_that_of_the_file():
    text = (
        "rates: {EUR: 1.08}\n"
        "rows: [{provider: x, gpu: L4, gpus: 1, price_per_hour: 1, currency: EUR, usd_per_unit: 1.2}]"
    )
    assert one(text, "mine.yml").usd_per_hour == Decimal("1.2")


def test_a_price_is_as_old_as_its_date_or_else_as_the_file(tmp_path: Path):
    path = tmp_path / "mine.csv"
    path.write_text("provider,gpu,gpus,price_per_hour,price_date\nx,L4,1,1,2026-10-01\ny,L4,1,1,\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    dated, undated = read(str(path)).offers
    assert dated.price_seen == datetime(2026, 10, 1, tzinfo=UTC)
    assert undated.price_seen == datetime.fromtimestamp(1_700_000_000, tz=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffprovider,gpu,gpus,price_per_hour\nx,L4,1,1\n",
        "provider;gpu;gpus;price_per_hour\nx;L4;1;1\n",
        "# ours\n\nprovider, gpu, gpus, price_per_hour\n# one\nx, L4, 1, 1\n,,,\n",
    ],
)
def test_files_as_spreadsheets_write_them_are_read(text: str, tmp_path: Path):
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    assert [o.gpu for o in read(str(path)).offers] == ["L4"]


def test_offers_of_a_list_keep_the_contract_of_all_offers():
    text = "provider,gpu,gpus,price_per_hour\nz,L4,1,1\ny,L4,2,2\nx,A10,1,0.5\n"
    assert violations(listed(text).offers) == ()


# ---------------------------------------------------------------------------------- discounts


def test_a_discount_multiplies_every_price_of_its_provider(an_offer: Build):
    offers = (an_offer(), an_offer(provider="other"))
    half = listed("provider,discount_factor\nAcme,0.5\n")
    mine, other = applied(half, offers)
    assert mine.usd_per_hour == 12
    assert "× 0.5 (mine.csv line 2)" in mine.note
    assert other == offers[1]


def test_the_most_particular_discount_counts(an_offer: Build):
    text = (
        "provider,instance_type,market,discount_factor\n"
        "acme,,,0.9\nacme,c99.8x,,0.8\nacme,c99.8x,on-demand,0.5\nacme,,spot,0.7\n"
    )
    spot = an_offer(market="spot")
    found = {(o.instance_type, o.market): o.usd_per_hour for o in applied(listed(text), (an_offer(), spot))}
    assert found == {
        ("c99.8x", "on-demand"): 12,
        ("c99.8x", "spot"): Decimal("24") * Decimal("0.8"),
    }


def test_an_unknown_price_stays_unknown_at_a_discount(an_offer: Build):
    unknown = an_offer(usd_per_hour=None, unknown_why="not told")
    (found,) = applied(listed("provider,discount_factor\nacme,0.5\n"), (unknown,))
    assert (found.usd_per_hour, found.unknown_why) == (None, "not told")


def test_a_listed_price_takes_the_place_of_the_same_offer_and_no_discount(an_offer: Build):
    text = (
        "provider,instance_type,region,gpu,gpus,price_per_hour,discount_factor\n"
        "acme,c99.8x,north-1,h100-sxm5-80gb,8,20,\nacme,,,,,,0.5\n"
    )
    offers = (an_offer(), an_offer(region="south-1"))
    north, south = applied(listed(text), offers)
    assert (north.usd_per_hour, south.usd_per_hour) == (20, 12)


def test_a_discount_on_nothing_is_refused_with_near_names(an_offer: Build):
    with pytest.raises(UserError, match=r"mine.csv line 2: the discount is of no offer \(did you mean acme"):
        applied(listed("provider,discount_factor\nacmee,0.5\n"), (an_offer(),))


def test_what_is_applied_keeps_the_contract():
    text = "provider,instance_type,price_per_hour,discount_factor\naws,,,0.8\naws,p5.48xlarge,30,\n"
    assert violations(applied(listed(text), shipped())) == ()


# ---------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "mine.csv: no row"),
        ("provider,gpu\n", "mine.csv: no row"),
        ("provider,prize\nx,1\n", "line 1: unknown key 'prize' .did you mean"),
        ("gpu,gpus,price_per_hour\nL4,1,1\n", "line 2: provider is missing"),
        ("provider,gpu,gpus,price_per_hour\nx,L4,1,cheap\n", "line 2: price_per_hour is 'cheap'"),
        ("provider,gpu,gpus,price_per_hour\nx,L4,1,0\n", "line 2: price_per_hour is '0'"),
        ("provider,gpu,gpus,price_per_hour\nx,L4,1,nan\n", "line 2: price_per_hour is 'nan'"),
        ("provider,gpu,gpus,price_per_hour\nx,L4,1,1\nx,L4,two,1\n", "line 3: gpus is 'two'"),
        ("provider,gpu,gpus,price_per_hour\nx,L4,1,1\nx,H1000,1,1\n", "line 3: gpu: unknown GPU 'H1000'"),
        ("provider,gpu,gpus,price_per_hour\nx,H100,1,1\n", "line 2: gpu: GPU 'H100' can mean several"),
        ("provider,gpu,gpus\nx,L4,1\n", "line 2: price_per_hour and price_per_gpu_hour: missing"),
        (
            "provider,gpu,gpus,price_per_hour,price_per_gpu_hour\nx,L4,1,1,1\n",
            "line 2: price_per_hour and price_per_gpu_hour: both stated",
        ),
        ("provider,gpu,price_per_hour\nx,L4,1\n", "line 2: gpus is missing"),
        ("provider,instance_type,price_per_hour\naws,p5.48xlage,1\n", "line 2: gpu is missing.*p5.48xlarge"),
        (
            "provider,gpu,gpus,price_per_hour,currency\nx,L4,1,1,EUR\n",
            "line 2: currency is EUR without a rate",
        ),
        ("provider,gpu,gpus,price_per_hour,usd_per_unit\nx,L4,1,1,1.1\n", "line 2: usd_per_unit is 1.1"),
        ("provider,gpu,gpus,price_per_hour,price_date\nx,L4,1,1,today\n", "line 2: price_date is 'today'"),
        ("provider,gpu,gpus,price_per_hour,market\nx,L4,1,1,free\n", "line 2: market is 'free'"),
        ("provider,gpu,gpus,price_per_hour\nx,L4,1,1\nx,L4,1,2\n", "line 3: the same .* as mine.csv line 2"),
        ("provider,discount_factor\nx,1\nx,0.5\n", "line 3: the same .* as mine.csv line 2"),
        ("provider,discount_factor\nx,0\n", "line 2: discount_factor is '0'"),
        ("provider,discount_factor,gpu\nx,0.5,L4\n", "line 2: gpu does not go with discount_factor"),
        ("provider,price_per_hour\nx,1,2\n", "line 2: 3 cells, the header has 2"),
        ("provider,instance_type,price_per_hour,intra_node\naws,p5.48xlarge,1,PCIe\n", "line 2: intra_node"),
    ],
)
def test_one_bad_row_refuses_the_list_with_file_line_and_field(text: str, said: str):
    with pytest.raises(UserError, match=said) as caught:
        listed(text)
    assert str(caught.value).startswith("mine.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a list of rows"),
        ("rows: 3", "not a list of rows"),
        ("price: 3", "unknown key 'price'"),
        ("- [", "not YAML"),
        ("- {provider: x, discount_factor: 0.5}\n- 3\n", "line 2: a row is not a mapping"),
        ("- provider: x\n  gpu: L4\n  gpus: true\n  price_per_hour: 1\n", "line 1: gpus is true"),
        (
            "- {provider: x, discount_factor: 0.5}\n\n- provider: y\n  price: 1\n",
            "line 3: unknown key 'price'",
        ),
        ("rates: {EUR: -1}\nrows: [{provider: x, discount_factor: 1}]", "rate of EUR: usd_per_unit is -1"),
        ("rates: 3\nrows: []", "rates is not a mapping"),
    ],
)
def test_a_bad_yaml_list_is_refused_with_its_line(text: str, said: str):
    with pytest.raises(UserError, match=said) as caught:
        listed(text, "mine.yaml")
    assert str(caught.value).startswith("mine.yaml")


@pytest.mark.parametrize("name", ["nosuch.csv", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_one_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="--price-list"):
        read(name)


def test_a_file_that_is_not_text_is_one_error(tmp_path: Path):
    path = tmp_path / "mine.csv"
    path.write_bytes(b"\xff\xfe\x00p")
    with pytest.raises(UserError, match="cannot read"):
        read(str(path))


CELLS = st.sampled_from(
    [
        "",
        "x",
        "aws",
        "p5.48xlarge",
        "L4",
        "H100",
        "1",
        "0",
        "-1",
        "1e9",
        "nan",
        "EUR",
        "spot",
        '"',
        ",",
        "#",
        "|",
    ]
)
NAMES = st.sampled_from(list(PriceRow.model_fields))


def read_or_said(text: str, name: str) -> tuple[tuple[Offer, ...], str]:
    """Offers of a list, or what is said of it."""
    try:
        return listed(text, name).offers, ""
    except UserError as error:
        return (), str(error)


@given(head=st.lists(NAMES, min_size=1, max_size=8, unique=True), rows=st.lists(st.lists(CELLS, max_size=8)))
def test_whatever_stands_in_a_csv_is_a_list_or_one_error(head: list[str], rows: list[list[str]]):
    offers, said = read_or_said("\n".join(",".join(row) for row in [head, *rows]), "mine.csv")
    assert violations(offers) == ()
    assert not said or said.startswith("mine.csv")


@given(st.text(max_size=80))
@pytest.mark.parametrize("name", ["mine.csv", "mine.yaml"])
def test_whatever_stands_in_a_file_is_a_list_or_one_error(name: str, text: str):
    offers, said = read_or_said(text, name)
    assert violations(offers) == ()
    assert not said or said.startswith(name)
