"""What Ray's launcher printed, as recorded from Ray 2.60, is sorted into what a launch does next."""

import csv
from datetime import date
from importlib.resources import files
from pathlib import Path

import pytest

from clusters.backend import sorting
from clusters.backend.launcher import joined_in

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("ssh_unreachable", "unreachable", "ssh: connect to host 10.77.0.2 port 22: No route to host"),
        ("setup_fails", "setup", "plan: 8 GPUs expected on this host"),
        ("ray_start_fails", "setup", "The current node timed out during startup"),
        ("no_capacity", "capacity", "InsufficientInstanceCapacity"),
    ],
)
def test_a_recorded_failure_is_sorted_and_says_what_happened(name: str, kind: str, words: str):
    fault = sorting.of_launcher("ray up", recorded(name), timed_out=False)
    assert fault.kind == kind
    assert words in str(fault)
    assert fault.log.splitlines()[-1] == recorded(name).splitlines()[-1]


def test_a_host_that_never_answered_is_unreachable_also_when_time_was_over():
    assert sorting.of_launcher("ray up", recorded("ssh_unreachable"), timed_out=True).kind == "unreachable"


def test_silence_until_the_end_is_a_time_out():
    assert sorting.of_launcher("ray up", "", timed_out=True).kind == "timeout"
    assert str(sorting.of_launcher("ray up", "", timed_out=False)) == "ray up failed: it said nothing"


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ("", "not-joined"),
        ("InsufficientInstanceCapacity", "capacity"),
        ("InsufficientInstanceCapacity VcpuLimitExceeded", "quota"),
        ("InsufficientInstanceCapacity UnauthorizedOperation", "permission"),
    ],
)
def test_nodes_that_do_not_join_are_sorted_by_what_the_head_was_told(codes: str, kind: str):
    fault = sorting.of_nodes(4, 3, codes, "said")
    assert fault.kind == kind
    assert str(fault).startswith("3 of 4 nodes joined")


def test_the_last_count_of_the_head_counts():
    said = 'PLAN-JOINED {"nodes": 1, "gpus": 8, "alive": 2}\nPLAN-FAULT VcpuLimitExceeded\n'
    said += 'noise\nPLAN-JOINED {"nodes": 2, "gpus": 16, "alive": 3}\nShared connection closed.'
    assert joined_in(said) == ((2, 16), "VcpuLimitExceeded")
    assert joined_in("ssh: no") == (None, "")


def test_every_code_has_a_kind_once_with_source_and_date():
    text = files("clusters.backend").joinpath("data/aws_faults.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len({row["code"] for row in rows}) == len(rows) == len(sorting.table())
    for row in rows:
        assert row["source"].startswith("docs.aws.amazon.com/")
        date.fromisoformat(row["date"])
    assert {"capacity", "quota", "credentials", "permission", "image", "throttling"} <= {
        r["kind"] for r in rows
    }


def test_every_quota_has_a_code_once_with_source_and_date():
    text = files("clusters.backend").joinpath("data/aws_quotas.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    prefixes = [(prefix, row["market"]) for row in rows for prefix in row["prefixes"].split()]
    assert len(set(prefixes)) == len(prefixes)
    for row in rows:
        assert row["code"].startswith("L-")
        assert row["source"]
        date.fromisoformat(row["date"])
