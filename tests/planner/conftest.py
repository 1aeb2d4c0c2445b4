"""Offers that tests search: made up, so that no test leans on today's prices."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from planner.types import Links, Offer

GIB = 2**30


def an_offer(gpu: str, per_node: int, usd: str | None, **changed: Any) -> Offer:
    plain: dict[str, Any] = {
        "provider": "north",
        "instance_type": f"{per_node}x-{gpu.lower().replace(' ', '-')}",
        "region": "north-1",
        "market": "on-demand",
        "gpu": gpu,
        "gpus_per_node": per_node,
        "links": Links(intra="none", inter="ethernet", inter_gbit_per_s=25.0),
        "usd_per_hour": None if usd is None else Decimal(usd),
        "unknown_why": "not listed" if usd is None else None,
        "host_memory_bytes": 128 * per_node * GIB,
        "source": "a price list",
    }
    return Offer(**{**plain, **changed})


PCIE = Links(intra="pcie4-p2p", inter="ethernet", inter_gbit_per_s=25.0)
HOST = Links(intra="pcie4-host", inter="ethernet", inter_gbit_per_s=10.0)
NVLINK_A100 = Links(intra="nvlink3-nvswitch", inter="efa-v1", inter_gbit_per_s=400.0)
NVLINK_H100 = Links(intra="nvlink4-nvswitch", inter="ib-ndr", inter_gbit_per_s=3200.0)


@pytest.fixture(scope="session")
def make_offer() -> Callable[..., Offer]:
    return an_offer


@pytest.fixture(scope="session")
def offers() -> tuple[Offer, ...]:
    """Small and large, fast and slow, with and without a price."""
    return (
        an_offer("T4", 1, "0.50"),
        an_offer("V100-SXM2-16GB", 1, "2.50"),
        an_offer("RTX 4090", 1, "0.45", provider="market", max_nodes=1),
        an_offer("RTX 4090", 4, "1.80", provider="market", links=HOST, max_nodes=1),
        an_offer("L40S", 1, "1.10"),
        an_offer("L40S", 4, "4.40", links=PCIE),
        an_offer("A10G", 4, "5.60", links=HOST),
        an_offer("A100-SXM4-40GB", 8, "12.00", links=NVLINK_A100, provider="east"),
        an_offer("H100-SXM5-80GB", 1, "2.60", provider="east", max_nodes=1),
        an_offer("H100-SXM5-80GB", 8, "22.00", links=NVLINK_H100),
        an_offer("H100-SXM5-80GB", 8, "9.00", links=NVLINK_H100, market="spot"),
        an_offer("H200-SXM-141GB", 8, None, links=NVLINK_H100, provider="silent"),
        an_offer(
            "MI300X", 8, "24.00", links=Links(intra="xgmi-mi300", inter="roce", inter_gbit_per_s=3200.0)
        ),
    )
