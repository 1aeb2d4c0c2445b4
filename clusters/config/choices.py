"""What the user adds to a plan when it becomes a cluster: where, how reached, until when."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime, Field

from planner.cost import disk_gib
from planner.errors import UserError
from planner.results import Plan
from planner.types import Record

Format = Literal["aws", "gcp", "azure", "local", "kuberay"]
MOST_DISK_GIB = 16_000  # of one disk, about what clouds sell
BY_HAND = "by-hand"  # a launch that we do not run: the user starts the files
NODE_PROVIDERS: dict[str, Format] = {"aws": "aws", "gcp": "gcp", "azure": "azure"}


def least_disk_gib() -> int:
    """GiB of a machine's disk for a plan without data."""
    return int(disk_gib(0.0, 1.0))


class Choices(Record):
    """Choices of the user; each has a default that is safe, or ``None`` and then a placeholder is written.

    ``made``, ``deadline``: when the files were written, and when the machines end themselves (UTC).
    ``ssh_from``: the one address range that may reach port 22, CIDR. ``auth_token``: path of a file, never
    the secret. ``disk_gib``: of each machine, as the plan's cost counts it.
    ``spot_cap_usd_per_hour``: of one node. ``image``: instead of the one of ``versions.toml``.
    """

    made: AwareDatetime
    deadline: AwareDatetime
    owner: str = Field(min_length=1, max_length=60)
    launch_id: str = BY_HAND
    cpu_head: bool = False
    idle_minutes: int = Field(default=30, ge=5, le=1440)
    session_manager: bool = False
    ssh_from: str | None = None
    zone: str | None = None
    subnet: str | None = None
    security_group: str | None = None
    spot_cap_usd_per_hour: Decimal | None = None
    reservation: str | None = None
    image: str | None = None
    disk_gib: int = Field(default_factory=least_disk_gib, ge=100, le=MOST_DISK_GIB)
    project: str | None = None
    subscription: str | None = None
    hosts: tuple[str, ...] = ()
    ssh_user: str = "ubuntu"
    ssh_key: str = "~/.ssh/id_ed25519"
    ssh_public_key: str | None = None
    preinstalled: bool = False
    storage: str | None = None
    kubeconfig: str | None = None
    kube_context: str | None = None
    namespace: str = "default"
    node_selector: tuple[str, ...] = ()
    auth_token: str = "~/.ray/auth_token"

    def seconds_left(self) -> int:
        """Seconds from ``made`` to ``deadline``."""
        return round((self.deadline - self.made).total_seconds())

    def deadline_utc(self) -> str:
        """The deadline as ``2026-12-04T09:40:00Z``."""
        return utc(self.deadline)


def utc(moment: datetime) -> str:
    """Write a moment as ``2026-12-04T09:40:00Z``."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def format_of(plan: Plan, wanted: str | None) -> Format:
    """Choose the format: the one asked for, else the provider's own, else ``local`` (machines over SSH)."""
    own = NODE_PROVIDERS.get(plan.candidate.offer.provider, "local")
    if wanted is None or wanted == own:
        return own
    if wanted == "local":
        return "local"
    if wanted == "kuberay":
        return "kuberay"
    raise UserError(
        f"--format {wanted!r:.40}: {plan.id} is on {plan.candidate.offer.provider}; it can be {own}, local or"
        " kuberay",
        f"plan cluster {plan.id} --format {own}",
    )
