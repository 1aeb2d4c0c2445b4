"""Hours x nodes x price, and what else a run costs: the one place where float meets Decimal.

All formulas take arrays that broadcast ((), or (n,)): a search over many candidates and the lines of the
one that is shown are the same code. A part whose price is not known is NaN in columns and ``None`` in lines;
it is named, never summed, and the cost is then not complete.

Wall clock: start-up + probe + work x Daly's factor. With checkpoints every t seconds that take d seconds
each, a restart of R seconds and a mean time M between interruptions, work W lasts

    M exp(R/M) (exp((t + d)/M) - 1) W / t

(J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
Generation Computer Systems 22, 2006); for rare interruptions that is W (1 + d/t + (t/2 + R)/M). The interval
t is Young's, sqrt(2 d M) (J. W. Young, CACM 17(9), 1974), within the bounds of ``data/overheads.csv``.
Waiting for capacity is not in it. A run over several nodes also loses a share of its work to stalls, hangs
and evaluation, as published trainings did whose steady speed is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from planner.columns import Array
from planner.cost.tables import Item, interruptions_per_hour, overheads, price_factor, rate
from planner.training.formats import moment_bytes
from planner.types import Band, Offer, TrainingSpec

HOUR_S = 3600.0
GB = 1e9
GIB = 2.0**30
_LONGEST = 50.0  # exponents are cut here: a run that is interrupted so often never ends, but stays a number


@dataclass(frozen=True, slots=True)
class Spread:
    """An 80 % interval as columns."""

    low: Array
    mid: Array
    high: Array

    def at(self, index: int) -> Band:
        """Band of one row; of the only one where the columns have shape ()."""
        low, mid, high = (np.atleast_1d(a) for a in (self.low, self.mid, self.high))
        i = index if len(mid) > 1 else 0
        return Band(low=float(low[i]), mid=float(mid[i]), high=float(high[i]))


@dataclass(frozen=True, slots=True)
class Work:
    """What runs, as columns: steps, machines, and bytes that are kept or moved."""

    num_steps: Array
    num_nodes: Array
    gpus_per_node: Array
    checkpoint_bytes: Array  # one checkpoint: weights, master copy, optimizer states of what is trained
    result_bytes: Array  # downloaded at the end
    data_bytes: Array  # uploaded at the start, kept on disk


@dataclass(frozen=True, slots=True)
class OfferColumns:
    """What the cost needs to know of offers. NaN = not known. Built by ``offer_columns``."""

    usd_per_node_hour: Array
    price_factor: Array  # 80 % interval of the price: divided and multiplied by this
    spot: Array  # 1 = may be taken away
    interruptions_per_node_hour: Array
    interruptions_low: Array
    interruptions_high: Array
    min_billing_s: Array
    billing_increment_s: Array
    disk_usd_per_gib_month: Array
    checkpoint_usd_per_gb_month: Array
    upload_usd_per_gb: Array
    download_usd_per_gb: Array
    address_usd_per_hour: Array  # 0 where the provider lists no price for addresses
    head_usd_per_hour: Array  # 0 on demand, where the first node is the head


@dataclass(frozen=True, slots=True)
class TimeColumns:
    """Seconds of wall clock of a whole run, by cause. ``billed``: what each node is charged for."""

    setup: Array
    probe: Array
    train: Array
    checkpoint: Array
    redo: Array
    total: Array
    billed: Array


@dataclass(frozen=True, slots=True)
class PartColumns:
    """USD of a whole run by part: five at the price of the node, then the rest. NaN = not known."""

    compute: Array
    checkpoint: Array
    redo: Array
    setup: Array
    probe: Array
    head: Array
    address: Array
    disk: Array
    storage: Array
    upload: Array
    download: Array


@dataclass(frozen=True, slots=True)
class CostColumns:
    """Hours and USD of whole runs. ``usd`` leaves out unknown parts; NaN where the node has no price."""

    hours: Spread
    usd: Spread
    is_complete: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Scenario:
    """Figures that are uncertain, at one of their values."""

    startup_s: float
    probe_s: float
    restart_s: float
    write_bytes_per_s: float
    failures_per_gpu_s: float
    interruptions_per_node_s: Array
    stalled_share: float


# ------------------------------------------------------------------------------- bytes


def checkpoint_bytes(trained_params: float, training: TrainingSpec) -> float:
    """Bytes of one checkpoint: weights in fp32 (bf16-pure: 16 bit) and the optimizer's states.

    Published: BLOOM-176B 13.1 bytes per parameter (with a 16-bit copy), OPT-175B 9.1.
    """
    weight = 2.0 if training.precision == "bf16-pure" else 4.0
    return trained_params * (weight + moment_bytes(training.optimizer, weight)[0])


def result_bytes(trained_params: float) -> float:
    """Bytes that are downloaded when the run is over: what was trained, in 16 bit."""
    return 2.0 * trained_params


def data_bytes(num_tokens: float, vocab_size: int) -> float:
    """Bytes of the data as token ids: 2 each for a vocabulary below 65,536, else 4. Epochs are not known."""
    return num_tokens * (2.0 if vocab_size < 65536 else 4.0)


def disk_gib(data: Array | float, num_nodes: Array | float) -> Array:
    """GiB of the disk of one machine, whole: what the cost counts and what cluster files ask for.

    System, image and caches (``data/overheads.csv``), and a node's share of ``data`` bytes.
    """
    share = np.asarray(data) / num_nodes
    return np.asarray(np.ceil((_figure("root_disk_bytes", "mid") + share) / GIB))


# ------------------------------------------------------------------------------- offers as columns


def _usd(item: Item, offer: Offer) -> float:
    """Rate as a float, NaN where it is not known."""
    found = rate(item, offer.provider)
    return float("nan") if found is None else float(found.usd)


def _offer_row(offer: Offer) -> tuple[float, ...]:
    """Columns of one offer, in the order of ``OfferColumns``."""
    spot = offer.market == "spot"
    taken = interruptions_per_hour(offer)
    address = rate("address", offer.provider)
    return (
        float("nan") if offer.usd_per_hour is None else float(offer.usd_per_hour),
        price_factor(offer.market, offer.price_age_months),
        float(spot),
        taken.mid,
        taken.low,
        taken.high,
        float(offer.min_billing_s or 0),
        float(offer.billing_increment_s or 1),
        _usd("disk", offer),
        _usd("checkpoints", offer),
        _usd("upload", offer),
        _usd("download", offer),
        float(address.usd) if address else 0.0,
        _usd("head", offer) if spot else 0.0,
    )


def offer_columns(offers: Sequence[Offer]) -> OfferColumns:
    """Make columns of shape (n,), or () for one offer. No offer at all gives shape (0,)."""
    rows = np.array([_offer_row(o) for o in offers], dtype=np.float64).reshape(
        len(offers), len(fields(OfferColumns))
    )
    columns = rows[0] if len(offers) == 1 else rows.T
    return OfferColumns(*(np.asarray(c) for c in columns))


def take_offers(columns: OfferColumns, index: NDArray[np.int64]) -> OfferColumns:
    """Pick offers by row number, one for each candidate; ``columns`` may hold one offer or many."""
    return OfferColumns(*(np.atleast_1d(getattr(columns, f.name))[index] for f in fields(OfferColumns)))


# ------------------------------------------------------------------------------- the formulas


def _figure(name: str, which: str) -> float:
    """One value of an overhead."""
    return float(getattr(overheads()[name], which))


def _scenario(offer: OfferColumns, delays: str = "mid", hazard: str = "mid") -> _Scenario:
    """Overheads at a value: ``delays`` of what takes time, ``hazard`` of what interrupts.

    A high delay is a slow write.
    """
    write = {"low": "high", "mid": "mid", "high": "low"}[delays]
    taken = {
        "low": offer.interruptions_low,
        "mid": offer.interruptions_per_node_hour,
        "high": offer.interruptions_high,
    }[hazard]
    return _Scenario(
        startup_s=_figure("startup_s", delays),
        probe_s=_figure("probe_s", delays),
        restart_s=_figure("restart_s", delays),
        write_bytes_per_s=_figure("checkpoint_write_bytes_per_s", write),
        failures_per_gpu_s=_figure("failures_per_gpu_hour", hazard) / HOUR_S,
        interruptions_per_node_s=taken / HOUR_S,
        stalled_share=_figure("stalled_share_of_many_nodes", delays),
    )


def _hazard_per_s(work: Work, at: _Scenario) -> Array:
    """Interruptions of the whole run a second: failing GPUs, and spot nodes that are taken away."""
    gpus = work.num_nodes * work.gpus_per_node
    return np.asarray(at.failures_per_gpu_s * gpus + at.interruptions_per_node_s * work.num_nodes)


def _write_s(work: Work, at: _Scenario) -> Array:
    """Seconds to write one checkpoint, or to read it: every node its share."""
    return work.checkpoint_bytes / (at.write_bytes_per_s * work.num_nodes)


def interval_s(step_s: Array, work: Work, offer: OfferColumns) -> Array:
    """Seconds of work between checkpoints: Young's optimum, bounded, and never longer than the run."""
    at = _scenario(offer)
    bounds = overheads()["checkpoint_interval_s"]
    best = np.sqrt(2.0 * _write_s(work, at) / _hazard_per_s(work, at))
    longest = np.maximum(step_s * work.num_steps, 1.0)
    return np.asarray(np.minimum(np.clip(best, bounds.low, bounds.high), longest))


