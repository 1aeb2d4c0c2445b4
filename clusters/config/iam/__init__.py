"""Rights of the machines of a cluster, with only what the cluster uses: JSON files filled in for a plan."""

from __future__ import annotations

import json
from importlib.resources import files
from string import Template

from clusters.config import aws
from clusters.config.choices import Choices, Format
from clusters.config.nodes import Cluster

Document = dict[str, object]


def rights(cluster: Cluster, choices: Choices, kind: Format) -> dict[str, list[Document]]:
    """Documents by whom they are for: ``trust``, ``head``, ``node``. Nothing is listed that is not used."""
    if kind == "aws":
        return _aws(cluster, choices)
    if kind in ("gcp", "azure"):
        return {"head": [_filled(f"{kind}_head.json", cluster, choices)], "node": []}
    return {"head": [], "node": []}


def _aws(cluster: Cluster, choices: Choices) -> dict[str, list[Document]]:
    storage = aws.needs_storage_profile(choices)
    head = ["aws_head.json"] if cluster.num_workers else []
    if choices.session_manager:
        head.append("aws_session_manager.json")
    if storage:
        head += ["aws_storage.json", *(["aws_pass_node_role.json"] if cluster.num_workers else [])]
    node = ["aws_storage.json"] if storage and cluster.num_workers else []
    return {
        "trust": [_filled("aws_trust.json", cluster, choices)],
        "head": [_filled(name, cluster, choices) for name in head],
        "node": [_filled(name, cluster, choices) for name in node],
    }


def _filled(name: str, cluster: Cluster, choices: Choices) -> Document:
    """Read a file and put the plan's names in."""
    bucket, _, prefix = (choices.storage or "").removeprefix("s3://").partition("/")
    text = Template(files("clusters.config.iam").joinpath(name).read_text(encoding="utf-8")).substitute(
        REGION=cluster.region,
        CLUSTER=cluster.name,
        PLAN=cluster.plan_id,
        TYPE=cluster.instance_type,
        BUCKET=bucket,
        PREFIX=prefix,
        NODE_ROLE=aws.profile(cluster, choices, head=False),
    )
    document = json.loads(text)
    assert isinstance(document, dict)
    return document
