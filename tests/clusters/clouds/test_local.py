"""This machine as a cloud: what preflight sees. A real Ray is in ``tests/clusters/launch``."""

from pathlib import Path

import pytest

from clusters.clouds import local
from clusters.clouds.base import Order, Place
from clusters.clouds.local import LocalCloud
from clusters.faults import CloudFault
from planner.launched import Resource
from planner.results import Plan
from tests.cli.conftest import memory
from tests.clusters import tools

LAUNCH = "l-nothing-runs"


def order(tmp_path: Path, plan: Plan) -> Order:
    return Order(
        plan=plan,
        choices=tools.choices(launch_id=LAUNCH),
        launch_id=LAUNCH,
        place=Place(region="own"),
        directory=str(tmp_path),
        num_nodes=1,
        create_timeout_s=60,
    )


def small(num_gpus: int = 1) -> Plan:
    """A plan whose ranks need little memory."""
    plan = tools.plan(per_node=num_gpus)
    need = memory(1.0, 0.01)
    return plan.model_copy(update={"candidate": plan.candidate.model_copy(update={"memory": need})})


def checks(tmp_path: Path, plan: Plan) -> dict[str, tuple[bool, str]]:
    return {c.name: (c.passed, c.detail) for c in LocalCloud().preflight(order(tmp_path, plan), None)}


def test_a_small_plan_passes_on_cpus_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "num_gpus", lambda: 0)
    found = checks(tmp_path, small())
    assert found["processors"] == (
        True,
        f"1 CPU workers over gloo stand in for GPUs (0 GPUs and {local.os.cpu_count()} CPUs here)",
    )
    assert found["memory"][0]
    assert found["no such launch"][0]


def test_a_plan_with_more_ranks_than_processors_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "num_gpus", lambda: 0)
    passed, detail = checks(tmp_path, small(4096))["processors"]
    assert not passed
    assert detail.startswith("the plan has 4096 ranks")


def test_gpus_are_used_where_there_is_one_for_each_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "num_gpus", lambda: 8)
    assert checks(tmp_path, small(4))["GPUs"] == (True, "4 of 8 GPUs of this machine")


@pytest.mark.parametrize(("free", "passed"), [(None, False), (1e6, False), (1e15, True)])
def test_memory_that_is_short_or_not_known_does_not_pass(
    free: float | None, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(local, "free_memory_bytes", lambda: free)
    assert checks(tmp_path, small())["memory"][0] == passed


def test_what_does_not_run_cannot_be_reached_or_extended_and_deleting_it_is_no_error(tmp_path: Path):
    cloud, wanted = LocalCloud(), order(tmp_path, small())
    with pytest.raises(CloudFault, match="nothing of l-nothing-runs") as caught, cloud.reach(wanted):
        pass
    assert caught.value.kind == "unreachable"
    with pytest.raises(CloudFault, match="nothing of l-nothing-runs"):
        cloud.extend(wanted, wanted.choices.deadline)
    assert cloud.find(LAUNCH) == ()
    cloud.delete(
        Resource(kind="process-group", id=LAUNCH, state="", place="here", bills=False, launch_id=LAUNCH)
    )
