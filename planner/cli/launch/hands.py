"""What a launch acts with: ledger, clouds, the real probe, today's prices, the screen, clock and chance."""

from __future__ import annotations

import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from clusters.backend import jobs as backend
from clusters.backend.jobs import Job, Jobs, JobsError
from clusters.backend.shell import Log
from clusters.clouds.base import Cloud, Created
from clusters.clouds.registry import cloud_for
from clusters.faults import CloudFault, FaultKind
from clusters.launch.interrupts import Interrupts
from clusters.launch.nouns import Hands, LaunchRequest, Screen
from clusters.ledger.store import Ledger
from clusters.probing import ProbeError, Wishes, probe, request_of
from clusters.scrub import scrubber
from planner.cli import calibration_store, store
from planner.cli.launch import next_plans as launch_next
from planner.cli.probe.progress import ProgressLine
from planner.cli.probe.run import keep_measured
from planner.cli.request import Options
from planner.probed import ProbeResult, ProbeVerdict
from planner.results import Plan
from planner.trust.nearness import Residuals
from planner.types import Offer
from planner.verdict import judge, of_plan
from providers import registry, snapshot
from providers.adapters import adapters
from providers.refresh import refresh

# What never goes along with a job: histories, environments, and where secrets are kept.
EXCLUDES = (".git", ".venv", "venv", "__pycache__", "node_modules", ".env*", "*.pem", ".aws", ".ssh", ".plan")
_FRESH = timedelta(hours=24)
_ASK_S = 20.0
_FAULTS: dict[str, FaultKind] = {"unreachable": "connection", "forbidden": "permission", "refused": "setup"}
_YES = ("y", "yes")


class RealProving:
    """The probe as a Ray job, its verdict, and the full run as another."""

    def __init__(self, known: Residuals | None, quiet: bool) -> None:
        self._known, self._quiet = known, quiet
        self._on_cpu = False

    def probe(self, created: Created, plan: Plan, timeout_s: float, log: Log) -> ProbeResult:
        """Run the probe on the cluster; on CPU workers where it has no GPU. What is measured is kept."""
        self._on_cpu = created.num_gpus == 0
        subject = of_plan(plan, on_cpu=self._on_cpu)
        asked = request_of(subject, Wishes(probe_timeout_s=timeout_s), plan.id)
        progress = ProgressLine()
        try:
            tell = (lambda heard: None) if self._quiet else progress.tell
            result = probe(_jobs(created), asked, tell, lambda line: None)
        except ProbeError as error:
            raise CloudFault("setup", str(error)) from error
        finally:
            progress.close()
        keep_measured(subject, result)
        return result

    def judge(self, plan: Plan, result: ProbeResult, budget_usd: Decimal | None) -> ProbeVerdict:
        """Hold the result against the plan."""
        return judge(of_plan(plan, budget_usd, on_cpu=self._on_cpu), result, self._known)

    def submit(self, created: Created, request: LaunchRequest, job_id: str) -> str:
        """Start the full run, unless a job of that id is there."""
        jobs = _jobs(created)
        try:
            jobs.state(job_id)
        except JobsError as error:
            if error.kind != "refused":
                raise _fault(error) from error
        else:
            return job_id
        job = Job(
            entrypoint=request.then or "",
            submission_id=job_id,
            working_dir=request.working_dir,
            excludes=EXCLUDES,
            metadata={"plan": request.plan.id},
        )
        try:
            return jobs.submit(job)
        except JobsError as error:
            raise _fault(error) from error

    def follow(self, created: Created, job_id: str, log: Log, tick: Callable[[], None] | None = None) -> bool:
        """Hand on the log of the full run until it ends."""
        jobs = _jobs(created)
        try:
            for line in jobs.follow(job_id):
                if line is not None:
                    log(line)
                if tick is not None:
                    tick()
            return jobs.state(job_id).status == "succeeded"
        except JobsError as error:
            raise _fault(error) from error


def hands(options: Options, screen: Screen) -> Hands:
    """Everything real."""
    scrub, quiet = scrubber(os.environ), bool(options.get("quiet"))
    return Hands(
        ledger=Ledger(store.data_dir(), scrub),
        cloud_of=cloud_of,
        proving=RealProving(calibration_store.known({"no_calibration": False, **options}), quiet),
        price_now=price_now,
        next_plans=launch_next.next_plans,
        screen=screen,
        ask=ask_of_terminal(),
        now=lambda: datetime.now(UTC),
        sleep=time.sleep,
        jitter=random.random,
        new_id=lambda: f"l-{secrets.token_hex(4)}",
        interrupts=Interrupts(screen.say),
    )


def cloud_of(request: LaunchRequest) -> Cloud:
    """The cloud of a request, looking in the region of its plan."""
    return cloud_for(request.kind, request.choices, regions=(request.plan.candidate.offer.region,))


def ask_of_terminal() -> Callable[[str], bool] | None:
    """A question on the terminal whose default is No; ``None`` where nobody can answer."""
    if not sys.stdin.isatty():
        return None

    def ask(question: str) -> bool:
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in _YES

    return ask


def price_now(offer: Offer) -> Decimal | None:
    """Price of a node now: the last that was seen, asked for again where it is older than a day."""
    known = _listed(offer)
    now = datetime.now(UTC)
    if known is not None and known.price_seen is not None and now - known.price_seen < _FRESH:
        return known.usd_per_hour
    adapter = adapters().get(offer.provider)
    if adapter is not None:
        refresh([adapter], os.environ, lambda: datetime.now(UTC), snapshot.directory(), limit_s=_ASK_S)
        known = _listed(offer)
    return None if known is None else known.usd_per_hour


def _listed(offer: Offer) -> Offer | None:
    """The same machine in the same place and market, as it is listed today."""
    if offer.provider not in registry.provider_names():
        return None
    listed: Iterable[Offer] = registry.offers([offer.provider]).offers
    wanted = (offer.instance_type, offer.region, offer.zone, offer.market)
    return next((o for o in listed if (o.instance_type, o.region, o.zone, o.market) == wanted), None)


def _jobs(created: Created) -> Jobs:
    try:
        return backend.connect(created.address, created.auth_token_path)
    except JobsError as error:
        raise _fault(error) from error


def _fault(error: JobsError) -> CloudFault:
    return CloudFault(_FAULTS[error.kind], str(error))
