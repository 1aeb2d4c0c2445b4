"""Azure: machines through Ray's launcher, everything else over REST, in a resource group of the launch's own.

Never tried on the real thing. Ray's template makes a network whose port 22 is open to everyone, so machines
get no public address: the caller stands in a private network that is peered with the launch's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from decimal import Decimal

from clusters.backend.shell import Log
from clusters.clouds import azure_found, azure_preflight, behind_ray, rest
from clusters.clouds.azure_api import MANAGEMENT, RESOURCES, Api, resorted
from clusters.clouds.base import Created, Order, Place, PreflightCheck
from clusters.clouds.marks import Marks
from clusters.config import emit, guards
from clusters.config.choices import Choices, utc
from clusters.config.nodes import Cluster, cluster_name, cluster_of
from clusters.faults import CloudFault
from planner.errors import UserError
from planner.launched import CloudKind, Resource

_ID_LENGTH = (
    4  # of the letters that Ray puts after the group's name (ray/autoscaler/_private/_azure/config.py)
)


class AzureCloud:
    """A subscription of Azure, as a cloud."""

    kind: CloudKind = "azure"
    tried = False

    def __init__(
        self,
        choices: Choices,
        backend: behind_ray.Backend | None = None,
        host: str = MANAGEMENT,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.api = Api(choices, host, environment)
        self._backend = backend or behind_ray.RAY

    def _choices(self, order: Order) -> Choices:
        return order.choices.model_copy(
            update={
                "zone": order.place.zone or order.choices.zone,
                "launch_id": order.launch_id,
                "subscription": self.api.subscription,
            }
        )

    def _cluster(self, order: Order) -> Cluster:
        try:
            return cluster_of(order.plan, self._choices(order), "azure")
        except UserError as error:
            raise CloudFault("parameter", str(error), error.hint) from None

    # ------------------------------------------------------------------------------------ before

    def preflight(self, order: Order, budget_usd: Decimal | None) -> tuple[PreflightCheck, ...]:
        """Who asks, Ray's own client, where the size is offered, quota, image, the way in, rights."""
        try:
            cluster = self._cluster(order)
        except CloudFault as fault:
            name = "credentials" if fault.kind == "credentials" else "subscription"
            return (
                PreflightCheck(name=name, passed=False, detail=str(fault), hint=fault.hint, fault=fault.kind),
            )
        return azure_preflight.checks(self.api, order, cluster)

    def places(self, order: Order) -> Sequence[Place]:
        """The order's own place, then the region without a zone, then its zones."""
        cluster = self._cluster(order)
        size = azure_preflight.size_of(self.api, cluster, cluster.instance_type)
        zones: list[str | None] = [order.place.zone, None]
        zones += azure_preflight.zones_of(size) if size else []
        return tuple(Place(region=order.place.region, zone=zone) for zone in dict.fromkeys(zones))

    def prepare(self, order: Order) -> Order:
        """Make token and key on this machine, and the launch's resource group, which is free. Repeatable."""
        ready = behind_ray.with_keys(order, self._choices(order), "rsa")
        cluster = self._cluster(order)
        body = {"location": cluster.region, "tags": guards.tags(cluster, ready)}
        self.api.ask("PUT", f"{azure_found.GROUPS}/{cluster.name}", RESOURCES, body)
        return order.model_copy(update={"choices": ready})

    # ------------------------------------------------------------------------------------ up

    def create(self, order: Order, log: Log) -> Created:
        """Run ``ray up``: the head from here, its workers by the head itself."""
        cluster = self._cluster(order)
        try:
            document = emit.documents(cluster, self._choices(order), "azure")["cluster.yaml"]
        except UserError as error:
            raise CloudFault("parameter", str(error), error.hint) from None
        log(f"unless networks are peered by themselves: {peering(cluster.name)}")
        try:
            joined = behind_ray.up(
                self._backend, behind_ray.launcher_of(order), order, cluster, document,
                behind_ray.limits_of(order, "azure"), log,
            )  # fmt: skip
        except CloudFault as fault:
            raise resorted(fault) from None
        return behind_ray.created(order, self._head_address(order), joined)

    def reach(self, order: Order) -> AbstractContextManager[Created]:
        """Open a tunnel to the head's loopback, where job submission listens."""
        head = self._head_address(order)
        return behind_ray.reached(order, self._cluster(order), behind_ray.way(order), head)

    def shell(self, order: Order) -> tuple[str, ...]:
        """SSH to the head, with the launch's own key."""
        return tuple(behind_ray.way(order).to(self._head_address(order)))

    def _head_address(self, order: Order) -> str:
        group = cluster_name("", order.launch_id)
        found = azure_found.head_address(self.api, group)
        if found is None:
            raise CloudFault("unreachable", f"no head of {order.launch_id} runs in resource group {group}")
        return found

    def extend(self, order: Order, deadline: datetime) -> None:
        """Move the timers on every node, and the tag by which others see when it ends."""
        behind_ray.move_deadline(
            self._backend, behind_ray.launcher_of(order), order, deadline,
            lambda: [r.id for r in self.find(order.launch_id) if r.kind == "instance"],
        )  # fmt: skip
        for group in azure_found.groups(self.api, order.launch_id):
            tags = {**group["tags"], "plan-deadline": utc(deadline)}
            self.api.ask("PATCH", f"{azure_found.GROUPS}/{group['name']}", RESOURCES, {"tags": tags})

    # ------------------------------------------------------------------------------------ down

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        """The launch's resource group, and what bills in it."""
        found = azure_found.everything(self.api, launch_id)
        return tuple(r.model_copy(update={"hint": self.by_hand(r)}) for r in found)

    def marks(self, launch_id: str | None) -> tuple[Marks, ...]:
        """What the tags of launches say."""
        return azure_found.marks(self.api, launch_id)

    def delete(self, resource: Resource) -> None:
        """Ask for one thing to go; Azure does it on its own, and whoever asks looks again."""
        with rest.deleting(self.by_hand(resource)):
            azure_found.delete(self.api, resource)

    def stop_cluster(self, order: Order, log: Log) -> None:
        """Run ``ray down``: the head's autoscaler ends first, so that it starts nothing anew."""
        self._backend.down(behind_ray.launcher_of(order), log)

    def by_hand(self, resource: Resource) -> str:
        """Command of Azure's own client."""
        return azure_found.by_hand(resource, self.api.subscription)


def peering(group: str) -> str:
    """Command that peers the network which Ray will make with the caller's; the way back is another one."""
    letters = hashlib.sha256(group.encode()).hexdigest()[:_ID_LENGTH]
    return (
        f"az network vnet peering create --resource-group {group} --vnet-name ray-{group}-{letters}-vnet"
        " --name to-caller --remote-vnet ID-OF-YOURS --allow-vnet-access, and the same from yours to it"
    )
