"""What the user brings besides the catalog: machines of their own, and their own price list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from planner.cli.request import Options, words
from planner.hardware.gpus import matching_ids
from planner.ownership import OwnedMachine
from planner.types import Offer
from providers import owned
from providers.age import aged
from providers.base import sort_key
from providers.price_list import PriceList, applied, read

NOTHING = PriceList((), ())


@dataclass(frozen=True, slots=True)
class Own:
    """The user's machines with their offers, and the user's price list."""

    machines: tuple[OwnedMachine, ...] = ()
    offers: tuple[Offer, ...] = ()
    listed: PriceList = NOTHING

    @property
    def providers(self) -> frozenset[str]:
        """Names of providers that the catalog may not have."""
        return frozenset(o.provider for o in (*self.offers, *self.listed.offers))

    @property
    def regions(self) -> frozenset[str]:
        """Names of regions that the catalog may not have."""
        return frozenset(o.region for o in (*self.offers, *self.listed.offers))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was assumed of the user's machines."""
        return tuple(f"own {o.instance_type}: {o.note}" for o in self.offers if o.note)

    def over(self, offers: Sequence[Offer], now: datetime) -> tuple[Offer, ...]:
        """``offers`` at the user's prices, and the user's machines among them. Sorted."""
        if not self.offers and self.listed == NOTHING:
            return tuple(offers)
        priced = aged(applied(self.listed, offers), now)
        return tuple(sorted([*priced, *self.offers], key=sort_key))


def own(options: Options, now: datetime) -> Own:
    """Read ``--own``, ``--own-ray`` and ``--price-list``. Raises ``UserError`` for what cannot be read."""
    machines, path = machines_of(options), options.get("price_list")
    return Own(machines, owned.offers(machines, now), read(path) if path else NOTHING)


def machines_of(options: Options) -> tuple[OwnedMachine, ...]:
    """Machines of ``--own`` and of the cluster of ``--own-ray``."""
    texts, address = options.get("own") or (), options.get("own_ray")
    found = [m for text in texts for m in owned.machines_of(text)]
    if address is not None:
        allowed = matching_ids(words(options.get("gpu"), "--gpu"))
        found += owned.from_ray_nodes(owned.ray_nodes(address), allowed)
    return tuple(found)
