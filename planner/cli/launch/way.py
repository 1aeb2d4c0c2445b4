"""The way to a launch that is up: its cloud and the order that it was created by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clusters.clouds.base import Cloud, Order
from clusters.faults import CloudFault
from clusters.launch.running import read_work
from planner.cli.launch import found as launches_found
from planner.cli.launch import hands as launch_hands
from planner.cli.launch.progress import screen_for
from planner.errors import UserError
from planner.launched import Launch

_UP = ("up", "probing", "verdict", "committed")


def way_to(name: str) -> tuple[Launch, Cloud, Order]:
    """Find a launch and its cloud.

    Raises:
        UserError: there is none, or nothing of it runs.

    """
    hands = launch_hands.hands({"no_calibration": True}, screen_for(json=False, quiet=True))
    launch = hands.ledger.launch(launches_found.launch_id_of(name))
    work = read_work(launch.id, hands)
    if launch.state not in _UP or work.order is None:
        raise UserError(f"{launch.id} is {launch.state}: nothing of it runs", "plan ls")
    return launch, hands.cloud_of(work.request), work.order


@contextmanager
def told(launch: Launch) -> Iterator[None]:
    """Turn what a cloud answers into an error of the user."""
    try:
        yield
    except CloudFault as fault:
        raise UserError(f"{launch.id}: {fault}", fault.hint or f"plan down {launch.id}") from None
