"""The screens of ``plan prices``, at both widths, from offers made by hand."""

from datetime import timedelta
from decimal import Decimal

import pytest
from syrupy.assertion import SnapshotAssertion

from planner.cli.prices.listing import Listing
from planner.cli.screens import prices as screens_prices
from planner.cli.text import Terminal
from planner.types import Links, Offer
from providers.base import UnknownGpu, key
from providers.moves import moves, over_time
from providers.refresh import ProviderRow
from tests.cli.conftest import NOW, offer

WIDTHS = pytest.mark.parametrize("term", [Terminal(80), Terminal(100)], ids=lambda t: str(t.width))


def some_offers() -> tuple[Offer, ...]:
    node = {"links": Links(intra="nvlink4-nvswitch", inter="ib-ndr"), "origin": "live"}
    gpu, lambda_8x = "H100-SXM5-80GB", ("lambda", "gpu_8x_h100_sxm5")
    return (
        offer("verda", "1H100.80S.30V", gpu, 1, "2.19", 0.125, region="FIN-01", origin="live"),
        offer(*lambda_8x, gpu, 8, "31.92", 1.5, **node),
        offer(*lambda_8x, gpu, 8, "31.92", 1.5, region="us-west-3", **node),
        offer("runpod", "8x NVIDIA H100 80GB HBM3", gpu, 8, "21.52", 1.5, market="community", **node),
        offer("aws", "p5.4xlarge", gpu, 1, "6.88", 40),
        offer("vast", "1x-H100_SXM", gpu, 1, "1.80", None, available=False),
    )


def some_rows() -> tuple[ProviderRow, ...]:
    refused = "1 region did not answer everything: eastus (HTTP 500)"
    failed = "HTTP 503; last good prices still in use"
    return (
        ProviderRow("aws", 96, 8 * 86400.0, "skipped", "aws configure sso", "no credentials"),
        ProviderRow("coreweave", 15, 70 * 86400.0, "shipped", reason="no live adapter"),
        ProviderRow("lambda", 41, 10800.0, "ok", unknown_gpus=(UnknownGpu("lambda", "Zeus 9", 2),)),
        ProviderRow("runpod", 37, 2 * 86400.0, "failed", "plan prices refresh runpod", failed),
        ProviderRow("azure", 12, 3600.0, "ok", notes=(refused,)),
    )


@WIDTHS
def test_offers_and_providers(term: Terminal, snapshot: SnapshotAssertion):
    listing = Listing(some_offers(), 4, num_spot=9, num_unknown=2, missing=False)
    assert screens_prices.prices(listing, some_rows(), NOW, term) == snapshot


@WIDTHS
def test_unknown_prices(term: Terminal, snapshot: SnapshotAssertion):
    unknown = some_offers()[4].model_copy(
        update={"usd_per_hour": None, "unknown_why": "price 0 is not above 0"}
    )
    listing = Listing((unknown,), 20, num_spot=0, num_unknown=1, missing=True)
    assert screens_prices.prices(listing, (), NOW, term) == snapshot


@WIDTHS
def test_the_end_of_a_refresh(term: Terminal, snapshot: SnapshotAssertion):
    assert screens_prices.closing(some_rows(), term) == snapshot


@WIDTHS
def test_prices_over_time(term: Terminal, snapshot: SnapshotAssertion):
    now = some_offers()[1]
    before = now.model_copy(update={"usd_per_hour": Decimal(24), "price_seen": NOW - timedelta(days=30)})
    assert screens_prices.history([now], over_time([[before], [now]]), term) == snapshot


@WIDTHS
def test_what_moved(term: Terminal, snapshot: SnapshotAssertion):
    after = some_offers()
    before = [o.model_copy(update={"usd_per_hour": (o.usd_per_hour or 0) * 2}) for o in after[1:3]]
    assert screens_prices.moved(moves(before, after), NOW, term) == snapshot


@WIDTHS
def test_no_line_is_wider_than_the_terminal(term: Terminal):
    listing = Listing(some_offers(), None, num_spot=9, num_unknown=2, missing=False)
    screens = [
        screens_prices.prices(listing, some_rows(), NOW, term),
        screens_prices.closing(some_rows(), term),
        screens_prices.moved(moves((), some_offers()), NOW, term),
    ]
    assert max(len(line) for screen in screens for line in screen.splitlines()) <= term.width


def test_offers_of_one_price_are_one_line_with_their_places():
    listing = Listing(some_offers()[1:3], None, 0, 0, missing=False)
    drawn = screens_prices.prices(listing, (), NOW, Terminal(100))
    assert drawn.count("lambda gpu_8x_h100_sxm5") == 1
    assert "us-east-1 +1" in drawn
    assert "Shown 1 of 1." in drawn


def test_moves_count_what_is_new_and_gone():
    first, second, *_ = some_offers()
    found = moves([first], [second])
    assert found.moved == ()
    assert ([key(o) for o in found.new], [key(o) for o in found.gone]) == ([key(second)], [key(first)])


def test_a_price_that_became_unknown_has_moved_without_a_share():
    first = some_offers()[0]
    lost = first.model_copy(update={"usd_per_hour": None, "unknown_why": "no price"})
    (move,) = moves([first], [lost]).moved
    assert move.change is None
