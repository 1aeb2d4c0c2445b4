"""Which offers a search considers, and the machine shapes that they sell, one node and several."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import UserError, did_you_mean
from planner.grouping import Index
from planner.hardware import gpus
from planner.legality import optimizer_reason
from planner.types import Goal, Offer, Shape, TrainingSpec

# Machines with one or two GPUs are joined up to so many nodes: beyond, the network is all that they do.
SMALL_MACHINE_GPUS = 2
SMALL_MACHINE_NODES = 8


@dataclass(frozen=True, slots=True)
class Listings:
    """Offers x node counts, as positions in the offers and in ``shapes``."""

    offers: tuple[Offer, ...]
    shapes: tuple[Shape, ...]
    offer: Index
    shape: Index
    num_nodes: Index


def considered(offers: Sequence[Offer], goal: Goal) -> tuple[Offer, ...]:
    """Offers that the goal allows by GPU, provider, region and market.

    Raises ``UserError`` for a name that no offer has.
    """
    chosen = gpus.matching_ids(goal.gpus) if goal.gpus else None
    providers = _named(goal.providers, {o.provider for o in offers}, "provider", "plan prices")
    regions = _named(goal.regions, {o.region for o in offers}, "region", "plan prices")
    return tuple(
        o
        for o in offers
        if (chosen is None or o.gpu in chosen)
        and (providers is None or o.provider in providers)
        and (regions is None or o.region in regions)
        and (goal.market == "any" or (o.market == "spot") == (goal.market == "spot"))
    )


def _named(asked: Sequence[str], known: Collection[str], what: str, command: str) -> frozenset[str] | None:
    """Match names asked for against known ones, without regard to case; ``None`` where all are meant."""
    if not asked or "any" in asked:
        return None
    by_lower = {k.lower(): k for k in known}
    for name in asked:
        if name.lower() not in by_lower:
            raise UserError(
                f"no offer of {what} {name!r}{did_you_mean(name, known)}", f"{command} lists every {what}"
            )
    return frozenset(by_lower[name.lower()] for name in asked)


def node_counts(gpus_per_node: int, max_gpus: int, max_nodes: int | None) -> tuple[int, ...]:
    """Node counts that are searched: powers of two, and the most that ``max_gpus`` allows."""
    most = max_gpus // gpus_per_node
    if gpus_per_node <= SMALL_MACHINE_GPUS:
        most = min(most, SMALL_MACHINE_NODES)
    if max_nodes is not None:
        most = min(most, max_nodes)
    powers = {1 << k for k in range(most.bit_length())} if most else set()
    return tuple(sorted(powers | ({most} if most else set())))


def listings(offers: Sequence[Offer], goal: Goal, num_nodes: int | None = None) -> Listings:
    """Every offer at every node count, with its machine shape; ``num_nodes`` fixes the count."""
    shapes: list[Shape] = []
    known: dict[tuple[object, ...], int] = {}
    hosts: dict[int, int | None] = {}
    rows: list[tuple[int, int, int]] = []
    for i, offer in enumerate(offers):
        links = offer.links
        machine = (offer.gpu, offer.gpus_per_node, links.intra, links.inter, links.inter_gbit_per_s)
        counts = node_counts(offer.gpus_per_node, goal.max_gpus, offer.max_nodes)
        for count in counts if num_nodes is None else (num_nodes,):
            key = (*machine, count)
            if key not in known:
                known[key] = len(shapes)
                shapes.append(_shape(offer, count))
            _allow_host(hosts, known[key], offer)
            rows.append((i, known[key], count))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    with_host = tuple(
        shape.model_copy(update={"host_memory_bytes": hosts[i]}) for i, shape in enumerate(shapes)
    )
    return Listings(tuple(offers), with_host, *columns)


def _allow_host(hosts: dict[int, int | None], shape: int, offer: Offer) -> None:
    """Keep the most host memory that an offer of a shape has; unknown where one does not say."""
    most, has = hosts.get(shape, 0), offer.host_memory_bytes
    hosts[shape] = None if most is None or has is None else max(most, has)


def _shape(offer: Offer, num_nodes: int) -> Shape:
    """Shape of this many nodes of an offer, host left out: offers of one shape differ in it."""
    return Shape.model_construct(
        gpu=offer.gpu,
        gpus_per_node=offer.gpus_per_node,
        num_nodes=num_nodes,
        links=offer.links,
        vcpus=None,
        host_memory_bytes=None,
    )


def shape_of(offer: Offer, num_nodes: int) -> Shape:
    """Shape of this many nodes of an offer, with what it says of its host."""
    return _shape(offer, num_nodes).model_copy(
        update={"vcpus": offer.vcpus, "host_memory_bytes": offer.host_memory_bytes}
    )


def unsupported(offers: Sequence[Offer], training: TrainingSpec) -> dict[str, str]:
    """Why a GPU of the offers cannot run the training, by GPU id; GPUs that can are left out."""
    reasons: dict[str, str] = {}
    for gpu_id in sorted({o.gpu for o in offers}):
        card = gpus.gpu(gpu_id)
        reason = gpus.supports(card, training.precision) or optimizer_reason(card, training.optimizer)
        if reason:
            reasons[gpu_id] = reason
    return reasons
