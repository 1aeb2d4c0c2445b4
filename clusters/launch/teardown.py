"""Delete everything of a launch, and look again until it is gone. Asks the cloud, never the ledger.

A thing counts as gone when the cloud has named nothing of the launch several times in a row: what it lists
right after a change may still be the state before. Every step may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from clusters.clouds.base import Cloud, Order
from clusters.faults import CloudFault
from clusters.launch.nouns import Hands, Limits
from clusters.launch.patience import retrying
from planner.launched import Resource, ResourceKind

ORDER: tuple[ResourceKind, ...] = (
    "ray-job",
    "ray-cluster",
    "pod",
    "process-group",
    "ray-on-host",
    "instance",
    "address",
    "volume",
    "network-interface",
    "placement-group",
    "security-group",
    "key-pair",
    "instance-profile",
    "role",
    "resource-group",
)
MACHINES: tuple[ResourceKind, ...] = ("instance", "process-group", "ray-on-host", "ray-job", "pod")


@dataclass(frozen=True, slots=True)
class Cleared:
    """What a teardown found: ``left`` at the end, whether anything that bills was there, the last fault.

    ``asked``: the cloud answered at the end, so ``left`` is what it says; else nobody knows.
    """

    left: tuple[Resource, ...]
    found_billing: bool
    asked: bool
    why: str = ""

    @property
    def gone(self) -> bool:
        """Nothing is left."""
        return self.asked and not self.left

    @property
    def may_bill(self) -> bool:
        """Something that costs money is left, or nobody knows."""
        return not self.asked or any(r.bills for r in self.left)


def clear(cloud: Cloud, launch_id: str | None, hands: Hands, limits: Limits) -> Cleared:
    """Delete and look, until nothing is named ``looks`` times in a row or the time is over."""
    until = hands.now() + timedelta(seconds=limits.teardown_timeout_s)
    empty, found_billing, why, wait_s = 0, False, "", limits.look_every_s
    left: tuple[Resource, ...] = ()
    asked = False
    while True:
        try:
            left = retrying(lambda: cloud.find(launch_id), hands, limits)
            asked = True
        except CloudFault as fault:
            if fault.kind == "credentials":  # waiting brings none
                return Cleared(left, found_billing, asked=False, why=str(fault))
            asked, why = False, str(fault)
        if asked:
            found_billing = found_billing or any(r.bills or r.kind in MACHINES for r in left)
            empty = 0 if left else empty + 1
            if empty >= limits.looks:
                return Cleared((), found_billing, asked=True)
        if hands.now() >= until:
            return Cleared(left, found_billing, asked, why)
        if asked:
            why = _delete(cloud, left, hands) or why
        hands.sleep(wait_s)
        wait_s = min(wait_s * 1.5, limits.look_at_most_every_s)


def _delete(cloud: Cloud, resources: Sequence[Resource], hands: Hands) -> str:
    """Ask once for each thing to go, in the order in which they let go of each other; returns the last no.

    What costs nothing waits until no machine is left: groups and interfaces are in use until then, and a
    machine that ends itself needs its rights for it.
    """
    why = ""
    machines_left = num_machines(resources) > 0
    for resource in sorted(resources, key=lambda r: ORDER.index(r.kind)):
        if machines_left and not resource.bills and resource.kind not in MACHINES:
            continue
        try:
            cloud.delete(resource)
        except CloudFault as fault:
            why = f"{resource.kind} {resource.id}: {fault}"
            hands.screen.say(why)
    return why


def stop(cloud: Cloud, order: Order, hands: Hands) -> None:
    """End Ray in good order where that is possible; deleting does the rest, so a fault is only shown."""
    try:
        cloud.stop_cluster(order, hands.screen.say)
    except CloudFault as fault:
        hands.screen.say(f"cluster not stopped in good order: {fault}")


def num_machines(resources: Sequence[Resource]) -> int:
    """Machines among resources."""
    return sum(r.kind in MACHINES for r in resources)
