"""What a launch adds to a document: its mark on every process, its own files, its watchdog on every node."""

from pathlib import Path

import pytest

from clusters.backend import documents, launcher
from clusters.config import check, emit
from clusters.config.choices import Format
from clusters.config.nodes import cluster_of
from clusters.watchdog import MARK
from tests.clusters import tools

LAUNCH = "l-4f2a"


def made(case: str, shared: bool) -> tuple[dict, dict, Format]:
    plan, choices, kind = tools.CASES[case]
    before = emit.documents(cluster_of(plan, choices, kind), choices, kind)["cluster.yaml"]
    after = documents.launch_document(before, LAUNCH, Path("/d/auth_token"), Path("/d/limits.json"), shared)
    return before, after, kind


@pytest.mark.parametrize(("case", "shared"), [("local", True), ("aws-on-demand", False)])
def test_every_start_command_carries_the_mark_and_the_last_starts_the_watchdog(case: str, shared: bool):
    _, document, _ = made(case, shared)
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert all(f"{MARK}={LAUNCH}" in command for command in document[key])
        assert "watchdog.py watch" in document[key][-1]
    assert document["head_start_ray_commands"][-1] != document["worker_start_ray_commands"][-1]


@pytest.mark.parametrize(("case", "shared"), [("local", True), ("aws-on-demand", False)])
def test_the_document_is_still_what_ray_takes(case: str, shared: bool):
    _, document, _ = made(case, shared)
    assert check.ray_problems(document) == []


def test_on_shared_hosts_no_other_ray_is_ended_and_the_users_own_token_stays():
    _, document, _ = made("local", shared=True)
    commands = document["head_start_ray_commands"] + document["worker_start_ray_commands"]
    assert not any("ray stop" in command for command in commands)
    assert "~/.ray/auth_token" not in document["file_mounts"]
    assert all(f"RAY_TMPDIR=/tmp/plan-{LAUNCH}" in command for command in commands)


def test_the_emitted_document_itself_stays_as_it_was():
    before, _, _ = made("local", shared=True)
    again, _, _ = made("local", shared=True)
    assert before == again
    assert MARK not in str(before)


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path):
    path = launcher.write_token(tmp_path)
    first = path.read_text()
    assert len(first) == 64
    assert launcher.write_token(tmp_path) == path
    assert path.read_text() == first
    assert path.stat().st_mode & 0o077 == 0
