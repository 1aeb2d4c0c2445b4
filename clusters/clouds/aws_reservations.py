"""Capacity reservations and capacity blocks of AWS by id: what they hold, from when, until when.

A machine that names one by id starts inside it or not at all: EC2 never starts it on demand instead. Machines
of a capacity block are ended by AWS half an hour before it ends (EC2 user guide, "Capacity Blocks for ML").
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from clusters.clouds.base import Order
from clusters.config.aws_ground import Client
from clusters.config.choices import utc
from clusters.config.nodes import Cluster
from clusters.faults import CloudFault
from planner.types import Record

BLOCK = "capacity-block"
ENDED_BEFORE = timedelta(minutes=30)


class Reservation(Record):
    """A reservation as EC2 describes it. ``end``: ``None`` where it has none."""

    id: str
    is_block: bool
    state: str
    instance_type: str
    zone: str
    total: int
    available: int
    start: datetime | None
    end: datetime | None

    @property
    def usable_until(self) -> datetime | None:
        """When its machines are ended at the latest."""
        if self.end is None:
            return None
        return self.end - ENDED_BEFORE if self.is_block else self.end


def read(ec2: Client, reservation_id: str) -> Reservation:
    """Describe a reservation. Raises ``CloudFault`` where there is none; errors of boto3 pass through."""
    answer = ec2.describe_capacity_reservations(CapacityReservationIds=[reservation_id])
    found = answer["CapacityReservations"]
    if not found:
        raise CloudFault("parameter", f"there is no reservation {reservation_id} in this region")
    one = found[0]
    return Reservation(
        id=one["CapacityReservationId"],
        is_block=one.get("ReservationType") == BLOCK,
        state=one["State"],
        instance_type=one["InstanceType"],
        zone=one["AvailabilityZone"],
        total=one["TotalInstanceCount"],
        available=one["AvailableInstanceCount"],
        start=one.get("StartDate"),
        end=one.get("EndDate"),
    )


def look(ec2: Client, order: Order, cluster: Cluster) -> tuple[bool, str]:
    """Whether all nodes have a place in the reservation until the deadline; what it holds."""
    assert order.choices.reservation is not None
    found = read(ec2, order.choices.reservation)
    wrong = problems(found, order, cluster, datetime.now(UTC))
    return not wrong, "; ".join(wrong) or describe(found)


def describe(found: Reservation) -> str:
    """What a reservation holds."""
    until = "without an end" if found.usable_until is None else f"usable until {utc(found.usable_until)}"
    kind = "capacity block" if found.is_block else "reservation"
    return (
        f"{kind} {found.id}: {found.available} of {found.total} × {found.instance_type} free in {found.zone},"
        f" {until}"
    )


def problems(found: Reservation, order: Order, cluster: Cluster, now: datetime) -> list[str]:
    """Say why the order cannot stand in the reservation, all of it."""
    wrong = []
    if found.is_block != (cluster.market == BLOCK):
        bought = "a capacity block" if found.is_block else "no capacity block"
        wrong.append(f"{found.id} is {bought}, and the plan is {cluster.market}")
    if found.state != "active":
        starts = f", it starts {utc(found.start)}" if found.start is not None and found.start > now else ""
        wrong.append(f"{found.id} is {found.state}{starts}")
    if found.instance_type != cluster.instance_type:
        wrong.append(f"it holds {found.instance_type}, the plan needs {cluster.instance_type}")
    if found.available < cluster.num_nodes:
        wrong.append(
            f"{found.available} of {found.total} slots are free, the plan needs {cluster.num_nodes};"
            " the rest is not bought on demand"
        )
    if cluster.zone is not None and cluster.zone != found.zone:
        wrong.append(f"it is in {found.zone}, not in {cluster.zone}")
    until = found.usable_until
    if until is not None and order.choices.deadline > until:
        wrong.append(
            f"its machines are ended at {utc(until)}, before the deadline {utc(order.choices.deadline)}"
        )
    return wrong
