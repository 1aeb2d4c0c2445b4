"""A capacity block is bought whole: its price is paid once, and no hour of its machines costs more.

The price is what the user says was paid, else the rate of the offer for all its nodes and hours
(``EC2 describe_capacity_block_offerings``: ``UpfrontFee``). Two launches in one block pay for it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from clusters.launch.nouns import LaunchRequest, PriceItem
from planner.launched import Launch

ITEM = "block"
_HOUR_S = 3600


def is_block(request: LaunchRequest) -> bool:
    """Whether the machines of a launch come out of a capacity block."""
    return request.kind == "aws" and request.plan.candidate.offer.market == "capacity-block"


def price_usd(request: LaunchRequest) -> Decimal | None:
    """What the whole block cost; ``None`` where neither the user nor the offer says."""
    if request.reservation_usd is not None:
        return request.reservation_usd
    offer = request.plan.candidate.offer
    if offer.usd_per_hour is None or offer.min_billing_s is None:
        return None
    return offer.usd_per_hour * request.plan.candidate.num_nodes * offer.min_billing_s / _HOUR_S


def items(request: LaunchRequest) -> tuple[PriceItem, ...]:
    """Nodes that cost nothing more, and the block; of a block without a price neither has one."""
    price = price_usd(request)
    nothing_more = None if price is None else Decimal(0)
    bought = f"capacity block {request.choices.reservation}, paid up front"
    nodes = request.plan.candidate.num_nodes
    return (
        PriceItem(item="node", quantity=nodes, usd_per_hour=nothing_more, source=bought),
        PriceItem(item=ITEM, quantity=1, usd_per_hour=nothing_more, source=bought, usd_once=price),
    )


def counted(found: Sequence[PriceItem], launches: Sequence[Launch]) -> tuple[PriceItem, ...]:
    """Take the price off a block that another launch of the ledger has counted."""
    paid = {p.source: x.id for x in launches for p in x.prices if p.item == ITEM and p.usd_once}
    return tuple(
        i.model_copy(update={"usd_once": Decimal(0), "source": f"{i.source}, counted in {paid[i.source]}"})
        if i.item == ITEM and i.source in paid
        else i
        for i in found
    )


def once_usd(found: Sequence[PriceItem]) -> Decimal:
    """What is paid once."""
    return sum((i.usd_once for i in found if i.usd_once is not None), Decimal(0))
