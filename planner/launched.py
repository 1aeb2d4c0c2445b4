"""A launch and what happened to it, as frozen records: what the ledger keeps and the report reads.

States go in one direction: ``planned -> preflight -> confirmed -> creating -> up -> probing -> verdict ->
committed | tearing_down -> gone``.
Each is written before its act, so that whoever finds a ledger knows what may exist.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

from planner.probed import ProbeVerdict
from planner.types import Record

LaunchState = Literal[
    "planned",
    "preflight",
    "confirmed",
    "creating",
    "up",
    "probing",
    "verdict",
    "committed",
    "tearing_down",
    "gone",
]
STATES: tuple[LaunchState, ...] = (
    "planned",
    "preflight",
    "confirmed",
    "creating",
    "up",
    "probing",
    "verdict",
    "committed",
    "tearing_down",
    "gone",
)
Outcome = Literal["committed", "declined", "torn_down", "left_running", "may_still_bill"]
CloudKind = Literal["aws", "gcp", "azure", "kuberay", "hosts", "local"]
ResourceKind = Literal[
    "instance",
    "volume",
    "network-interface",
    "address",
    "placement-group",
    "security-group",
    "key-pair",
    "instance-profile",
    "role",
    "resource-group",
    "process-group",
    "ray-on-host",
    "ray-job",
    "ray-cluster",
    "pod",
]


class Resource(Record):
    """One thing at a provider that belongs to a launch. ``bills``: whether it costs money while it exists."""

    kind: ResourceKind
    id: str
    state: str
    place: str
    bills: bool
    launch_id: str | None
    hint: str = ""  # a command that deletes it by hand


class PricePoint(Record):
    """What one unit cost from ``since`` on; ``usd_per_hour`` ``None`` = unknown, never summed.

    ``item``: ``node``, ``head``, ``disk``, ``address``, ``block``. ``quantity``: how many of them bill.
    """

    since: datetime
    item: str
    quantity: int
    usd_per_hour: Decimal | None
    source: str
    usd_once: Decimal | None = None  # paid up front for the whole item, and never again


class Transition(Record):
    """A state that the launch entered, and when. ``detail`` is for people; no secret ever stands in it."""

    at: datetime
    state: LaunchState
    detail: str = ""


class BilledAmount(Record):
    """What the provider billed for a launch, from Cost Explorer or a file."""

    until: datetime
    usd: Decimal
    source: str


class LostWork(Record):
    """Work that was done and is lost: a preempted or failed host, back to the last checkpoint."""

    at: datetime
    steps: int | None
    seconds: float | None
    why: str


class Launch(Record):
    """One launch with its history. ``plan_json`` is the plan that was shown, whole, with its prices frozen;
    empty for a launch that was adopted without its plan.

    ``num_nodes`` is what the plan asks for. ``deadline``: when the nodes end themselves. ``job_id``: of the
    full run, once committed. ``min_billing_s`` and ``billing_increment_s``: of the offer; ``None`` = unknown.
    """

    id: str
    plan_id: str
    plan_json: str
    user: str
    project: str | None
    kind: CloudKind
    provider: str
    region: str
    zone: str | None
    market: str
    instance_type: str
    gpu: str
    gpus_per_node: int | None  # unknown of some adopted launches
    num_nodes: int
    budget_usd: Decimal | None
    created: datetime
    deadline: datetime | None
    then: str | None = None
    address: str | None = None
    job_id: str | None = None
    checkpoint_path: str | None = None
    min_billing_s: int | None = None
    billing_increment_s: int | None = None
    outcome: Outcome | None = None
    transitions: tuple[Transition, ...] = ()
    prices: tuple[PricePoint, ...] = ()
    resources_left: tuple[Resource, ...] = ()
    verdict: ProbeVerdict | None = None
    billed: tuple[BilledAmount, ...] = ()
    lost: tuple[LostWork, ...] = ()

    @property
    def state(self) -> LaunchState:
        """The last state that was entered."""
        return self.transitions[-1].state if self.transitions else "planned"


class Event(Record):
    """One line of ``--json`` of launch, ls and down."""

    time: datetime
    launch_id: str
    state: LaunchState
    detail: str
    spent_usd: Decimal | None
    outcome: Outcome | None = None
    resources_left: tuple[Resource, ...] = ()
