"""Google Cloud: machines through Ray's launcher, everything else over REST; all found again by its label.

Never tried on the real thing: what is known of it is its public interface. Ray's own start makes a service
account with wide rights in the project each time; no machine of ours carries it (``clusters/config/gcp.py``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from decimal import Decimal

from clusters.backend.shell import Log
from clusters.clouds import behind_ray, codes, gcp_found, gcp_preflight, rest
from clusters.clouds.base import Created, Order, Place, PreflightCheck
from clusters.clouds.gcp_api import HINTS, Api, Hosts
from clusters.clouds.marks import Marks
from clusters.config import emit
from clusters.config.choices import Choices
from clusters.config.nodes import Cluster, cluster_of
from clusters.faults import CloudFault
from planner.errors import UserError
from planner.launched import CloudKind, Resource


class GcpCloud:
    """A project of Google Cloud, as a cloud."""

    kind: CloudKind = "gcp"
    tried = False

    def __init__(
        self,
        choices: Choices,
        backend: behind_ray.Backend | None = None,
        hosts: Hosts | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.api = Api(choices, hosts or Hosts(), environment)
        self._backend = backend or behind_ray.RAY
        self._environment = environment

    def _cluster(self, order: Order) -> Cluster:
        try:
            return cluster_of(order.plan, self._choices(order), "gcp")
        except UserError as error:
            raise CloudFault("parameter", str(error), error.hint) from None

    def _choices(self, order: Order) -> Choices:
        return gcp_preflight.choices_for(order, self.api.project)

    # ------------------------------------------------------------------------------------ before

    def preflight(self, order: Order, budget_usd: Decimal | None) -> tuple[PreflightCheck, ...]:
        """Who asks, Ray's own client, where the type is offered, quota, image, network, rights."""
        try:
            cluster = self._cluster(order)
        except CloudFault as fault:
            name = "credentials" if fault.kind == "credentials" else "project"
            return (
                PreflightCheck(name=name, passed=False, detail=str(fault), hint=fault.hint, fault=fault.kind),
            )
        return gcp_preflight.checks(self.api, order, cluster, self._environment)

    def places(self, order: Order) -> Sequence[Place]:
        """Zones of the region that offer the type, the order's own first."""
        zones = gcp_preflight.zones_that_offer(self.api, self._cluster(order))
        own = [order.place.zone] if order.place.zone else []
        return tuple(Place(region=order.place.region, zone=z) for z in dict.fromkeys([*own, *zones]))

    def prepare(self, order: Order) -> Order:
        """Make Ray's token and the launch's key, both on this machine. Repeatable."""
        ready = behind_ray.with_keys(order, self._choices(order))
        return order.model_copy(update={"choices": ready})

    # ------------------------------------------------------------------------------------ up

    def create(self, order: Order, log: Log) -> Created:
        """Run ``ray up``: the head from here, its workers by the head itself."""
        cluster = self._cluster(order)
        try:
            document = emit.documents(cluster, self._choices(order), "gcp")["cluster.yaml"]
        except UserError as error:
            raise CloudFault("parameter", str(error), error.hint) from None
        try:
            joined = behind_ray.up(
                self._backend, behind_ray.launcher_of(order), order, cluster, document,
                behind_ray.limits_of(order, "gcp"), log,
            )  # fmt: skip
        except CloudFault as fault:
            raise codes.resorted("gcp", fault, HINTS) from None
        return behind_ray.created(order, self._head_address(order), joined)

    def reach(self, order: Order) -> AbstractContextManager[Created]:
        """Open a tunnel to the head's loopback, where job submission listens."""
        head = self._head_address(order)
        return behind_ray.reached(order, self._cluster(order), behind_ray.way(order), head)

    def shell(self, order: Order) -> tuple[str, ...]:
        """SSH to the head, with the launch's own key."""
        return tuple(behind_ray.way(order).to(self._head_address(order)))

    def _head_address(self, order: Order) -> str:
        head = gcp_found.head(self.api, order.launch_id)
        if head is None:
            raise CloudFault("unreachable", f"no head of {order.launch_id} runs in {self.api.project}")
        first = head["networkInterfaces"][0]
        outside = [a["natIP"] for a in first.get("accessConfigs", ()) if "natIP" in a]
        return str(outside[0] if outside else first["networkIP"])

    def extend(self, order: Order, deadline: datetime) -> None:
        """Refuse: Compute Engine itself deletes the machines at the time that they were created with.

        It is set so that it holds with nothing of ours alive; a running machine takes no other.
        """
        raise CloudFault(
            "parameter",
            "machines of Google Cloud are deleted at the time they were created with; it cannot be moved",
            f"plan launch {order.plan.id} --expire 48h   a new launch, from the last checkpoint",
        )

    # ------------------------------------------------------------------------------------ down

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        """Everything with the label, in all zones and regions of the project."""
        return tuple(gcp_found.everything(self.api, launch_id))

    def marks(self, launch_id: str | None) -> tuple[Marks, ...]:
        """What the labels of launches say."""
        return gcp_found.marks(self.api, launch_id)

    def delete(self, resource: Resource) -> None:
        """Ask for one thing to go; the operation runs on its own, and whoever asks looks again."""
        with rest.deleting(resource.hint):
            self.api.compute.ask("DELETE", gcp_found.path_of(self.api, resource))

    def stop_cluster(self, order: Order, log: Log) -> None:
        """Run ``ray down``: the head's autoscaler ends first, so that it starts nothing anew."""
        self._backend.down(behind_ray.launcher_of(order), log)

    def by_hand(self, resource: Resource) -> str:
        """Command of Google's own client."""
        return gcp_found.by_hand(resource, self.api.project)
