"""Offers to test with: sane defaults, one field changed at a time."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from planner.types import Links, Offer


@pytest.fixture(scope="session")
def seen_at() -> datetime:
    return datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(scope="session")
def an_offer(seen_at: datetime) -> Callable[..., Offer]:
    def build(**changed: object) -> Offer:
        plain: dict[str, object] = {
            "provider": "acme",
            "instance_type": "c99.8x",
            "region": "north-1",
            "market": "on-demand",
            "gpu": "H100-SXM5-80GB",
            "gpus_per_node": 8,
            "links": Links(intra="nvlink4-nvswitch", inter="ib-ndr", inter_gbit_per_s=3200),
            "usd_per_hour": Decimal("24"),
            "price_seen": seen_at,
            "source": "a price list",
        }
        return Offer(**{**plain, **changed})

    return build
