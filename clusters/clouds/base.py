"""What the state machine asks of a place: look before, create, count, list by tag, delete.

A cloud never decides anything: which zone comes next, whether to retry, what it may cost is decided in
``clusters/launch``. It never remembers either: every answer is asked of the provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from clusters.backend.shell import Log
from clusters.config.choices import Choices
from clusters.faults import FaultKind
from planner.launched import CloudKind, Resource
from planner.results import Plan
from planner.types import Record


class PreflightCheck(Record):
    """One look before anything bills. ``passed`` is ``False`` also where nobody could tell: see ``fault``."""

    name: str
    passed: bool
    detail: str
    hint: str = ""
    fault: FaultKind | None = None  # why nobody could tell


class Place(Record):
    """Where a cluster may be created: a zone of a region, or the machine's own name."""

    region: str
    zone: str | None = None


class Order(Record):
    """What is to be created, where, under which tags.

    ``attempt`` counts the creates of a launch: with ``launch_id`` it makes the client token of the head's
    call, and a create that is repeated after a crash carries the same number. ``budget_usd`` is what may
    still be spent on this cluster, ``usd_per_hour`` what all of it costs: for the watchdog on the head.
    """

    plan: Plan
    choices: Choices
    launch_id: str
    place: Place
    directory: str  # of the files of this launch: documents, logs
    num_nodes: int
    create_timeout_s: float
    attempt: int = 1
    budget_usd: Decimal | None = None
    usd_per_hour: Decimal | None = None


class Created(Record):
    """A cluster that is up: where its head listens, how many nodes and GPUs have joined."""

    address: str  # of job submission: http://HOST:8265
    num_nodes: int
    num_gpus: int
    auth_token_path: str | None = None  # of a file; never the token


class Cloud(Protocol):
    """A place for machines. Every method may raise ``CloudFault``."""

    kind: CloudKind
    tried: bool  # False: never started on the real thing; prompt and README say so

    def preflight(self, order: Order, budget_usd: Decimal | None) -> tuple[PreflightCheck, ...]:
        """Look at everything that can be looked at without a bill."""

    def places(self, order: Order) -> Sequence[Place]:
        """Where the order could stand, best first; the order's own place comes first."""

    def prepare(self, order: Order) -> Order:
        """Make or find what is free and must be there before: groups, keys, roles. Repeatable."""

    def create(self, order: Order, log: Log) -> Created:
        """Bring the cluster up through ``clusters.backend``; returns once all nodes joined, or raises."""

    def reach(self, order: Order) -> AbstractContextManager[Created]:
        """Open the way to a cluster that is up; the address is valid as long as the context lasts."""

    def shell(self, order: Order) -> tuple[str, ...]:
        """Words of a command that opens a shell on the head; empty where the head is this machine."""

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        """Everything with the tag of the launch (``None``: of any launch of ours), in any state but gone."""

    def delete(self, resource: Resource) -> None:
        """Ask for one thing to be deleted. Repeatable; what is gone already is no error."""

    def stop_cluster(self, order: Order, log: Log) -> None:
        """End Ray and its machines in good order, where that is possible; ``delete`` does the rest."""

    def extend(self, order: Order, deadline: datetime) -> None:
        """Move the timer that ends each node, and the watchdog's, to ``deadline`` (UTC)."""

    def by_hand(self, resource: Resource) -> str:
        """Return a command that deletes the thing without us."""
