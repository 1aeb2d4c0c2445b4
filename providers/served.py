"""The offers that are served: last good snapshots over the shipped catalog. Files, no network, no clock.

A live row takes the place of every shipped row of its provider, type, region and market (a live spot price
per zone of the one of the region); a provider whose answers are complete drops its shipped rows altogether.
A shipped row newer than the snapshot stays. A live price is corrected by the overlay and judged as the
catalog's are, but against the shipped prices: outside 0.2 to 5 times those of its GPU and market it is not
believed. What the catalog does not have is judged against the other live prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.hardware.gpus import gpus
from planner.types import Offer
from providers import snapshot
from providers.catalog import corrected, explained, newest, overlay, shipped, without_false_spot
from providers.checks import doubted_against, medians
from providers.snapshot import Snapshot

Stamps = tuple[tuple[str, int, int], ...]
Place = tuple[str, str, str, str]
_MOST_REMEMBERED = 8


@dataclass(frozen=True, slots=True)
class Served:
    """Offers, sorted; the snapshots that some of them come from; files that could not be used."""

    offers: tuple[Offer, ...]
    snapshots: tuple[Snapshot, ...] = ()
    warnings: tuple[str, ...] = ()


_remembered: dict[tuple[Path, Stamps], Served] = {}


def served(where: Path | None = None) -> Served:
    """Offers of the snapshots in ``where`` (default: the user's cache) over the shipped catalog."""
    place = snapshot.directory() if where is None else where
    stamps = _stamps(place)
    if (place, stamps) not in _remembered:
        found = _read(place, stamps) if stamps else Served(shipped())
        if len(_remembered) >= _MOST_REMEMBERED:
            _remembered.clear()
        # A bad file is set aside as it is read, which changes the stamps: its warning must not get lost.
        _remembered[place, stamps] = _remembered[place, _stamps(place)] = found
    return _remembered[place, stamps]


def _stamps(where: Path) -> Stamps:
    """Names, times and sizes of the snapshots: the same as long as no file has changed."""
    found = []
    for path in sorted(where.glob("*.json")):
        try:
            status = path.stat()
        except OSError:  # set aside by another process in between
            continue
        found.append((path.stem, status.st_mtime_ns, status.st_size))
    return tuple(found)


def _read(where: Path, stamps: Stamps) -> Served:
    """Read the snapshots and merge them."""
    loaded = [snapshot.load(name, where) for name, _, _ in stamps]
    warnings = [each.warning for each in loaded if each.warning]
    snapshots = [each.snapshot for each in loaded if each.snapshot is not None]
    live, odd = _usable(snapshots)
    if odd:
        warnings.append(f"{odd} live prices of GPUs that this version does not know are left out")
    offers = merged(shipped(), live, snapshots) if live else shipped()
    return Served(offers, tuple(snapshots), tuple(warnings))


def _usable(snapshots: Sequence[Snapshot]) -> tuple[list[Offer], int]:
    """Offers whose GPU is in the table of this version, and how many are not."""
    known = frozenset(g.id for g in gpus())
    live = [o for s in snapshots for o in s.offers if o.gpu in known]
    return live, sum(len(s.offers) for s in snapshots) - len(live)


def _place(offer: Offer) -> Place:
    return (offer.provider, offer.instance_type, offer.region, offer.market)


def merged(base: Sequence[Offer], live: Sequence[Offer], snapshots: Sequence[Snapshot]) -> tuple[Offer, ...]:
    """``live`` over ``base``, which is believed already: each live price as far as it is believed. Sorted."""
    seen = {s.provider: s.seen for s in snapshots}
    complete = frozenset(s.provider for s in snapshots if s.complete)
    places = frozenset(_place(o) for o in live)

    def stays(offer: Offer) -> bool:
        covered = offer.provider in complete or _place(offer) in places
        newer = offer.price_seen is not None and offer.price_seen > seen.get(offer.provider, offer.price_seen)
        return not covered or newer

    kept = [o for o in base if stays(o)]
    right = without_false_spot(corrected(live, overlay()), beside=kept)
    middle = medians(base)
    middle = {**medians(o for o in right if (o.gpu, o.market) not in middle), **middle}
    return newest([*kept, *doubted_against(right, middle, explained(right, overlay()))])