def _run_time(step_s: Array, work: Work, offer: OfferColumns, every_s: Array, at: _Scenario) -> TimeColumns:
    """Wall clock by cause; see the module's docstring for the formula."""
    train = np.asarray(step_s * work.num_steps)
    hazard, write = _hazard_per_s(work, at), _write_s(work, at)
    checkpoint = train * write / every_s
    lost = np.expm1(np.minimum(hazard * (every_s + write), _LONGEST))
    restarted = np.exp(np.minimum(hazard * (at.restart_s + write), _LONGEST))
    redo = np.maximum(restarted * lost / (hazard * every_s) * train - train - checkpoint, 0.0)
    redo = redo + train * at.stalled_share * (work.num_nodes > 1)
    setup, probe = np.full_like(train, at.startup_s), np.full_like(train, at.probe_s)
    total = setup + probe + train + checkpoint + redo
    step = offer.billing_increment_s
    billed = np.maximum(np.ceil(total / step) * step, offer.min_billing_s)
    return TimeColumns(setup, probe, train, checkpoint, redo, total, billed)


def _parts(work: Work, offer: OfferColumns, time: TimeColumns, dearer: Array | float = 1.0) -> PartColumns:
    """USD by part, where the node costs ``dearer`` times what is listed."""
    hourly = offer.usd_per_node_hour * dearer * work.num_nodes / HOUR_S
    months = time.billed / (HOUR_S * _figure("month_h", "mid"))
    disks_gib = disk_gib(work.data_bytes, work.num_nodes) * work.num_nodes
    kept_gb = _figure("checkpoints_kept", "mid") * work.checkpoint_bytes / GB
    return PartColumns(
        compute=hourly * time.train,
        checkpoint=hourly * time.checkpoint,
        redo=hourly * time.redo,
        setup=hourly * (time.setup + time.billed - time.total),
        probe=hourly * time.probe,
        head=offer.head_usd_per_hour * time.billed / HOUR_S,
        address=offer.address_usd_per_hour * work.num_nodes * time.billed / HOUR_S,
        disk=offer.disk_usd_per_gib_month * disks_gib * months,
        storage=offer.checkpoint_usd_per_gb_month * kept_gb * months,
        upload=offer.upload_usd_per_gb * work.data_bytes / GB,
        download=offer.download_usd_per_gb * work.result_bytes / GB,
    )


