"""A budget's cap on a real Ray: the watchdog stops the job, lets it write a checkpoint, ends the rest."""

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from clusters import watchdog
from clusters.backend import here
from clusters.backend.jobs import Job, JobState, connect
from clusters.clouds import local, reckoned
from clusters.clouds.base import Order
from clusters.clouds.local import LocalCloud
from tests.clusters import tools

RUN_S, GRACE_S, CHECKPOINT_S = 15, 15, 4
TRAINING = f"""\
import pathlib, signal, sys, time

def stopped(number, frame):
    time.sleep({CHECKPOINT_S})
    pathlib.Path("WHERE/checkpoint").write_text("step 7")
    sys.exit(143)

signal.signal(signal.SIGTERM, stopped)
pathlib.Path("WHERE/begun").write_text("step 0")
time.sleep(600)
"""
pytestmark = [
    pytest.mark.enable_socket,
    # the watchdog outlives whoever started it, so nobody here waits for it
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Capped:
    """What became of a job and of its cluster, which cost a dollar a second and had a few dollars left."""

    def __init__(self, where: Path) -> None:
        (where / "train.py").write_text(TRAINING.replace("WHERE", str(where)))
        self.where, self.order = where, order(where)
        cloud = LocalCloud()
        created = cloud.create(self.order, lambda line: None)
        jobs = connect(created.address, created.auth_token_path)
        name = jobs.submit(Job(entrypoint=f"{sys.executable} {where}/train.py", submission_id="job"))
        self.ended = state_at_its_end(jobs.state, name)
        self.alive_then = bool(watchdog.marked(self.order.launch_id))
        self.gone = comes_true(lambda: not watchdog.marked(self.order.launch_id))
        self.left = cloud.find(self.order.launch_id)


def order(where: Path) -> Order:
    now, launch = datetime.now(UTC), f"l-{here.new_id()}"
    return Order(
        plan=tools.plan(per_node=1),
        choices=tools.choices(made=now, deadline=now + timedelta(hours=1), launch_id=launch),
        launch_id=launch,
        place=local.PLACE,
        directory=str(where),
        num_nodes=1,
        create_timeout_s=120,
        usd_per_hour=Decimal(3600),
        budget_usd=Decimal(RUN_S + GRACE_S) + Decimal(watchdog.TEARDOWN_S),
    )


def state_at_its_end(state_of, name: str) -> JobState:
    found: list[JobState] = []

    def ended() -> bool:
        found[:] = [state_of(name)]
        return found[0].ended

    assert comes_true(ended), found
    return found[0]


def comes_true(what, seconds: float = 90.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.2)
    return False


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capped]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reckoned, "GRACE_S", float(GRACE_S))
        yield Capped(tmp_path_factory.mktemp("cap"))


def test_the_job_is_stopped_before_the_cap_and_has_time_for_a_checkpoint(capped: Capped):
    assert (capped.where / "begun").exists()
    assert (capped.where / "checkpoint").read_text() == "step 7"
    assert capped.ended.status == "stopped"
    assert capped.alive_then  # the cluster itself stands until the grace is over


def test_the_cluster_ends_at_the_cap_with_nothing_left(capped: Capped):
    assert capped.gone
    assert capped.left == ()
    assert not here.directory_of(capped.order.launch_id).exists()
