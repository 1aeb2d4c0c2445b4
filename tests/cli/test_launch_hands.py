"""What a launch is handed: today's prices, next candidates, the probe and jobs of the cluster."""

import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

from clusters.backend.jobs import Job, JobsError, JobState
from clusters.clouds.base import Created
from clusters.faults import CloudFault
from planner.cli import store
from planner.cli.launch import found as launches_found
from planner.cli.launch import hands as launch_hands
from planner.cli.launch import ledger
from planner.cli.launch import next_plans as launch_next
from planner.cli.launch.hands import RealProving, ask_of_terminal, price_now
from planner.errors import UserError
from planner.types import Offer
from tests.clusters import tools
from tests.clusters.launch.hands import request
from tests.clusters.ledger.test_store import launch

OFFER = tools.plan().candidate.offer
CREATED = Created(address="http://127.0.0.1:8265", num_nodes=1, num_gpus=4)


def listed(monkeypatch: pytest.MonkeyPatch, *offers: Offer) -> list[str]:
    """Put offers in place of the catalog; returns which providers are asked."""
    asked: list[str] = []
    monkeypatch.setattr(launch_hands.registry, "provider_names", lambda: ("aws",))
    monkeypatch.setattr(launch_hands.registry, "offers", lambda names: SimpleNamespace(offers=offers))
    monkeypatch.setattr(launch_hands, "adapters", lambda: {"aws": SimpleNamespace(provider="aws")})
    monkeypatch.setattr(launch_hands, "refresh", lambda found, *rest, **more: asked.append(found[0].provider))
    return asked


def seen(hours_ago: float, price: str | None = "9.50", **more: object) -> Offer:
    update = {
        "usd_per_hour": None if price is None else Decimal(price),
        "price_seen": datetime.now(UTC) - timedelta(hours=hours_ago),
        **more,
    }
    return OFFER.model_copy(update=update)


def test_a_price_of_today_is_taken_without_asking(monkeypatch: pytest.MonkeyPatch):
    asked = listed(monkeypatch, seen(1, region="us-west-2"), seen(2, "9.40"))
    assert price_now(OFFER) == Decimal("9.40")
    assert asked == []


def test_an_older_price_is_asked_for_again(monkeypatch: pytest.MonkeyPatch):
    asked = listed(monkeypatch, seen(48))
    assert price_now(OFFER) == Decimal("9.50")
    assert asked == ["aws"]


def test_an_offer_that_nobody_lists_has_no_price_now(monkeypatch: pytest.MonkeyPatch):
    listed(monkeypatch, seen(1, instance_type="other"))
    assert price_now(OFFER) is None
    assert price_now(OFFER.model_copy(update={"provider": "mine"})) is None


def test_next_come_cheaper_regions_then_the_others_of_the_suggest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    listed(
        monkeypatch,
        seen(1, "12.00", region="eu-west-1"),
        seen(1, "11.00", region="us-west-2"),
        seen(1, None, region="us-east-2"),
        seen(1, "1.00", region="us-west-1", market="spot"),
        seen(1, "1.00"),
    )
    plan = tools.plan()
    rows = {"p-aaaaaaaa": ("ok", 2), "p-bbbbbbbb": ("over", 3), "p-cccccccc": ("tight", 4)}
    others = [
        plan.candidate.model_copy(update={"id": name, "verdict": verdict, "rank": rank})
        for name, (verdict, rank) in rows.items()
    ]
    store.save_shown([plan.candidate, *others], plan.command, tools.NOW)
    found = list(launch_next.next_plans(plan))
    assert [(p.candidate.offer.region, p.candidate.offer.usd_per_hour) for p in found[:2]] == [
        ("us-west-2", Decimal("11.00")),
        ("eu-west-1", Decimal("12.00")),
    ]
    assert [p.id for p in found[2:]] == ["p-aaaaaaaa", "p-cccccccc"]


def test_a_question_needs_a_terminal_and_its_default_is_no(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert ask_of_terminal() is None
    for typed, meant in (("\n", False), ("", False), ("n\n", False), ("y\n", True), ("YES\n", True)):
        terminal = io.StringIO(typed)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        ask = ask_of_terminal()
        assert ask is not None
        assert ask("Start?") is meant


class FakeJobs:
    """Jobs of a cluster."""

    def __init__(self, *known: str) -> None:
        self.known = list(known)
        self.submitted: list[Job] = []
        self.error: JobsError | None = None

    def state(self, job_id: str) -> JobState:
        if self.error is not None:
            raise self.error
        if job_id not in self.known:
            raise JobsError("refused", f"no job {job_id}")
        return JobState(status="succeeded")

    def submit(self, job: Job) -> str:
        self.submitted.append(job)
        return job.submission_id

    def follow(self, job_id: str) -> Iterator[str | None]:
        yield from ("step 1", None, "step 2")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> FakeJobs:
    made = FakeJobs()
    monkeypatch.setattr(launch_hands, "_jobs", lambda created: made)
    return made


def test_the_full_run_is_submitted_once(tmp_path: Path, jobs: FakeJobs):
    asked = request(tmp_path, then="python train.py", working_dir=str(tmp_path))
    proving = RealProving(None, quiet=True)
    assert proving.submit(CREATED, asked, "l-01") == "l-01"
    (job,) = jobs.submitted
    assert (job.entrypoint, job.submission_id, job.working_dir) == ("python train.py", "l-01", str(tmp_path))
    assert ".env*" in job.excludes
    jobs.known = ["l-01"]
    assert proving.submit(CREATED, asked, "l-01") == "l-01"
    assert len(jobs.submitted) == 1


def test_a_job_is_followed_to_its_end(jobs: FakeJobs):
    jobs.known = ["l-01"]
    lines: list[str] = []
    assert RealProving(None, quiet=True).follow(CREATED, "l-01", lines.append)
    assert lines == ["step 1", "step 2"]


@pytest.mark.parametrize(("kind", "fault"), [("unreachable", "connection"), ("forbidden", "permission")])
def test_what_a_cluster_does_not_answer_is_a_sorted_fault(
    tmp_path: Path, jobs: FakeJobs, kind: str, fault: str
):
    jobs.error = JobsError(kind, "no")  # type: ignore[arg-type]
    with pytest.raises(CloudFault) as raised:
        RealProving(None, quiet=True).submit(CREATED, request(tmp_path, then="x"), "l-01")
    assert raised.value.kind == fault


def test_a_launch_is_found_by_its_id_its_beginning_or_its_plan(monkeypatch: pytest.MonkeyPatch):
    known = (launch("l-aa01", "p-1111"), launch("l-ab02", "p-2222"), launch("l-ab03", "p-3333"))
    monkeypatch.setattr(ledger, "launches", lambda: known)
    assert launches_found.launch_id_of("l-aa01") == "l-aa01"
    assert launches_found.launch_id_of("l-aa") == "l-aa01"
    assert launches_found.launch_id_of("p-2222") == "l-ab02"
    with pytest.raises(UserError, match="can mean several launches: l-ab02, l-ab03"):
        launches_found.launch_id_of("l-ab")
    with pytest.raises(UserError, match=r"no launch 'l-zz'"):
        launches_found.launch_id_of("l-zz")
