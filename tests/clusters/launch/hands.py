"""Hands that touch nothing: a clock that moves when somebody sleeps, a screen that remembers."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from clusters.backend.shell import Log
from clusters.clouds.base import Cloud, Created, PreflightCheck
from clusters.faults import CloudFault
from clusters.launch.interrupts import Interrupts
from clusters.launch.nouns import Confirmation, Hands, LaunchRequest, Limits
from clusters.ledger.store import Ledger
from clusters.scrub import scrubber
from planner.launched import Event, Launch
from planner.probed import Check, Failure, ProbeResult, ProbeVerdict, Repriced
from planner.results import Plan
from planner.types import Band, Offer
from tests.clusters import tools

LIMITS = Limits(teardown_timeout_s=120.0, down_waits_s=1.0, tries=4)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.time = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
        self.slept: list[float] = []

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += timedelta(seconds=seconds)


class Screen:
    """What was shown, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.said: list[str] = []
        self.checked: list[PreflightCheck] = []
        self.confirmations: list[Confirmation] = []
        self.verdicts: list[ProbeVerdict] = []
        self.on_event: Callable[[Event], None] = lambda event: None

    def event(self, event: Event) -> None:
        self.events.append(event)
        self.on_event(event)

    def say(self, text: str) -> None:
        self.said.append(text)

    def checks(self, checks: tuple[PreflightCheck, ...]) -> None:
        self.checked += checks

    def confirmation(self, confirmation: Confirmation) -> None:
        self.confirmations.append(confirmation)

    def verdict(self, verdict: ProbeVerdict, launch: Launch) -> None:
        self.verdicts.append(verdict)


class Proving:
    """A probe, a verdict and jobs by script."""

    def __init__(self) -> None:
        self.passes = True
        self.cost_usd = 100.0
        self.probe_faults: list[CloudFault] = []
        self.submit_faults: list[CloudFault] = []
        self.follow_raises: BaseException | None = None
        self.job_succeeds = True
        self.probes = 0
        self.jobs: list[str] = []
        self.takes_s = 240.0
        self.failure: str | None = None  # kind of a failure in the result
        self.failed_on: str | None = None  # host of that failure
        self.clock: Clock | None = None

    def probe(self, created: Created, plan: Plan, timeout_s: float, log: Log) -> ProbeResult:
        self.probes += 1
        log("probing")
        if self.clock is not None:
            self.clock.sleep(min(self.takes_s, timeout_s))
        if self.probe_faults:
            raise self.probe_faults.pop(0)
        failure = (
            Failure(kind=self.failure, phase="steps", rank=0, node=self.failed_on) if self.failure else None
        )
        return ProbeResult(
            failures=() if failure is None else (failure,),
            started=tools.NOW,
            wall_s=self.takes_s,
            phase_s={},
            versions={},
            num_nodes=created.num_nodes,
            num_ranks=1,
            num_layers=1,
            num_params=None,
        )

    def judge(self, plan: Plan, result: ProbeResult, budget_usd: Decimal | None) -> ProbeVerdict:
        within = budget_usd is None or self.cost_usd <= budget_usd
        cost = Band(low=self.cost_usd * 0.9, mid=self.cost_usd, high=self.cost_usd * 1.1)
        hours = Band(low=9, mid=10, high=11)
        passed = self.passes and not result.failures
        check = Check(name="step time", predicted=None, measured=1.0, limit=2.0, unit="s", passed=passed)
        return ProbeVerdict(
            verdict="pass" if passed else "fail",
            checks=(check,),
            repriced=Repriced(hours=hours, cost_usd=cost, budget_usd=budget_usd, within_budget=within),
            advice=("--recompute full",),
        )

    def submit(self, created: Created, request: LaunchRequest, job_id: str) -> str:
        if self.submit_faults:
            raise self.submit_faults.pop(0)
        if job_id not in self.jobs:
            self.jobs.append(job_id)
        return job_id

    def follow(self, created: Created, job_id: str, log: Log, tick: Callable[[], None] | None = None) -> bool:
        if self.follow_raises is not None:
            raise self.follow_raises
        log("step 1")
        return self.job_succeeds


def request(directory: Path, **more: object) -> LaunchRequest:
    """What ``plan launch p-… --budget 1000 --yes`` asks."""
    fields = {
        "plan": tools.plan(),
        "choices": tools.choices(launch_id="by-hand", zone=None, subnet=None, security_group=None),
        "kind": "aws",
        "user": "ada",
        "directory": str(directory / "launches"),
        "budget_usd": Decimal(1000),
        "yes": True,
        "limits": LIMITS,
        **more,
    }
    return LaunchRequest.model_validate(fields)


def hands(
    directory: Path,
    cloud: Cloud,
    *,
    clock: Clock | None = None,
    screen: Screen | None = None,
    proving: Proving | None = None,
    ledger: Ledger | None = None,
    ask: Callable[[str], bool] | None = None,
    price_now: Callable[[Offer], Decimal | None] = lambda offer: offer.usd_per_hour,
    next_plans: Callable[[Plan], Iterable[Plan]] = lambda plan: (),
    ids: Iterable[str] = (),
) -> Hands:
    """Hands over one cloud; what is not given is made."""
    clock, screen = clock or Clock(), screen or Screen()
    proving = proving or Proving()
    proving.clock = clock
    names = iter([*ids, *(f"l-{number:02d}" for number in range(1, 100))])
    return Hands(
        ledger=ledger or Ledger(directory, scrubber({})),
        cloud_of=lambda asked: cloud,
        proving=proving,
        price_now=price_now,
        next_plans=next_plans,
        screen=screen,
        ask=ask,
        now=clock.now,
        sleep=clock.sleep,
        jitter=lambda: 0.5,
        new_id=lambda: next(names),
        interrupts=Interrupts(screen.say),
    )
