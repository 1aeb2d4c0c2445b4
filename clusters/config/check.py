"""Checks of an emitted document before anyone runs it: Ray's own, the cloud's own, and ours.

Ray accepts a misspelt key in ``provider`` and ``node_config``; EC2 and Compute Engine would refuse it after
money was spent on the head. ``closed`` catches the rest: what we do not write must not be there.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from clusters.config import closed
from clusters.config.choices import Format
from clusters.config.nodes import Cluster

Document = dict[str, object]


def problems(document: Document, kind: Format, cluster: Cluster) -> list[str]:
    """Everything that is wrong with a document, nearest cause first; empty if it may be run."""
    named = closed.shapes("shapes.json")
    shape = str(document.get("kind")) if kind == "kuberay" else kind
    found = closed.problems(document, named.get(shape, {}), shape, named)
    if found:
        return found
    if kind == "kuberay":
        return _kube_size(document, cluster)
    return [*ray_problems(document), *_size(document, kind, cluster), *_CLOUDS[kind](document)]


def ray_problems(document: Document) -> list[str]:
    """What Ray's ``prepare_config`` and ``validate_config`` say, which ``ray up`` runs first."""
    import jsonschema  # type: ignore[import-untyped]
    from ray.autoscaler._private.util import prepare_config, validate_config

    try:
        with contextlib.redirect_stdout(io.StringIO()):  # where Ray says that a token is a file
            validate_config(prepare_config(copy.deepcopy(document)))
    except jsonschema.ValidationError as error:
        return [f"ray: {error.json_path}: {error.message}"]
    except (ValueError, KeyError, AssertionError, RuntimeError) as error:
        return [f"ray: {error!r}"]
    return []


def aws_problems(document: Document) -> list[str]:
    """Check each ``node_config`` against EC2's own model of RunInstances, and its list of instance types."""
    import botocore.validate  # type: ignore[import-untyped]

    model = _ec2_model()
    shape, known = model.operation_model("RunInstances").input_shape, model.shape_for("InstanceType").enum
    found = []
    for name, config in node_configs(document).items():
        report = botocore.validate.ParamValidator().validate({**config, "MinCount": 1, "MaxCount": 1}, shape)
        if report.has_errors():
            found.append(f"ec2: {name}: {report.generate_report()}")
        if config["InstanceType"] not in known:
            found.append(f"ec2: {name}: no instance type {config['InstanceType']}")
    return found


@lru_cache(maxsize=1)
def _ec2_model() -> Any:  # noqa: ANN401 (botocore has no types)
    """EC2's own model, as botocore ships it."""
    import botocore.loaders  # type: ignore[import-untyped]
    import botocore.model  # type: ignore[import-untyped]

    api = botocore.loaders.Loader().load_service_model("ec2", "service-2")
    return botocore.model.ServiceModel(api, "ec2")


def gcp_problems(document: Document) -> list[str]:
    """Check each ``node_config`` against ``Instance`` of the discovery document of Compute Engine."""
    shape = closed.shapes("gcp_instance.json")
    return [
        f"compute: {problem}"
        for name, config in node_configs(document).items()
        for problem in closed.problems(config, shape, name)
    ]


def azure_problems(document: Document) -> list[str]:
    """Check each ``node_config`` against the parameters of Ray's own template of a machine."""
    import json
    from pathlib import Path

    import ray.autoscaler

    where = Path(ray.autoscaler.__file__).parent / "_private/_azure/azure-vm-template.json"
    known = json.loads(where.read_text(encoding="utf-8"))["parameters"]
    return [
        f"azure: {name}: the template has no parameter {key}"
        for name, config in node_configs(document).items()
        for key in cast(Document, config["azure_arm_parameters"])
        if key not in known
    ]


def node_configs(document: Document) -> dict[str, Document]:
    """``node_config`` of each node type."""
    types = cast(dict[str, Document], document.get("available_node_types", {}))
    return {name: cast(Document, node["node_config"]) for name, node in types.items()}


def num_gpus(document: Document) -> int:
    """GPUs that a Ray cluster document asks for: the head's and all workers'."""
    types = cast(dict[str, Document], document["available_node_types"])
    total = 0
    for name, node in types.items():
        resources = cast(dict[str, int], node["resources"])
        count = 1 if name == document["head_node_type"] else cast(int, node["min_workers"])
        total += count * resources.get("GPU", 0)
    return total


def _no_cloud(document: Document) -> list[str]:
    return []


_CLOUDS: dict[str, Callable[[Document], list[str]]] = {
    "aws": aws_problems,
    "gcp": gcp_problems,
    "azure": azure_problems,
    "local": _no_cloud,
}


def _size(document: Document, kind: Format, cluster: Cluster) -> list[str]:
    """Fixed size, and exactly the plan's GPUs."""
    if kind == "local":
        provider = cast(Document, document["provider"])
        hosts = 1 + len(cast(list[str], provider["worker_ips"]))
        right = hosts == cluster.num_workers + 1 and document["min_workers"] == document["max_workers"]
        return [] if right else [f"{hosts} hosts; the plan needs {cluster.num_workers + 1}"]
    types = cast(dict[str, Document], document["available_node_types"])
    loose = [name for name, node in types.items() if node["min_workers"] != node["max_workers"]]
    wrong = [f"{name}: min_workers and max_workers differ" for name in loose]
    expected = {"head": cluster.head_resources(), "workers": cluster.resources()}
    wrong += [
        f"{name}: resources are {node['resources']}, not {expected[name]}"
        for name, node in types.items()
        if node["resources"] != expected[name]
    ]
    if num_gpus(document) != cluster.num_gpus:
        wrong.append(f"{num_gpus(document)} GPUs; the plan has {cluster.num_gpus}")
    return wrong


def _kube_size(document: Document, cluster: Cluster) -> list[str]:
    """Fixed size, and exactly the plan's GPUs, in a RayCluster or a RayJob."""
    spec = cast(Document, document["spec"])
    spec = cast(Document, spec.get("rayClusterSpec", spec))
    total = 0
    for group in cast(list[Document], spec["workerGroupSpecs"]):
        if not group["replicas"] == group["minReplicas"] == group["maxReplicas"]:
            return [f"{group['groupName']}: replicas, minReplicas and maxReplicas differ"]
        params = cast(dict[str, str], group["rayStartParams"])
        total += cast(int, group["replicas"]) * int(params["num-gpus"])
    return [] if total == cluster.num_gpus else [f"{total} GPUs; the plan has {cluster.num_gpus}"]
