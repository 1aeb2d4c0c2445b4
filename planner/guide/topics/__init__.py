"""The topics of ``plan explain``, each a function from what is asked about to a page."""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import UserError, did_you_mean
from planner.guide.pages import Page, Subject
from planner.guide.topics import fabric, machines, memory, money, traffic

TOPICS: dict[str, Callable[[Subject], Page]] = {
    "memory": memory.memory,
    "precision": memory.precision,
    "zero": memory.zero,
    "collectives": traffic.collectives,
    "layers": fabric.layers,
    "interconnect": fabric.interconnect,
    "consumer-vs-datacenter": machines.consumer_vs_datacenter,
    "rent-vs-buy": money.rent_vs_buy,
    "spot": money.spot,
    "headroom": memory.headroom,
}


def check_topic(name: str) -> str:
    """Topic that ``name`` means. Raises ``UserError`` with near names for an unknown one."""
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
    if wanted not in TOPICS:
        near = did_you_mean(wanted, TOPICS)
        raise UserError(f"unknown topic {name!r:.60}{near}", "plan explain  (lists the topics)")
    return wanted


def explain(topic: str, subject: Subject) -> Page:
    """Page of a topic that ``check_topic`` has seen."""
    return TOPICS[topic](subject)
