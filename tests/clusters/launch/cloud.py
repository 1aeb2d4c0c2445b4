"""A cloud in a file: it outlives the process that uses it, as a cloud does, and answers by script."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from clusters.backend.shell import Log
from clusters.clouds.base import Created, Order, Place, PreflightCheck
from clusters.faults import CloudFault
from planner.launched import CloudKind, Resource

Step = str  # name of a method of the cloud


class FileCloud:
    """Machines, disks and a group as lines of a file. ``faults``: what a method raises, in order.

    ``lag``: how many looks after a change still show the state before. ``late``: a fault of ``create`` comes
    after the machines were made, as a lost answer does.
    """

    kind: CloudKind = "aws"
    tried = False

    def __init__(self, directory: Path) -> None:
        self._path = directory / "cloud.json"
        self._created = directory / "creates.jsonl"
        self.faults: dict[Step, list[CloudFault]] = {}
        self.calls: list[str] = []
        self.zones: tuple[str | None, ...] = (None,)
        self.stuck: tuple[str, ...] = ()
        self.late = False
        self.joined: int | None = None
        self.failed_checks: tuple[PreflightCheck, ...] = ()
        self.extended: list[datetime] = []
        self.hidden_looks = 0

    # what is there
    def resources(self) -> tuple[Resource, ...]:
        if not self._path.exists():
            return ()
        return tuple(Resource.model_validate(r) for r in json.loads(self._path.read_text()))

    @property
    def creates(self) -> list[tuple[Place, int]]:
        """Place and attempt of each create that reached the cloud, of all processes."""
        lines = self._created.read_text().splitlines() if self._created.exists() else []
        return [(Place.model_validate(place), attempt) for place, attempt in map(json.loads, lines)]

    def _write(self, resources: Sequence[Resource]) -> None:
        self._path.write_text(json.dumps([r.model_dump(mode="json") for r in resources]))

    def _call(self, name: Step) -> None:
        self.calls.append(name)
        if self.faults.get(name):
            raise self.faults[name].pop(0)

    # the protocol
    def preflight(self, order: Order, budget_usd: Decimal | None) -> tuple[PreflightCheck, ...]:
        self._call("preflight")
        return (PreflightCheck(name="credentials", passed=True, detail="ada"), *self.failed_checks)

    def places(self, order: Order) -> Sequence[Place]:
        self._call("places")
        return tuple(Place(region=order.place.region, zone=z) for z in self.zones)

    def prepare(self, order: Order) -> Order:
        self._call("prepare")
        self._add([_resource("security-group", "sg-1", order)])
        return order

    def create(self, order: Order, log: Log) -> Created:
        with self._created.open("a") as file:
            file.write(json.dumps([order.place.model_dump(), order.attempt]) + "\n")
        if not self.late:
            self._call("create")
        machines = [_resource("instance", f"i-{n}", order) for n in range(order.num_nodes)]
        self._add([*machines, *(_resource("volume", f"vol-{n}", order) for n in range(order.num_nodes))])
        if self.late:
            self._call("create")
        joined = order.num_nodes if self.joined is None else self.joined
        per_node = order.plan.candidate.offer.gpus_per_node
        return Created(address="http://127.0.0.1:8265", num_nodes=joined, num_gpus=joined * per_node)

    @contextmanager
    def reach(self, order: Order) -> Iterator[Created]:
        self._call("reach")
        yield Created(address="http://127.0.0.1:8265", num_nodes=order.num_nodes, num_gpus=4)

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        self._call("find")
        if self.hidden_looks:
            self.hidden_looks -= 1
            return ()
        return tuple(r for r in self.resources() if launch_id in (None, r.launch_id))

    def delete(self, resource: Resource) -> None:
        self._call("delete")
        if resource.id not in self.stuck:
            self._write([r for r in self.resources() if r.id != resource.id])

    def stop_cluster(self, order: Order, log: Log) -> None:
        self._call("stop_cluster")

    def extend(self, order: Order, deadline: datetime) -> None:
        self._call("extend")
        self.extended.append(deadline)

    def by_hand(self, resource: Resource) -> str:
        return f"aws ec2 delete-{resource.kind} --id {resource.id}"

    def _add(self, more: Sequence[Resource]) -> None:
        there = {r.id: r for r in self.resources()}
        self._write([*there.values(), *(r for r in more if r.id not in there)])


def _resource(kind: str, id_: str, order: Order) -> Resource:
    return Resource.model_validate(
        {
            "kind": kind,
            "id": id_,
            "state": "running",
            "place": order.place.region,
            "bills": kind in ("instance", "volume"),
            "launch_id": order.launch_id,
        }
    )
