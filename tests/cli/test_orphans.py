"""``plan ls --orphans``, ``adopt`` and ``down --all``: two laptops with one account, or a lost ledger."""

import io
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest

from clusters.clouds.marks import Marks
from clusters.faults import CloudFault
from clusters.ledger.store import Ledger
from clusters.scrub import scrubber
from planner.cli import main, store
from planner.cli.launch import hands as launch_hands
from planner.cli.launch import next_plans as launch_next
from planner.cli.schema import document_of
from planner.launched import Launch, Resource
from tests.clusters import tools
from tests.clusters.launch.cloud import FileCloud
from tests.clusters.launch.hands import Proving

PLAN = "p-0123456789ab"
SINCE = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)


class Tagged(FileCloud):
    """The cloud in a file, which also says what the tags hold; it knows nothing on this machine."""

    plan_id: str | None = PLAN

    def marks(self, launch_id: str | None) -> tuple[Marks, ...]:
        machines = [r for r in self.resources() if r.kind == "instance"]
        return tuple(
            Marks(
                launch_id=name,
                plan_id=self.plan_id,
                owner="ada",
                deadline=datetime(2027, 1, 1, tzinfo=UTC),
                region="us-east-1",
                zone="us-east-1a",
                market="on-demand",
                machine_type="g6e.12xlarge",
                machines=tuple(m.id for m in machines if m.launch_id == name),
                since=SINCE,
            )
            for name in sorted({str(r.launch_id) for r in self.resources()})
        )


class Silent:
    """A cloud that does not answer."""

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        raise CloudFault("credentials", "no credentials were found", "aws configure")


