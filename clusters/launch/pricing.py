"""What an hour of a launch costs, part by part, and what it may cost at most before anyone says yes.

An hour of disk is a month's price by the hours of a month (``planner/data/overheads.csv``).
"""

from __future__ import annotations

from decimal import ROUND_UP, Decimal

from clusters.config.choices import Format
from clusters.config.nodes import cluster_of
from clusters.launch import blocks
from clusters.launch.nouns import LaunchRequest, Limits, PriceItem
from planner.cost.tables import overheads, rate
from planner.results import Plan
from planner.spend import billed_s

_FORMATS: dict[str, Format] = {"aws": "aws", "gcp": "gcp", "azure": "azure", "kuberay": "kuberay"}
MACHINES_OF_THEIR_OWN = ("aws", "gcp", "azure")
_CENT = Decimal("0.01")


def price_items(request: LaunchRequest, node_usd_per_hour: Decimal | None) -> tuple[PriceItem, ...]:
    """Everything that bills while the cluster exists; of machines that exist anyway, only themselves."""
    offer = request.plan.candidate.offer
    cluster = cluster_of(request.plan, request.choices, _FORMATS.get(request.kind, "local"))
    node = PriceItem(
        item="node", quantity=cluster.num_nodes, usd_per_hour=node_usd_per_hour, source=offer.source
    )
    items = [*blocks.items(request)] if blocks.is_block(request) else [node]
    if request.kind not in MACHINES_OF_THEIR_OWN:
        return tuple(items)
    machines = cluster.num_nodes
    if cluster.separate_head:
        machines += 1
        items.append(
            PriceItem(
                item="head",
                quantity=1,
                usd_per_hour=cluster.head_usd_per_hour,
                source="clusters/config/data/versions.toml",
            )
        )
    items.append(_disk(request, machines))
    if not request.choices.session_manager and request.kind != "azure":  # there, no public addresses
        address = rate("address", offer.provider)
        items.append(
            PriceItem(
                item="address",
                quantity=machines,
                usd_per_hour=None if address is None else address.usd,
                source="" if address is None else address.source,
            )
        )
    return tuple(items)


def _disk(request: LaunchRequest, machines: int) -> PriceItem:
    found = rate("disk", request.plan.candidate.offer.provider)
    month_h = Decimal(str(overheads()["month_h"].mid))
    return PriceItem(
        item="disk",
        quantity=machines,
        usd_per_hour=None if found is None else found.usd * request.choices.disk_gib / month_h,
        source="" if found is None else found.source,
    )


def usd_per_hour(items: tuple[PriceItem, ...]) -> Decimal | None:
    """Sum of an hour; ``None`` where the nodes have no price. Other parts without one are left out."""
    if any(i.item == "node" and i.usd_per_hour is None for i in items):
        return None
    return sum((i.quantity * i.usd_per_hour for i in items if i.usd_per_hour is not None), Decimal(0))


def at_most_usd(items: tuple[PriceItem, ...], plan: Plan, limits: Limits) -> Decimal | None:
    """The most that is spent before commit: creation, probe and teardown all run into their limits."""
    hourly = usd_per_hour(items)
    if hourly is None:
        return None
    longest_s = limits.create_timeout_s + limits.probe_timeout_s + limits.teardown_timeout_s
    offer = plan.candidate.offer
    paid_s = longest_s
    if not any(i.item == blocks.ITEM for i in items):
        paid_s = billed_s(longest_s, offer.min_billing_s, offer.billing_increment_s)
    once = blocks.once_usd(items)
    return (once + hourly * Decimal(str(paid_s)) / 3600).quantize(_CENT, rounding=ROUND_UP)
