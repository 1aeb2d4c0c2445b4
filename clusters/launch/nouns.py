"""What a launch is asked, what it asks of the world, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, Protocol

from clusters.backend.shell import Log
from clusters.clouds.base import Cloud, Created, Order, PreflightCheck
from clusters.config.choices import Choices
from clusters.launch.interrupts import Interrupts
from clusters.ledger.store import Ledger
from planner.launched import CloudKind, Event, Launch, Outcome, Resource
from planner.probed import ProbeResult, ProbeVerdict
from planner.results import Plan
from planner.types import Offer, Record

DONE, FAILED, USAGE, NO_CREDENTIALS, PROBE_FAILED, MAY_BILL, KEPT, INTERRUPTED = 0, 1, 2, 4, 5, 6, 7, 130
Elsewhere = Literal["region", "any"]


class Limits(Record):
    """Bounds of time and of tries. ``looks``: empty answers in a row before a thing counts as gone.

    Of a full run on spot: ``rebuilds`` of its cluster; ``lost_after_s``: how long a job may wait for machines
    that are gone; ``capacity_waits`` of ``capacity_wait_s`` each where there are none to be had.
    """

    create_timeout_s: float = 1800.0
    probe_timeout_s: float = 600.0
    teardown_timeout_s: float = 900.0
    looks: int = 2
    look_every_s: float = 5.0
    look_at_most_every_s: float = 30.0
    tries: int = 6
    backoff_s: float = 2.0
    backoff_at_most_s: float = 60.0
    dearer_at_most: float = 0.05
    down_waits_s: float = 60.0
    rebuilds: int = 20
    watch_every_s: float = 30.0
    lost_after_s: float = 300.0
    capacity_waits: int = 12
    capacity_wait_s: float = 300.0


class LaunchRequest(Record):
    """What the user asked for. ``then``: command of the full run, ``working_dir`` what goes along with it.
    ``directory``: where launches keep their files.

    ``budget_usd`` caps everything, the probe included; ``None`` only where nothing has a price.
    """

    plan: Plan
    choices: Choices
    kind: CloudKind
    user: str
    directory: str
    budget_usd: Decimal | None
    reservation_usd: Decimal | None = None  # paid for the whole capacity block
    project: str | None = None
    then: str | None = None
    working_dir: str | None = None
    keep: bool = False
    yes: bool = False
    accept_price: bool = False
    next_on_fail: bool = False
    limits: Limits = Limits()


class Ceiling(Record):
    """What the user has said yes to: the next candidate needs no new answer below it."""

    usd_per_hour: Decimal | None
    at_most_usd: Decimal | None


class PriceItem(Record):
    """A part of what an hour costs. ``usd_per_hour`` of one; ``None`` = not known, never summed."""

    item: str
    quantity: int
    usd_per_hour: Decimal | None
    source: str
    usd_once: Decimal | None = None  # paid up front for the whole item


class Confirmation(Record):
    """What stands on the screen before the question.

    ``shown_usd_per_hour``: of a node when the plan was shown; ``node_usd_per_hour``: now. ``tried``: whether
    this way has ever been started on the real thing.
    """

    launch_id: str
    plan: Plan
    kind: CloudKind
    items: tuple[PriceItem, ...]
    shown_usd_per_hour: Decimal | None
    node_usd_per_hour: Decimal | None
    at_most_usd: Decimal | None
    budget_usd: Decimal | None
    deadline: datetime
    then: str | None
    keep: bool
    tried: bool
    limits: Limits


class Work(Record):
    """What a resumed launch needs: the request, the last order, what was confirmed, where the cluster is."""

    request: LaunchRequest
    order: Order | None = None
    ceiling: Ceiling | None = None
    created: Created | None = None


class Finished(Record):
    """How a launch ended. ``elsewhere``: another region, or any other candidate, may do.

    ``nothing_created``: it ended before any create was begun, so there was nothing to tear down.
    """

    launch_id: str
    outcome: Outcome
    exit_code: int
    message: str
    hint: str = ""
    left: tuple[Resource, ...] = ()
    elsewhere: Elsewhere | None = None
    ceiling: Ceiling | None = None
    nothing_created: bool = False


class Screen(Protocol):
    """Where a launch is shown. The last call of a command is ``finished``."""

    def event(self, event: Event) -> None:
        """Show that a state was entered, or that something happened in it."""

    def say(self, text: str) -> None:
        """Show a line of progress or of a log."""

    def checks(self, checks: tuple[PreflightCheck, ...]) -> None:
        """Show what was looked at before anything bills."""

    def confirmation(self, confirmation: Confirmation) -> None:
        """Show what it costs and what happens on Ctrl-C."""

    def verdict(self, verdict: ProbeVerdict, launch: Launch) -> None:
        """Show prediction against measurement, and the forecast."""


class Proving(Protocol):
    """The probe, its verdict, and jobs. Every method but ``judge`` may raise ``CloudFault``."""

    def probe(self, created: Created, plan: Plan, timeout_s: float, log: Log) -> ProbeResult:
        """Run the probe; returns within ``timeout_s`` and a little, also where it hangs."""

    def judge(self, plan: Plan, result: ProbeResult, budget_usd: Decimal | None) -> ProbeVerdict:
        """Compare with the prediction; price the rest of the run again."""

    def submit(self, created: Created, request: LaunchRequest, job_id: str) -> str:
        """Start the full run, ``request.then``. Repeatable: a job of that id that is there is the answer."""

    def follow(self, created: Created, job_id: str, log: Log, tick: Callable[[], None] | None = None) -> bool:
        """Hand on the job's log until it ends; whether it succeeded. ``tick``: called at least every second
        or so; what it raises ends the following.
        """


@dataclass(frozen=True, slots=True)
class Hands:
    """Everything by which a launch acts on the world.

    ``price_now``: of one node today, ``None`` where nobody says. ``next_plans``: what may stand in for a
    plan, best first, other regions of the same machine before other machines. ``ask`` is ``None`` without
    a terminal. ``jitter``: a number from 0 to 1.
    """

    ledger: Ledger
    cloud_of: Callable[[LaunchRequest], Cloud]
    proving: Proving
    price_now: Callable[[Offer], Decimal | None]
    next_plans: Callable[[Plan], Iterable[Plan]]
    screen: Screen
    ask: Callable[[str], bool] | None
    now: Callable[[], datetime]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    new_id: Callable[[], str]
    interrupts: Interrupts