class Empty:
    """This machine, on which nothing of ours runs."""

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        return ()


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tagged:
    """A saved plan and one account in a file, as this laptop sees it."""
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path / "mine"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    store.save_shown([tools.plan().candidate], "plan suggest", tools.NOW)
    made = Tagged(tmp_path)
    monkeypatch.setattr(launch_hands, "cloud_of", lambda request: made)
    monkeypatch.setattr(
        "planner.cli.launch.clouds_asked.cloud_for",
        lambda kind, choices, regions=(): Empty() if kind == "local" else made,
    )
    monkeypatch.setattr(launch_hands, "price_now", lambda offer: offer.usd_per_hour)
    monkeypatch.setattr(launch_next, "next_plans", lambda plan: iter(()))
    monkeypatch.setattr(launch_hands.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(launch_hands, "RealProving", lambda known, quiet: Proving())
    return made


@pytest.fixture
def theirs(cloud: Tagged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A launch of another laptop in the same account; its id."""
    with monkeypatch.context() as other:
        other.setenv("PLAN_DATA_DIR", str(tmp_path / "theirs"))
        store.save_shown([tools.plan().candidate], "plan suggest", tools.NOW)
        assert main.run(["launch", PLAN, "--budget", "1000", "--yes", "--quiet"]) == 0
        return launches()[0].id


def launches() -> tuple[Launch, ...]:
    return Ledger(store.data_dir(), scrubber({})).launches()


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_launch_of_another_laptop_is_shown_with_its_tags_and_the_commands_by_hand(
    theirs: str, cloud: Tagged, capsys: pytest.CaptureFixture[str]
):
    capsys.readouterr()
    before = cloud.resources()
    assert main.run(["ls", "--orphans"]) == 0
    out, _ = capsys.readouterr()
    for said in (
        f"{theirs}, aws: no row in this ledger",
        "owner ada",
        f"plan {PLAN}",
        "ends itself in",
        "something of it bills",
        f"plan adopt {theirs}",
    ):
        assert said in flat(out), said
    assert re.search(r"instance +i-0 +running +us-east-1 +yes", out)
    assert re.search(r"security-group +sg-1 +running +us-east-1 +no", out)
    assert "Asked: this machine, aws us-east-1. Nothing was deleted." in flat(out)
    assert cloud.resources() == before
    assert max(map(len, out.splitlines())) <= 100


def test_orphans_as_a_document(theirs: str, capsys: pytest.CaptureFixture[str]):
    capsys.readouterr()
    assert main.run(["ls", "--orphans", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, document_of("ls orphans").model_json_schema(mode="serialization"))
    (orphan,) = document["orphans"]
    assert (orphan["launch_id"], orphan["why"], orphan["marks"]["owner"]) == (theirs, "no-row", "ada")
    assert {(a["kind"], a["answered"]) for a in document["asked"]} == {("local", True), ("aws", True)}


def test_our_own_launch_is_no_orphan(cloud: Tagged, capsys: pytest.CaptureFixture[str]):
    assert main.run(["launch", PLAN, "--budget", "1000", "--yes", "--quiet"]) == 0
    capsys.readouterr()
    assert main.run(["ls", "--orphans"]) == 0
    assert "No orphans where a cloud answered." in capsys.readouterr().out


def test_a_cloud_that_does_not_answer_is_named_and_never_counted_as_empty(
    cloud: Tagged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(
        "planner.cli.launch.clouds_asked.cloud_for",
        lambda kind, choices, regions=(): Empty() if kind == "local" else Silent(),
    )
    assert main.run(["ls", "--orphans", "--region", "us-east-1,eu-west-1"]) == 0
    out, err = capsys.readouterr()
    assert "Asked: this machine." in out
    assert "not known: aws, us-east-1, eu-west-1: no credentials were found (aws configure)" in err


def test_without_any_region_aws_is_named_as_not_asked(cloud: Tagged, capsys: pytest.CaptureFixture[str]):
    store.remove(PLAN)
    assert main.run(["ls", "--orphans"]) == 0
    assert "not known: aws, any region: no launch and no saved plan names a region" in capsys.readouterr().err


def test_down_of_all_leaves_what_another_laptop_has_launched(
    theirs: str, cloud: Tagged, capsys: pytest.CaptureFixture[str]
):
    before = cloud.resources()
    assert main.run(["down", "--all", "--yes"]) == 0
    assert f"not ended: {theirs} of ada has no row in this ledger" in capsys.readouterr().err
    assert cloud.resources() == before


def test_down_of_all_with_orphans_names_them_and_ends_them(
    theirs: str, cloud: Tagged, capsys: pytest.CaptureFixture[str]
):
    assert main.run(["down", "--all", "--orphans"]) == 2
    assert f"{theirs} of ada" in capsys.readouterr().err
    assert cloud.resources()
    assert main.run(["down", "--all", "--orphans", "--yes"]) == 0
    assert not cloud.resources()


def test_what_is_left_of_a_launch_of_ours_that_was_taken_for_gone_is_ended_without_a_flag(cloud: Tagged):
    assert main.run(["launch", PLAN, "--budget", "1000", "--yes", "--quiet"]) == 0
    there = cloud.resources()
    assert main.run(["down", PLAN]) == 0
    cloud._write(there)
    assert main.run(["down", "--all", "--yes"]) == 0
    assert not cloud.resources()


def test_an_adopted_launch_is_listed_counted_and_ended(
    theirs: str, cloud: Tagged, capsys: pytest.CaptureFixture[str]
):
    assert main.run(["adopt", theirs]) == 0
    (adopted,) = launches()
    assert (adopted.user, adopted.plan_id, adopted.state) == ("ada", PLAN, "up")
    assert {
        (p.item, p.quantity, p.usd_per_hour and float(p.usd_per_hour), p.since) for p in adopted.prices
    } == {
        ("node", 1, 10.0, SINCE),
        ("disk", 1, None, SINCE),
    }
    capsys.readouterr()
    assert main.run(["ls", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["outcome"], row["unknown"]) == ("left_running", ["disk"])
    assert main.run(["ls"]) == main.run(["report"]) == main.run(["doctor"]) == 0
    assert main.run(["adopt", theirs]) == 2
    assert f"{theirs} is in this ledger already, up" in capsys.readouterr().err
    assert main.run(["launch", "--resume", theirs, "--yes"]) == main.run(["extend", theirs, "2h"]) == 2
    assert main.run(["down", theirs]) == 0
    assert not cloud.resources()
    assert launches()[0].state == "gone"
    assert main.run(["down", theirs]) == 0


def test_without_its_plan_what_an_adopted_launch_costs_is_unknown_and_never_nothing(
    theirs: str, cloud: Tagged, capsys: pytest.CaptureFixture[str]
):
    cloud.plan_id = "p-of-another-laptop"
    assert main.run(["adopt", theirs]) == 0
    assert "what it costs is unknown" in flat(capsys.readouterr().out)
    (adopted,) = launches()
    assert all(p.usd_per_hour is None for p in adopted.prices)
    assert (adopted.gpu, adopted.gpus_per_node) == ("L40S", 4)
    assert main.run(["ls", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["spent_usd"], row["usd_per_hour"], row["forecast_usd"]) == (None, None, None)
    assert main.run(["ls"]) == 0
    assert "unknown" in capsys.readouterr().out
    assert main.run(["report", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["without_plan"], report["spent_is_complete"]) == ([theirs], False)
    assert main.run(["report"]) == 0
    assert f"{theirs} was adopted without its plan" in flat(capsys.readouterr().out)
    cloud.stuck = ("i-0",)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clusters.launch.teardown.timedelta", lambda seconds: tools.timedelta(seconds=0.05))
        assert main.run(["down", theirs]) == 6
    out, err = capsys.readouterr()
    assert "at a price that is unknown" in flat(out)
    assert "aws ec2 delete-instance --id i-0" in err


def test_a_launch_that_was_taken_for_gone_comes_back_with_what_it_cost_meanwhile(cloud: Tagged):
    assert main.run(["launch", PLAN, "--budget", "1000", "--yes", "--quiet"]) == 0
    there = cloud.resources()
    assert main.run(["down", PLAN]) == 0
    gone = launches()[0]
    cloud._write(there)
    assert main.run(["adopt", gone.id]) == 0
    back = launches()[0]
    ended = gone.transitions[-1].at
    again = {p.item: p for p in back.prices if p.since == ended}
    assert back.state == "up"
    assert (again["node"].quantity, float(again["node"].usd_per_hour or 0)) == (1, 10.0)
    assert again["disk"].usd_per_hour is not None


def test_what_no_cloud_names_cannot_be_adopted(theirs: str, capsys: pytest.CaptureFixture[str]):
    assert main.run(["adopt", theirs + "x"]) == 2
    err = capsys.readouterr().err
    assert "no cloud that answered names anything of" in err
    assert theirs in err  # did you mean


def test_orphans_of_down_go_with_all(cloud: Tagged, capsys: pytest.CaptureFixture[str]):
    assert main.run(["down", "l-1", "--orphans"]) == 2
    assert "--orphans goes with --all" in capsys.readouterr().err
