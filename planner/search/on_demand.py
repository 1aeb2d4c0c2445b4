"""What choices that are all spot would cost on machines that nobody takes away."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from planner.results import Candidate, OnDemand
from planner.search.candidates import price_run
from planner.types import Offer


def on_demand(chosen: Sequence[Candidate], offers: Sequence[Offer]) -> tuple[OnDemand, ...]:
    """Price each choice on the same machine on demand; nothing where one of them is no spot."""
    if any(c.offer.market != "spot" for c in chosen):
        return ()
    return tuple(_beside(c, _same(c.offer, offers)) for c in chosen)


def _same(spot: Offer, offers: Sequence[Offer]) -> Offer | None:
    """Offer of the same machine on demand: in the same region where there is one, else the cheapest."""
    alike = [
        o
        for o in offers
        if o.market == "on-demand"
        and o.usd_per_hour is not None
        and (o.provider, o.instance_type, o.gpu, o.gpus_per_node)
        == (spot.provider, spot.instance_type, spot.gpu, spot.gpus_per_node)
    ]
    return min(
        alike, key=lambda o: (o.region != spot.region, o.usd_per_hour or Decimal(0), o.region), default=None
    )


def _beside(c: Candidate, offer: Offer | None) -> OnDemand:
    """Hours and cost of a choice on an offer."""
    if offer is None:
        return OnDemand(id=c.id, rank=c.rank, usd_per_hour=None, region=None, hours=None, cost_usd=None)
    priced = price_run(c.run, c.speed, offer)
    return OnDemand(
        id=c.id,
        rank=c.rank,
        usd_per_hour=offer.usd_per_hour,
        region=offer.region,
        hours=priced.hours,
        cost_usd=priced.usd,
    )
