"""What a price adapter is, and the contract that every tuple of offers keeps.

An adapter has two halves: ``fetch`` talks to the network and returns the answers as they came; ``parse`` is
pure and turns them into offers, so that a test can feed it a recorded or a broken answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from planner.hardware.gpus import gpus
from planner.types import Offer

Key = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class UnknownGpu:
    """A GPU string of a vendor that is not in our table: counted and shown, never guessed."""

    provider: str
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """What ``parse`` made of the raw answers.

    ``unknown_gpus``: GPU strings that are not in our table. ``num_unread``: rows whose form was not the
    documented one. ``notes``: what a user should know, such as a region that did not answer.
    ``missing_regions``: regions that did not answer, or not everything: their last good prices stay.
    """

    offers: tuple[Offer, ...]
    unknown_gpus: tuple[UnknownGpu, ...] = ()
    num_unread: int = 0
    notes: tuple[str, ...] = ()
    missing_regions: tuple[str, ...] = ()


class AnswerError(Exception):
    """A provider could not be asked, or its answer is not what it documents. Names no secret."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why an adapter cannot run here, and what to set or install."""

    reason: str
    hint: str


@runtime_checkable
class PriceAdapter(Protocol):
    """One provider's live prices, as ``ADAPTER`` of its module. Adapters never import each other.

    ``complete``: an answer names everything that the provider sells, so that what it leaves out is gone.
    """

    @property
    def provider(self) -> str:
        """Id of the provider, as in ``data/providers.csv``."""
        ...

    @property
    def complete(self) -> bool:
        """Whether an answer names everything that the provider sells."""
        ...

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Why this adapter cannot run here (missing credentials or SDK); ``None`` if it can."""
        ...

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """Every page of the provider's answer, as received. The only half that uses the network.

        Raises ``AnswerError`` where the provider cannot be reached or answers with an error.
        """
        ...

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of those pages, with ``price_seen = seen`` (aware, UTC). Pure: no network, no clock.

        Raises ``AnswerError`` where not one offer can be read.
        """
        ...


def key(offer: Offer) -> Key:
    """Identity of an offer over time: provider, type, region, zone, market."""
    return (offer.provider, offer.instance_type, offer.region, offer.zone or "", offer.market)


def sort_key(offer: Offer) -> Key:
    """Order of offers in every list that we return."""
    return key(offer)


def _violations(offer: Offer, known: frozenset[str]) -> Iterator[str]:
    """Breaches of the contract by one offer."""
    name = "/".join(key(offer))
    price = offer.usd_per_hour
    if price is not None and (not price.is_finite() or price <= 0):
        yield f"{name}: price {price} is not above 0"
    if (price is None) == (offer.unknown_why is None):
        yield f"{name}: an unknown price needs a reason, a known one has none"
    if offer.gpu not in known:
        yield f"{name}: GPU {offer.gpu!r} is not in the table"
    if offer.gpus_per_node < 1:
        yield f"{name}: {offer.gpus_per_node} GPUs"
    if offer.price_seen is not None and offer.price_seen.utcoffset() is None:
        yield f"{name}: the time seen has no time zone"
    if not offer.source:
        yield f"{name}: no source"


def violations(offers: Sequence[Offer]) -> tuple[str, ...]:
    """All breaches of the contract, as sentences; empty for a good tuple of offers."""
    known = frozenset(g.id for g in gpus())
    found = [v for offer in offers for v in _violations(offer, known)]
    keys = [key(o) for o in offers]
    if len(set(keys)) != len(keys):
        found.append(f"{len(keys) - len(set(keys))} duplicate offers")
    if keys != sorted(keys):
        found.append("offers are not sorted")
    return tuple(found)
