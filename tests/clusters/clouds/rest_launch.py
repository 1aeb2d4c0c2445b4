"""A launch on a cloud over REST, step by step without the state machine: ordered, created, cleared."""

import contextlib
from pathlib import Path

from clusters.clouds.base import Cloud, Order, Place
from clusters.faults import CloudFault
from planner.launched import Resource
from planner.results import Plan
from tests.clusters import tools

LAUNCH = "l-4f2a"


def order_of(directory: Path, plan: Plan, place: Place, **choices: object) -> Order:
    """An order of the launch, whose files lie below ``directory``."""
    (directory / "launch").mkdir(exist_ok=True)
    return Order(
        plan=plan,
        choices=tools.choices(launch_id=LAUNCH, subnet=None, security_group=None, **choices),
        launch_id=LAUNCH,
        place=place,
        directory=str(directory / "launch"),
        num_nodes=plan.candidate.num_nodes,
        create_timeout_s=60,
    )


def launched(cloud: Cloud, wanted: Order) -> Order:
    """Prepare and create; the order as it was created."""
    ready = cloud.prepare(wanted)
    cloud.create(ready, lambda _: None)
    return ready


def clear(cloud: Cloud, looks: int = 5) -> tuple[Resource, ...]:
    """Delete and look again; what is left."""
    for _ in range(looks):
        for resource in cloud.find(LAUNCH):
            with contextlib.suppress(CloudFault):
                cloud.delete(resource)
    return cloud.find(LAUNCH)
