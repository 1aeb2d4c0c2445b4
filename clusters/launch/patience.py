"""Try again where a cloud was only busy or out of reach: bounded, with growing pauses and some randomness."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from clusters.faults import CloudFault, FaultKind
from clusters.launch.nouns import Hands, Limits

PASSING: tuple[FaultKind, ...] = ("throttling", "timeout", "connection")
T = TypeVar("T")


def retrying(act: Callable[[], T], hands: Hands, limits: Limits) -> T:
    """Do ``act``, which must be repeatable; a fault that does not pass by itself is raised at once."""
    for tried in range(1, limits.tries):
        try:
            return act()
        except CloudFault as fault:
            if fault.kind not in PASSING:
                raise
            hands.screen.say(f"{fault}; trying again ({tried} of {limits.tries - 1})")
            pause(tried, hands, limits)
    return act()


def pause(tried: int, hands: Hands, limits: Limits) -> None:
    """Wait before try ``tried`` + 1: twice as long each time, half of it by chance."""
    longest = min(limits.backoff_at_most_s, limits.backoff_s * 2 ** (tried - 1))
    hands.sleep(longest * (0.5 + 0.5 * hands.jitter()))
