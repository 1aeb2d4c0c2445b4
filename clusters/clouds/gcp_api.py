"""Google Cloud over REST: who asks, in which project, all pages of a list, errors sorted by their reasons."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from clusters.clouds import codes, rest
from clusters.clouds.rest import Document
from clusters.config.choices import Choices
from clusters.faults import CloudFault, FaultKind
from planner.types import Record

TOOL = rest.Tool(
    variable="GOOGLE_OAUTH_ACCESS_TOKEN",
    command=("gcloud", "auth", "print-access-token"),
    install="install the Google Cloud CLI, then: gcloud auth login",
    login="gcloud auth login",
)
HINTS: dict[FaultKind, str] = {
    "credentials": "gcloud auth login && gcloud auth application-default login",
    "permission": "plan cluster PLAN --iam   prints the rights of the head; yours must allow this call",
    "quota": "ask for more: console of IAM & Admin, Quotas",
    "image": "plan launch PLAN --image projects/PROJECT/global/images/NAME",
}
_PROJECT_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
_BY_STATUS: dict[int, FaultKind] = {401: "credentials", 403: "permission", 408: "timeout", 429: "throttling"}


class Hosts(Record):
    """Hosts of the interfaces; on the loopback in tests."""

    compute: str = "https://compute.googleapis.com/compute/v1"
    iam: str = "https://iam.googleapis.com/v1"
    projects: str = "https://cloudresourcemanager.googleapis.com/v1"


class Api:
    """One project. Every method may raise ``CloudFault``."""

    def __init__(self, choices: Choices, hosts: Hosts, environment: Mapping[str, str] = os.environ) -> None:
        token = rest.Token(TOOL, environment)
        self.compute = rest.Rest(hosts.compute, token, sorted_fault)
        self.iam = rest.Rest(hosts.iam, token, sorted_fault)
        self.projects = rest.Rest(hosts.projects, token, sorted_fault)
        self._environment = environment
        self._project = choices.project

    @property
    def project(self) -> str:
        """The project: as the user said, else of the environment, else of the user's own ``gcloud``."""
        if self._project is None:
            named = (self._environment.get(name) for name in _PROJECT_VARIABLES)
            self._project = next(filter(None, named), None) or _project_of_tool()
        return self._project

    def path(self, rest_of: str) -> str:
        """Path of something below the project."""
        return f"projects/{self.project}/{rest_of}"

    def everywhere(self, plural: str, only: str) -> Iterator[tuple[str, Document]]:
        """Things of one kind in all zones and regions, each with the name of its place.

        Raises ``CloudFault`` where a place did not answer: something may be there.
        """
        for page in self._pages(self.path(f"aggregated/{plural}"), only):
            if page.get("unreachables"):
                raise CloudFault("connection", f"no answer of {', '.join(page['unreachables'])[:200]}")
            for place, inside in page.get("items", {}).items():
                warning = inside.get("warning", {}).get("code", "NO_RESULTS_ON_PAGE")
                if warning != "NO_RESULTS_ON_PAGE":
                    raise CloudFault("connection", f"{place} did not name its {plural}: {warning}")
                for one in inside.get(plural, []):
                    yield place.rpartition("/")[2], one

    def listed(self, path: str) -> Iterator[Document]:
        """Every item of a plain list."""
        for page in self._pages(path, ""):
            yield from page.get("items", [])

    def _pages(self, path: str, only: str) -> Iterator[Document]:
        parameters = {"filter": only} if only else {}
        while True:
            page = self.compute.ask("GET", path, parameters)
            yield page
            if not page.get("nextPageToken"):
                return
            parameters = {**parameters, "pageToken": page["nextPageToken"]}

    def allowed(self, host: rest.Rest, path: str, wanted: tuple[str, ...]) -> frozenset[str]:
        """Which of some permissions the caller has on a project or a service account."""
        said = host.ask("POST", f"{path}:testIamPermissions", body={"permissions": list(wanted)})
        return frozenset(said.get("permissions", []))


def _project_of_tool() -> str:
    said = rest.said_by(TOOL, ("gcloud", "config", "get-value", "project"))
    if not said or said == "(unset)":
        raise CloudFault("parameter", "no project of Google Cloud was named", "--gcp-project ID")
    return said


def sorted_fault(doing: str, status: int, body: Document) -> CloudFault:
    """Sort an error by its reasons, else by its status; what nobody listed stops the launch."""
    error = body.get("error", {})
    error = error if isinstance(error, dict) else {}
    message = " ".join(str(error.get("message", "")).split())[:300]
    named = list(_reasons(error))
    kinds = [codes.table("gcp")[code].kind for code in named if code in codes.table("gcp")]
    kind: FaultKind = (
        kinds[0] if kinds else _BY_STATUS.get(status, "connection" if status >= 500 else "parameter")
    )
    if status == 404 and "/images/" in f"{doing} {message}":
        kind = "image"
    said = f"{doing}: ({status}) {named[0] if named else ''} {message}".rstrip()
    return CloudFault(kind, " ".join(said.split()), HINTS.get(kind, ""), status=status)


def _reasons(error: dict[str, Any]) -> Iterator[str]:
    """Codes that an error names, the most exact first."""
    for one in error.get("errors", []):
        yield from (str(one[key]) for key in ("reason", "code") if key in one)
    for one in error.get("details", []):
        if "reason" in one:
            yield str(one["reason"])
    if "status" in error:
        yield str(error["status"])
