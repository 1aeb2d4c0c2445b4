"""Network interfaces of an EC2 instance: all of its EFA interfaces where nodes talk to each other."""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

from planner.types import Record


class Cards(Record):
    """Network cards of an instance type, and how many EFA interfaces they carry."""

    network_cards: int
    efa_interfaces: int


@lru_cache(maxsize=1)
def _table() -> dict[str, Cards]:
    text = files("clusters.config").joinpath("data/aws_network.csv").read_text(encoding="utf-8")
    return {
        row["instance_type"]: Cards(
            network_cards=int(row["network_cards"]), efa_interfaces=int(row["efa_interfaces"])
        )
        for row in csv.DictReader(text.splitlines())
    }


def known(instance_type: str) -> bool:
    """Say whether the cards of a type are known."""
    return instance_type in _table()


def efa_interfaces(instance_type: str) -> int:
    """EFA interfaces of a type, 0 where it has none or nobody says."""
    row = _table().get(instance_type)
    return row.efa_interfaces if row else 0


def interfaces(
    instance_type: str | None, subnet: str, security_group: str, public: bool
) -> list[dict[str, object]]:
    """Network interfaces of one node; ``instance_type`` ``None`` asks for one plain interface.

    After "Maximize network bandwidth on EC2 instances with multiple network cards" (EC2 user guide): card 0,
    device 0 is an ENA interface; an EFA-only interface on card 0, device 1 if that card has EFA; EFA-only
    on device 0 of every other card. One EFA on the only card shares its interface with ENA (``efa``).
    """
    cards = _table().get(instance_type or "")
    num_efa = cards.efa_interfaces if cards else 0
    first = _interface(0, 0, "efa" if num_efa == 1 else "interface", subnet, security_group)
    if num_efa <= 1 or cards is None:
        return [{**first, "AssociatePublicIpAddress": public}]
    without_first = num_efa < cards.network_cards
    places = [(card, 0) for card in range(1, cards.network_cards)]
    if not without_first:
        places.insert(0, (0, 1))
    rest = [_interface(card, device, "efa-only", subnet, security_group) for card, device in places[:num_efa]]
    return [first, *rest]


def _interface(card: int, device: int, kind: str, subnet: str, security_group: str) -> dict[str, object]:
    return {
        "NetworkCardIndex": card,
        "DeviceIndex": device,
        "InterfaceType": kind,
        "SubnetId": subnet,
        "Groups": [security_group],
        "DeleteOnTermination": True,
    }
