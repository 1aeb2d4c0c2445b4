"""Which accounts of Google Cloud and Azure are asked: those that launches name, else the user's own."""

from pathlib import Path

import pytest

from clusters.config.choices import Choices
from clusters.faults import CloudFault
from clusters.launch import machine
from planner.cli import store
from planner.cli.launch import clouds_asked
from planner.launched import Resource
from tests.clusters import tools
from tests.clusters.launch.cloud import FileCloud
from tests.clusters.launch.hands import hands, request


class Account:
    """A project: what is in it, by launch."""

    def __init__(self, choices: Choices, holds: dict[str | None, str]) -> None:
        self.project = choices.project
        self._holds = holds

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        if self.project == "barred":
            raise CloudFault("permission", "no")
        launch = self._holds.get(self.project)
        if launch is None or launch_id not in (None, launch):
            return ()
        return (
            Resource(kind="instance", id="i", state="RUNNING", place="z-a", bills=True, launch_id=launch),
        )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str | None, str]:
    """Launches by project; every cloud that is made is an account."""
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path / "data"))
    holds: dict[str | None, str] = {}
    monkeypatch.setattr(
        clouds_asked,
        "cloud_for",
        lambda kind, choices, regions=(): Account(choices, holds if kind == "gcp" else {}),
    )
    return holds


def launched(tmp_path: Path, *projects: str):
    """Hands whose ledger has a launch in each project."""
    made = hands(tmp_path, FileCloud(tmp_path))
    for number, project in enumerate(projects):
        plan = tools.gcp().model_copy(update={"id": f"p-00000000000{number}"})
        choices = tools.choices(launch_id="by-hand", subnet=None, security_group=None, project=project)
        machine.launch(request(tmp_path, plan=plan, kind="gcp", choices=choices), made)
    return made


def where(answers: clouds_asked.Answers) -> list[str]:
    return [a.where for a in answers.asked if a.kind == "gcp"]


def test_the_projects_of_launches_are_asked(tmp_path: Path, asked: dict[str | None, str]) -> None:
    h = launched(tmp_path, "one", "two", "one")
    assert where(clouds_asked.ask((), h.ledger.launches(), h)) == ["one", "two"]


def test_a_saved_plan_has_the_users_own_project_asked(tmp_path: Path, asked: dict[str | None, str]) -> None:
    h = launched(tmp_path)
    assert where(clouds_asked.ask((), (), h)) == []
    store.save_shown([tools.gcp().candidate], "plan suggest", tools.NOW)
    asked[None] = "l-lost"
    answers = clouds_asked.ask((), (), h)
    assert where(answers) == ["the project of gcloud"]
    assert [o.launch_id for o in answers.orphans] == ["l-lost"]


def test_a_project_that_may_not_be_asked_is_said(tmp_path: Path, asked: dict[str | None, str]) -> None:
    h = launched(tmp_path, "barred")
    answers = clouds_asked.ask((), h.ledger.launches(), h)
    assert [(a.answered, a.why) for a in answers.asked if a.kind == "gcp"] == [(False, "no")]


def test_of_several_projects_the_one_that_holds_the_launch_is_taken(
    tmp_path: Path, asked: dict[str | None, str]
) -> None:
    h = launched(tmp_path, "barred", "one", "two")
    asked["two"] = "l-lost"
    cloud = clouds_asked.cloud_in("gcp", "l-lost", ("z-a",), h)
    assert cloud.project == "two"
