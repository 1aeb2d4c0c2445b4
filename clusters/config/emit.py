"""From a plan to the files of a cluster: checked documents, ``plan.json`` and ``README.txt``."""

from __future__ import annotations

from collections.abc import Callable

from clusters.config import aws, azure, check, gcp, kuberay, local, plan_json, readme
from clusters.config.choices import Choices, Format
from clusters.config.nodes import Cluster, cluster_of
from clusters.config.ray_yaml import Document
from clusters.config.yaml_text import to_yaml
from planner.errors import UserError
from planner.results import Plan
from planner.types import Record

_RAY: dict[Format, Callable[[Cluster, Choices], Document]] = {
    "aws": aws.document,
    "gcp": gcp.document,
    "azure": azure.document,
    "local": local.document,
}


class EmittedFile(Record):
    """A file to write: its name in the directory, and its text."""

    name: str
    text: str


def documents(cluster: Cluster, choices: Choices, kind: Format) -> dict[str, Document]:
    """Return the documents of a cluster by file name, each checked.

    Raises:
        UserError: with the first problem, if a choice of the user made a document that may not be run.

    """
    made = (
        {
            "raycluster.yaml": kuberay.ray_cluster(cluster, choices),
            "rayjob.yaml": kuberay.ray_job(cluster, choices),
        }
        if kind == "kuberay"
        else {"cluster.yaml": _RAY[kind](cluster, choices)}
    )
    for name, document in made.items():
        found = check.problems(document, kind, cluster)
        if found:
            raise UserError(f"{name} would not run: {found[0]}", "plan cluster --help")
    return made


def emit(plan: Plan, choices: Choices, kind: Format) -> tuple[EmittedFile, ...]:
    """Write all files of a plan, as text."""
    cluster = cluster_of(plan, choices, kind)
    made = documents(cluster, choices, kind)
    return (
        *(EmittedFile(name=name, text=to_yaml(document)) for name, document in made.items()),
        EmittedFile(name="plan.json", text=plan_json.text(plan, cluster, choices)),
        EmittedFile(name="README.txt", text=readme.text(cluster, choices, kind)),
    )
