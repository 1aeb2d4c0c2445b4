"""What became of all that is not shown: how many lost for which reason, the nearest miss, its rescue."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from planner import answers, units
from planner.grouping import Index
from planner.hardware.gpus import gpu
from planner.layouts import layout_of
from planner.results import Miss, Rejection
from planner.search import verdicts
from planner.search.candidates import offer_of
from planner.search.market import shape_of
from planner.search.question import Outcome, lost
from planner.search.ranking import best_verdict
from planner.search.rescue import memory_flags, saving
from planner.search.verdicts import REASONS
from planner.types import Layout, Offer, Run, Verdict

IN_MEMORY = ("memory", "load", "host-memory")


@dataclass(frozen=True, slots=True)
class Nearest:
    """The loser that came nearest: its offer and node count, and what to say of it."""

    offer: Offer
    num_nodes: int
    words: str
    row: int | None = None  # of the judged rows, where it has a layout that fits
    shape: int | None = None  # of the market's shapes, where it has none


def rejections(of: Outcome, offers: Sequence[Offer]) -> tuple[Rejection, ...]:
    """Count losers by reason, in the order of ``REASONS``, each with its nearest miss and its rescue."""
    listing, reasons = lost(of)
    found = []
    for reason in REASONS:
        members = listing[reasons == reason]
        count = len(members) + (of.num_unsupported if reason == "illegal" else 0)
        if count:
            nearest = _nearest(of, reason, members, offers)
            rescue, verdict = _rescue(of, reason, nearest)
            found.append(
                Rejection.model_construct(
                    reason=reason,
                    count=count,
                    nearest=nearest.words,
                    rescue=rescue,
                    miss=_miss(of, reason, nearest),
                    rescue_verdict=verdict,
                )
            )
    return tuple(found)


def machine(offer: Offer, num_nodes: int) -> str:
    """Name GPUs and offer: ``8× H100-SXM5-80GB, lambda gpu_8x_h100_sxm5``."""
    spot = " spot" if offer.market == "spot" else ""
    return f"{offer.gpus_per_node * num_nodes}× {offer.gpu}, {offer.provider} {offer.instance_type}{spot}"


# ---------------------------------------------------------------------------------- nearest misses


def _nearest(of: Outcome, reason: str, members: Index, offers: Sequence[Offer]) -> Nearest:
    """Find the loser of a reason that came nearest."""
    if len(members) == 0:
        return _nearest_unsupported(of, offers)
    rows = of.best[np.isin(of.judged.listing[of.best], members)]
    if len(rows) == 0:
        return _nearest_without_layout(of, reason, members)
    row = _least(of, reason, rows)
    offer = offer_of(of, of.judged, row)
    nodes = int(of.market.num_nodes[of.judged.listing[row]])
    return Nearest(offer, nodes, _words(of, reason, row, rows, offer, nodes), row=row)


def _least(of: Outcome, reason: str, rows: Index) -> int:
    """Row that is least over its limit."""
    costs = of.judged.cost
    size = {
        "host-memory": of.found.picks.host_bytes[of.judged.pick],
        "deadline": costs.hours.high,
    }.get(reason, np.nan_to_num(costs.usd.high, nan=np.inf))
    return int(rows[np.lexsort((rows, costs.hours.high[rows], size[rows]))[0]])


def _words(of: Outcome, reason: str, row: int, rows: Index, offer: Offer, nodes: int) -> str:
    """Say what the nearest loser would need."""
    costs, name = of.judged.cost, machine(offer, nodes)
    if reason in ("price", "availability"):
        return _counted(of, rows, "price unknown" if reason == "price" else "sold out when last seen")
    if reason == "host-memory":
        need = float(of.found.picks.host_bytes[of.judged.pick[row]])
        return f"{name}: needs {units.gib(need)} of host memory, has {units.gib(offer.host_memory_bytes)}"
    if reason == "link":
        return f"{name}: {_waits(of, row, offer, nodes)}"
    spent = f"{units.usd_band(costs.usd.at(row))}, {units.hours_band(costs.hours.at(row))}"
    if reason == "stage":
        why = "spot without checkpoints" if offer.market == "spot" else "no ECC, and longer than a day"
        return f"{name}: {why} ({spent})"
    return f"{name}: {spent}"


def _counted(of: Outcome, rows: Index, why: str) -> str:
    """Count rows that were not ranked by provider."""
    counts: dict[str, int] = {}
    for row in rows:
        provider = offer_of(of, of.judged, int(row)).provider
        counts[provider] = counts.get(provider, 0) + 1
    by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return f"not ranked, {why} ({', '.join(f'{name} {n}' for name, n in by_count)})"


def _waits(of: Outcome, row: int, offer: Offer, nodes: int) -> str:
    """Say how long the GPUs wait for which link."""
    pick = int(of.judged.pick[row])
    run = _run(of, offer, nodes, layout_of(of.found.picks.table, pick), int(of.found.picks.variant[pick]))
    in_time = answers.evaluate([run], of.question.known)[0][1]
    return f"waits for {in_time.limiting_link} {units.percent(in_time.limiting_link_share)} of the step"


def _run(of: Outcome, offer: Offer, nodes: int, layout: Layout, variant: int) -> Run:
    """Run of a layout on nodes of an offer."""
    return Run.model_construct(
        id="nearest",
        model=of.question.model,
        training=of.found.variants[variant],
        layout=layout,
        shape=shape_of(offer, nodes),
    )


def _nearest_without_layout(of: Outcome, reason: str, members: Index) -> Nearest:
    """Find the listing without any layout whose best one needs least over what there is."""
    shape = of.market.shape[members]
    usable = np.array([_usable(of, int(s)) for s in shape])
    over = of.found.misses.device_bytes[shape] / usable
    offers = [of.market.offers[int(i)] for i in of.market.offer[members]]
    price = np.array([float(o.usd_per_hour or np.inf) for o in offers])
    too_few = np.array([o.gpus_per_node < (of.question.pins.tp or 1) for o in offers])
    best = int(np.lexsort((members, price, of.market.num_nodes[members], over, too_few))[0])
    at, listing = int(shape[best]), int(members[best])
    offer, nodes = of.market.offers[int(of.market.offer[listing])], int(of.market.num_nodes[listing])
    words = f"{machine(offer, nodes)}: {_missing(of, reason, at, offer, nodes)}"
    return Nearest(offer, nodes, words, shape=at)


def _usable(of: Outcome, shape: int) -> float:
    """Bytes that a GPU of a shape has."""
    return float(gpu(of.market.shapes[shape].gpu).usable_memory_bytes)


def _missing(of: Outcome, reason: str, shape: int, offer: Offer, nodes: int) -> str:
    """Say what a listing without a layout would need."""
    need = float(of.found.misses.device_bytes[shape])
    if reason == "link":
        return _tensor_words(of.question.pins.tp or 1, offer)
    if not np.isfinite(need):
        batch = of.training.global_batch_tokens or 0
        sequences = batch // of.training.seq_len
        gpus = offer.gpus_per_node * nodes
        if words := _indivisible(of, gpus):
            return words
        return f"no legal layout makes a global batch of {sequences} sequences on {gpus} GPUs"
    usable = _usable(of, shape)
    if reason == "host-memory":
        return f"needs more host memory than the {units.gib(offer.host_memory_bytes)} of the node"
    when = " while loading" if reason == "load" else ""
    return f"needs {units.gib_number(need)} of {units.gib(usable)}{when}"


def _indivisible(of: Outcome, gpus: int) -> str:
    """Say that the pinned degrees do not divide the GPUs; empty where they do."""
    pins = of.question.pins
    pinned = {name: getattr(pins, name) for name in ("dp", "tp", "pp", "cp") if getattr(pins, name)}
    if gpus % math.prod(pinned.values()) == 0:
        return ""
    return f"{' '.join(f'--{name} {degree}' for name, degree in pinned.items())} does not divide {gpus} GPUs"


def _tensor_words(tp: int, offer: Offer) -> str:
    """Say why a pinned tensor-parallel degree is refused on an offer."""
    if tp > offer.gpus_per_node:
        return f"--tp {tp} would leave the node of {offer.gpus_per_node}"
    return f"--tp {tp} over {offer.links.intra} is slower than doing without"


def _nearest_unsupported(of: Outcome, offers: Sequence[Offer]) -> Nearest:
    """Find the cheapest offer of a GPU that cannot run the training at all."""
    bad = [o for o in offers if o.gpu in of.unsupported]
    priced = sorted(bad, key=lambda o: (o.usd_per_hour is None, o.usd_per_hour, o.gpu, o.instance_type))
    offer = priced[0]
    return Nearest(offer, 1, of.unsupported[offer.gpu])


# ---------------------------------------------------------------------------------- in figures


def _miss(of: Outcome, reason: str, nearest: Nearest) -> Miss:
    """Put the nearest loser in figures."""
    offer, row = nearest.offer, nearest.row
    needed, usable = _needed(of, reason, nearest)
    unpriced = row is None or np.isnan(of.judged.cost.usd.mid[row])
    return Miss.model_construct(
        provider=offer.provider,
        instance_type=offer.instance_type,
        region=offer.region,
        market=offer.market,
        gpu=offer.gpu,
        num_gpus=offer.gpus_per_node * nearest.num_nodes,
        num_nodes=nearest.num_nodes,
        layout=_layout(of, nearest),
        needed_bytes=needed,
        usable_bytes=usable,
        hours=None if row is None else of.judged.cost.hours.at(row),
        cost_usd=None if row is None or unpriced else of.judged.cost.usd.at(row),
    )


def _layout(of: Outcome, nearest: Nearest) -> Layout | None:
    """Layout of the nearest loser: its best, else the one that needs least memory."""
    if nearest.row is not None:
        return layout_of(of.found.picks.table, int(of.judged.pick[nearest.row]))
    if nearest.shape is not None and np.isfinite(of.found.misses.device_bytes[nearest.shape]):
        return layout_of(of.found.misses.table, nearest.shape)
    return None


def _needed(of: Outcome, reason: str, nearest: Nearest) -> tuple[float | None, float | None]:
    """Bytes that the nearest loser needs and has, where it lost by memory."""
    if reason == "host-memory":
        has = nearest.offer.host_memory_bytes
        need = None if nearest.row is None else float(of.found.picks.host_bytes[of.judged.pick[nearest.row]])
        return need, None if has is None else float(has)
    if reason not in IN_MEMORY or nearest.shape is None:
        return None, None
    need = float(of.found.misses.device_bytes[nearest.shape])
    return need if math.isfinite(need) else None, _usable(of, nearest.shape)


# ---------------------------------------------------------------------------------- rescues


def _rescue(of: Outcome, reason: str, nearest: Nearest) -> tuple[str | None, Verdict | None]:
    """Find flags that save the nearest loser, by running the search with them, and the verdict with them."""
    flags = list(_flags(of, reason, nearest))
    found = saving(of.question, flags, [nearest.offer], nearest.num_nodes)
    return (None, None) if found is None else (found[0], best_verdict(found[1]))


def _flags(of: Outcome, reason: str, nearest: Nearest) -> Iterator[str]:
    """List flags that may help against a reason; an empty one leaves it to budget and deadline."""
    if reason in ("budget", "deadline"):
        yield ""
    elif reason == "link":
        yield "--allow-slow-link"
    elif reason == "stage":
        yield "--stage experiment"
    elif reason == "illegal":
        yield from _legal_flags(of, nearest)
    elif reason in IN_MEMORY:
        yield from memory_flags(of.question, nearest.offer.gpus_per_node * nearest.num_nodes, nearest.offer)


def _legal_flags(of: Outcome, nearest: Nearest) -> Iterator[str]:
    """List flags that make a training legal on a GPU."""
    if nearest.offer.gpu in of.unsupported:
        yield "--precision fp16"
        yield "--precision fp32"
        yield "--optimizer adamw"
    else:
        gpus = nearest.offer.gpus_per_node * nearest.num_nodes
        sequences = max(1, (of.training.global_batch_tokens or 0) // of.training.seq_len // gpus) * gpus
        yield f"--global-batch {sequences * of.training.seq_len}"


def fitting(of: Outcome) -> int:
    """Count listings that are ok or tight."""
    return int(np.sum(of.judged.verdict[of.best] < verdicts.OVER))
