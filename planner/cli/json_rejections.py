"""The part of ``plan suggest --json`` about what lost: counted by reason, the nearest miss in figures."""

from __future__ import annotations

from planner.results import Miss, Rejection
from planner.types import Band, Layout, Record, Verdict
from planner.units import GIB


class NearestDocument(Record):
    """The nearest miss of a reason: in words, and in figures where they are known.

    ``needed_gib`` and ``usable_gib`` are of a GPU, or of a node where the reason is host-memory.
    """

    description: str
    provider: str | None = None
    instance_type: str | None = None
    region: str | None = None
    market: str | None = None
    gpu: str | None = None
    num_gpus: int | None = None
    num_nodes: int | None = None
    layout: Layout | None = None
    needed_gib: float | None = None
    usable_gib: float | None = None
    hours: Band | None = None
    cost_usd: Band | None = None


class RejectionDocument(Record):
    """Candidates that lost for one reason, flags that would save the nearest, and its verdict with them."""

    reason: str
    count: int
    nearest: NearestDocument
    rescue: str | None
    rescue_verdict: Verdict | None = None


def rejection_document(r: Rejection) -> RejectionDocument:
    """Document of what lost for one reason."""
    nearest = NearestDocument(description=r.nearest) if r.miss is None else _nearest(r.nearest, r.miss)
    return RejectionDocument(
        reason=r.reason, count=r.count, nearest=nearest, rescue=r.rescue, rescue_verdict=r.rescue_verdict
    )


def _nearest(description: str, miss: Miss) -> NearestDocument:
    return NearestDocument(
        description=description,
        provider=miss.provider,
        instance_type=miss.instance_type,
        region=miss.region,
        market=miss.market,
        gpu=miss.gpu,
        num_gpus=miss.num_gpus,
        num_nodes=miss.num_nodes,
        layout=miss.layout,
        needed_gib=None if miss.needed_bytes is None else miss.needed_bytes / GIB,
        usable_gib=None if miss.usable_bytes is None else miss.usable_bytes / GIB,
        hours=miss.hours,
        cost_usd=miss.cost_usd,
    )
