"""What can be known of a Kubernetes cluster before anything is created in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from clusters.clouds.base import PreflightCheck
from clusters.clouds.kube_api import CLUSTERS, GROUP, JOBS, Api, Document
from clusters.config import versions
from clusters.config.nodes import Cluster
from clusters.faults import CloudFault, is_absent

RIGHTS = (
    ("create", JOBS, GROUP),
    ("patch", JOBS, GROUP),
    ("delete", JOBS, GROUP),
    ("list", JOBS, GROUP),
    ("list", CLUSTERS, GROUP),
    ("list", "pods", ""),
    ("delete", "pods", ""),
    ("create", "pods/portforward", ""),
    ("get", "secrets", ""),
)
_DRIVER = "nvidia.com/cuda.driver.major"


def checks(
    api: Api, cluster: Cluster, selector: Sequence[str], image: str | None
) -> Iterator[PreflightCheck]:
    """Caller, rights, KubeRay, quota, nodes, image: each look stands for itself."""
    yield _looked("credentials", api.whoami)
    yield from _rights(api)
    yield _looked("KubeRay", lambda: f"{len(api.carrying(JOBS, None))} RayJobs of ours in {api.namespace}")
    yield _of("quota", lambda: quota(api.quotas(), cluster))
    yield from _nodes(api, cluster, selector, image)


def _looked(name: str, look: Callable[[], str]) -> PreflightCheck:
    """A look that passes if it is answered."""
    return _of(name, lambda: PreflightCheck(name=name, passed=True, detail=look()))


def _of(name: str, look: Callable[[], PreflightCheck]) -> PreflightCheck:
    """A look whose fault is a failed check."""
    try:
        return look()
    except CloudFault as fault:
        hint = fault.hint
        if name == "KubeRay" and is_absent(fault):
            hint = "helm install kuberay-operator kuberay/kuberay-operator"
        return PreflightCheck(name=name, passed=False, detail=str(fault), hint=hint)


def _rights(api: Api) -> Iterator[PreflightCheck]:
    """All rights that a launch uses, in one line; the missing ones are named."""

    def look() -> PreflightCheck:
        missing = [f"{verb} {what}" for verb, what, group in RIGHTS if not api.may(verb, what, group)]
        detail = f"missing: {', '.join(missing)}" if missing else f"{len(RIGHTS)} of {len(RIGHTS)} rights"
        hint = "kubectl auth can-i --list" if missing else ""
        return PreflightCheck(name="permissions", passed=not missing, detail=detail, hint=hint)

    yield _of("permissions", look)


def quota(quotas: Sequence[Document], cluster: Cluster) -> PreflightCheck:
    """GPUs of the plan within what every quota of the namespace leaves."""
    name = f"requests.{resource_of(cluster)}"
    for found in quotas:
        status = found.get("status", {})
        hard = status.get("hard", {}).get(name)
        if hard is None:
            continue
        used = int(status.get("used", {}).get(name, "0"))
        left = int(hard) - used
        said = f"{used} of {hard} {name} used by {found['metadata']['name']}, {cluster.num_gpus} needed"
        if left < cluster.num_gpus:
            return PreflightCheck(name="quota", passed=False, detail=said, hint="ask for a larger quota")
        return PreflightCheck(name="quota", passed=True, detail=said)
    return PreflightCheck(name="quota", passed=True, detail=f"no quota on {name}")


def resource_of(cluster: Cluster) -> str:
    """Name under which Kubernetes counts the GPUs."""
    return f"{'amd' if cluster.gpu.vendor == 'amd' else 'nvidia'}.com/gpu"


def _nodes(
    api: Api, cluster: Cluster, selector: Sequence[str], image: str | None
) -> Iterator[PreflightCheck]:
    """Nodes that could hold a worker, and whether their driver runs the image's CUDA."""
    try:
        found = api.nodes()
    except CloudFault as fault:
        yield PreflightCheck(
            name="nodes",
            passed=False,
            detail=f"nobody can tell: {fault}",
            hint="the right to list nodes is needed once, for this look",
        )
        return
    fitting = [n for n in found if _holds(n, cluster, selector)]
    yield _enough(fitting, len(found), cluster, selector)
    if fitting and cluster.gpu.vendor != "amd" and image is None:
        yield _driver(fitting)


def _holds(node: Document, cluster: Cluster, selector: Sequence[str]) -> bool:
    """Whether a node matches the selector and has the GPUs; what others use of it now is not known."""
    labels = node.get("metadata", {}).get("labels", {})
    wanted = dict(pair.split("=", 1) for pair in selector)
    has = node.get("status", {}).get("allocatable", {}).get(resource_of(cluster), "0")
    closed = node.get("spec", {}).get("unschedulable", False)
    matches = all(labels.get(key) == value for key, value in wanted.items())
    return matches and not closed and int(has) >= cluster.gpus_per_node


def _enough(
    fitting: Sequence[Document], total: int, cluster: Cluster, selector: Sequence[str]
) -> PreflightCheck:
    chosen = f" with {', '.join(selector)}" if selector else ""
    said = f"{len(fitting)} of {total} nodes{chosen} have {cluster.gpus_per_node} GPUs,"
    said += f" {cluster.num_nodes} needed"
    if len(fitting) >= cluster.num_nodes:
        return PreflightCheck(name="nodes", passed=True, detail=said)
    hint = "kubectl get nodes -L nvidia.com/gpu.product   then --node-selector KEY=VALUE"
    return PreflightCheck(name="nodes", passed=False, detail=said, hint=hint)


def _driver(nodes: Sequence[Document]) -> PreflightCheck:
    """Driver of the nodes, by the label of NVIDIA's feature discovery, against the CUDA of the image."""
    oldest = versions.oldest_driver(versions.container().cuda)
    labels = [n.get("metadata", {}).get("labels", {}).get(_DRIVER) for n in nodes]
    known = [int(v) for v in labels if v is not None and v.isdigit()]
    if len(known) < len(nodes):
        return PreflightCheck(
            name="driver",
            passed=False,
            detail=f"{len(nodes) - len(known)} nodes do not say their driver (label {_DRIVER})",
            hint="install NVIDIA's GPU feature discovery, or name an image of yours: --image",
        )
    said = f"driver {min(known)} or newer; CUDA {versions.container().cuda} of the image needs {oldest}"
    return PreflightCheck(name="driver", passed=min(known) >= oldest, detail=said)
