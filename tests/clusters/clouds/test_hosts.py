"""Owned hosts: what a host must be, and what is said of one that cannot be asked."""

import shutil
from pathlib import Path

import pytest

from clusters.clouds.base import Order, Place
from clusters.clouds.hosts import HostFacts, HostsCloud, _host_check
from clusters.clouds.registry import cloud_for
from clusters.faults import CloudFault
from planner.errors import UserError
from planner.launched import Resource
from tests.clusters import tools

LAUNCH = "l-4f2a"
HOST = "10.0.0.2"
GIB = 1024**3


def order(tmp_path: Path, **more: object) -> Order:
    return Order(
        plan=tools.rented(nodes=1),
        choices=tools.choices(hosts=(HOST,), launch_id=LAUNCH, **more),
        launch_id=LAUNCH,
        place=Place(region="own"),
        directory=str(tmp_path),
        num_nodes=1,
        create_timeout_s=60,
    )


def facts(**more: object) -> HostFacts:
    fields = {
        "host": HOST,
        "python": "3.12",
        "cpus": 96,
        "gpus": 8,
        "disk_free_bytes": 500 * GIB,
        "shm_free_bytes": 64 * GIB,
        "time_s": 1000.0,
        "ports_taken": (),
        "asked_s": 999.5,
        "answered_s": 1000.5,
        **more,
    }
    return HostFacts.model_validate(fields)


def test_a_host_with_the_gpus_of_the_plan_passes(tmp_path: Path):
    check = _host_check(HOST, facts(), order(tmp_path))
    assert check.passed
    assert check.detail == "Python 3.12, 8 GPUs, 500.0 GiB free, clock 0.0 s off"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"gpus": 7}, "7 GPUs, the plan needs 8"),
        ({"gpus": None}, "nvidia-smi fails or hangs"),
        ({"python": "3.6"}, "Python 3.6, 3.8 or newer"),
        ({"disk_free_bytes": 3 * GIB}, "3.00 GiB free"),
        ({"ports_taken": (6379,)}, "port 6379 is taken (another Ray?)"),
        ({"time_s": 1300.0}, "its clock is 300 s off"),
        ({"time_s": 700.0}, "its clock is 300 s off"),
    ],
)
def test_a_host_that_is_no_node_of_the_plan_says_why(wrong: dict, words: str, tmp_path: Path):
    check = _host_check(HOST, facts(**wrong), order(tmp_path))
    assert not check.passed
    assert words in check.detail


def test_a_slow_way_there_is_no_wrong_clock():
    assert facts(asked_s=990.0, answered_s=1012.0).skew_s == 0


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh here")
def test_a_host_that_cannot_be_reached_fails_its_check_and_is_never_called_empty(tmp_path: Path):
    cloud = HostsCloud(["nowhere.invalid"], "ada", str(tmp_path / "key"), str(tmp_path / "known_hosts"))
    check = cloud.preflight(order(tmp_path), None)[0]
    assert (check.name, check.passed) == ("host nowhere.invalid", False)
    assert check.hint == f"ssh -i {tmp_path}/key ada@nowhere.invalid true"
    with pytest.raises(CloudFault) as caught:
        cloud.find(LAUNCH)
    assert caught.value.kind == "unreachable"


def test_the_command_by_hand_ends_what_carries_the_mark_on_that_host():
    cloud = HostsCloud([HOST], "ada", "~/.ssh/id")
    found = Resource(
        kind="ray-on-host", id=f"{LAUNCH}@{HOST}", state="", place=HOST, bills=False, launch_id=LAUNCH
    )
    assert cloud.by_hand(found).startswith(f"ssh -i ~/.ssh/id ada@{HOST} 'kill -9 $(grep -lsz")
    assert f"PLAN_LAUNCH_ID={LAUNCH} " in cloud.by_hand(found)


def test_the_token_of_a_launch_lies_in_its_own_directory(tmp_path: Path):
    ready = HostsCloud([HOST], "ada", "~/.ssh/id").prepare(order(tmp_path))
    assert ready.choices.auth_token == str(tmp_path / "auth_token")


@pytest.mark.parametrize("kind", ["aws", "hosts", "local"])
def test_every_kind_has_its_cloud(kind: str):
    cloud = cloud_for(kind, tools.choices(hosts=(HOST,)), regions=("us-east-1",))
    assert cloud.kind == kind


def test_hosts_without_addresses_are_refused():
    with pytest.raises(UserError, match="needs their addresses"):
        cloud_for("hosts", tools.choices(hosts=()))