def known_sum(parts: PartColumns) -> tuple[Array, NDArray[np.bool_]]:
    """Sum of the parts that are known, NaN without a price of the node; and whether all are known."""
    extras = [getattr(parts, f.name) for f in fields(PartColumns)[5:]]
    node = sum((getattr(parts, f.name) for f in fields(PartColumns)[:5]), np.zeros(()))
    known: Array = np.asarray(node + sum((np.where(np.isnan(e), 0.0, e) for e in extras), np.zeros(())))
    unknown = np.isnan(node)
    for e in extras:
        unknown = unknown | np.isnan(e)
    return known, ~unknown


def _combined(mid: Array, pairs: Sequence[tuple[Array, Array]]) -> Spread:
    """Interval from independent causes: the log ratios of each to the middle, low and high, in quadrature."""
    down = up = np.zeros(())
    with np.errstate(divide="ignore", invalid="ignore"):
        for a, b in pairs:
            down = down + np.log(np.minimum(np.minimum(a, b), mid) / mid) ** 2
            up = up + np.log(np.maximum(np.maximum(a, b), mid) / mid) ** 2
        low, high = mid * np.exp(-np.sqrt(down)), mid * np.exp(np.sqrt(up))
    nothing = np.asarray(mid == 0.0)
    return Spread(np.where(nothing, 0.0, low), mid, np.where(nothing, 0.0, high))


def evaluations(step_s: Spread, work: Work, offer: OfferColumns) -> list[tuple[TimeColumns, PartColumns]]:
    """Time and parts at mid, then low and high of each cause: step time, delays, interruptions, price."""
    every = interval_s(step_s.mid, work, offer)
    mid = _scenario(offer)
    cases = [
        (step_s.mid, mid),
        (step_s.low, mid),
        (step_s.high, mid),
        (step_s.mid, _scenario(offer, delays="low")),
        (step_s.mid, _scenario(offer, delays="high")),
        (step_s.mid, _scenario(offer, hazard="low")),
        (step_s.mid, _scenario(offer, hazard="high")),
    ]
    times = [_run_time(s, work, offer, every, at) for s, at in cases]
    prices = [
        (times[0], _parts(work, offer, times[0], f)) for f in (1 / offer.price_factor, offer.price_factor)
    ]
    return [*((t, _parts(work, offer, t)) for t in times), *prices]


def spread(values: Sequence[Array]) -> Spread:
    """Interval from the values of ``evaluations``."""
    return _combined(values[0], list(zip(values[1::2], values[2::2], strict=True)))


def cost_columns(step_s: Spread, work: Work, offer: OfferColumns) -> CostColumns:
    """Hours and USD of whole runs, with their bands, for any number of candidates at once.

    ``step_s``: seconds of one optimizer step; all arrays broadcast. ``usd`` is the sum of the known parts
    (``is_complete`` says whether that is all), NaN where the price of the node is not known.
    """
    found = evaluations(step_s, work, offer)
    sums = [known_sum(parts) for _, parts in found]
    return CostColumns(
        hours=spread([t.total / HOUR_S for t, _ in found]),
        usd=spread([s for s, _ in sums]),
        is_complete=sums[0][1],
    )
