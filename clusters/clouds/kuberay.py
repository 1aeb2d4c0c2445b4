"""Kubernetes with KubeRay, as a cloud: a RayJob that holds a cluster until its deadline.

The RayJob's own entry point only waits: what it is for is its deadline, which the operator keeps with the
laptop off (``activeDeadlineSeconds`` is looked at while a job runs, not while a RayJob waits for one:
ray-project/kuberay, rayjob_controller.go). Probe and training are Ray jobs of that cluster, sent through a
port-forward; deleting the RayJob deletes all of it.
"""

from __future__ import annotations

import base64
import copy
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import cast

from clusters.backend.shell import Log
from clusters.clouds import kube_preflight
from clusters.clouds.base import Created, Order, Place, PreflightCheck
from clusters.clouds.kube_api import CLUSTERS, JOBS, Access, Api, Document, label_of
from clusters.clouds.kube_forward import forwarded
from clusters.config import emit, versions
from clusters.config.choices import Choices
from clusters.config.nodes import Cluster, cluster_of
from clusters.faults import CloudFault, FaultKind
from planner.launched import CloudKind, Resource

DASHBOARD = 8265
_TICK_S = 3.0
_IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_RUNNING = "Running"
_OWN_COMMAND = "ray.io/overwrite-container-cmd"  # ray-project/kuberay, docs "Specify container commands"
_START_COMMAND = "KUBERAY_GEN_RAY_START_CMD"


class KubeRayCloud:
    """A namespace of a Kubernetes cluster in which KubeRay runs."""

    kind: CloudKind = "kuberay"
    tried = False

    def __init__(
        self, choices: Choices, sleep: Callable[[float], None] = time.sleep, api: Api | None = None
    ) -> None:
        self.namespace = choices.namespace
        self._access = Access(
            kubeconfig=choices.kubeconfig, context=choices.kube_context, namespace=choices.namespace
        )
        self._sleep = sleep
        self._api = api

    @property
    def api(self) -> Api:
        """Connection to the cluster, made when it is first needed."""
        if self._api is None:
            self._api = Api(self._access)
        return self._api

    # ------------------------------------------------------------------------------------ before

    def preflight(self, order: Order, budget_usd: Decimal | None) -> tuple[PreflightCheck, ...]:
        """Look at caller, rights, KubeRay, quota, nodes, driver, and whether the launch is there already."""
        choices = order.choices
        found = [*kube_preflight.checks(self.api, _cluster(order), choices.node_selector, choices.image)]
        return (*found, self._nothing_there(order.launch_id))

    def _nothing_there(self, launch_id: str) -> PreflightCheck:
        try:
            there = self.find(launch_id)
        except CloudFault as fault:
            return PreflightCheck(name="no such launch", passed=False, detail=str(fault))
        hint = f"plan down {launch_id}" if there else ""
        said = f"{len(there)} objects of {launch_id} in {self.namespace}"
        return PreflightCheck(name="no such launch", passed=not there, detail=said, hint=hint)

    def places(self, order: Order) -> Sequence[Place]:
        """The namespace: there is no other place."""
        return (order.place,)

    def prepare(self, order: Order) -> Order:
        """Nothing needs to be there before: KubeRay makes Ray's token itself."""
        return order

    # ------------------------------------------------------------------------------------ up

    def create(self, order: Order, log: Log) -> Created:
        """Create the RayJob and wait until all pods of its cluster run."""
        cluster = _cluster(order)
        body = holding_job(emit.documents(cluster, order.choices, "kuberay")["rayjob.yaml"], order)
        self.api.create(JOBS, body)
        log(f"RayJob {cluster.name} created in {self.namespace}")
        waited = 0.0
        said = ""
        while True:
            pods = self.api.pods(order.launch_id)
            if _all_run(pods, cluster):
                return _created(cluster)
            said = _said(said, _state(pods, cluster), log)
            self._refuse_hopeless(cluster, pods, said)
            if waited >= order.create_timeout_s:
                raise CloudFault(_why_late(pods), f"not all pods run after {waited:.0f} s: {said}", "", said)
            self._sleep(_TICK_S)
            waited += _TICK_S

    def _refuse_hopeless(self, cluster: Cluster, pods: Sequence[Document], said: str) -> None:
        """Stop waiting for what will not come: an image that is not there, a RayJob that failed."""
        if any(r in _IMAGE_REASONS for pod in pods for r in _waiting(pod)):
            raise CloudFault("image", f"an image cannot be pulled: {said}", "--image", said)
        job = self.api.get(JOBS, cluster.name)
        status = {} if job is None else job.get("status", {})
        if status.get("jobDeploymentStatus") in ("Failed", "ValidationFailed"):
            message = str(status.get("message", ""))[:300]
            kind: FaultKind = "quota" if "quota" in message else "setup"
            raise CloudFault(kind, f"KubeRay gave up: {message}", "", said)

    @contextmanager
    def reach(self, order: Order) -> Iterator[Created]:
        """Forward a local port to the head pod's dashboard, and keep Ray's token in a file meanwhile."""
        cluster = _cluster(order)
        head = next((p for p in self.api.pods(order.launch_id) if _is_head(p) and _runs(p)), None)
        if head is None:
            raise CloudFault("unreachable", f"no head pod of {order.launch_id} runs in {self.namespace}")
        token = self._token(head, Path(order.directory))
        name = str(head["metadata"]["name"])
        try:
            with forwarded(lambda: self.api.forward(name, DASHBOARD), DASHBOARD) as port:
                made = _created(cluster)
                yield made.model_copy(
                    update={"address": f"http://127.0.0.1:{port}", "auth_token_path": str(token)}
                )
        finally:
            token.unlink(missing_ok=True)

    def shell(self, order: Order) -> tuple[str, ...]:
        """Run a shell in the head pod."""
        head = next((p for p in self.api.pods(order.launch_id) if _is_head(p) and _runs(p)), None)
        if head is None:
            raise CloudFault("unreachable", f"no head pod of {order.launch_id} runs in {self.namespace}")
        context = ("--context", self._access.context) if self._access.context else ()
        pod = str(head["metadata"]["name"])
        return ("kubectl", *context, "--namespace", self.namespace, "exec", "-it", pod, "--", "bash")

    def _token(self, head: Document, directory: Path) -> Path:
        """Write the token of the cluster into a file that only the caller can read."""
        name = str(head["metadata"]["labels"]["ray.io/cluster"])
        secret = self.api.secret(name)
        if "auth_token" not in secret:
            raise CloudFault("setup", f"secret {name} holds no auth_token", "KubeRay 1.5 or later is needed")
        path = directory / "auth_token"
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(base64.b64decode(secret["auth_token"]))
        return path

    # ------------------------------------------------------------------------------------ down

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        """RayJobs, RayClusters and pods with the label of the launch."""
        found = [self._resource("ray-job", job, "rayjob") for job in self.api.carrying(JOBS, launch_id)]
        found += [
            self._resource("ray-cluster", c, "raycluster") for c in self.api.carrying(CLUSTERS, launch_id)
        ]
        found += [self._resource("pod", pod, "pod") for pod in self.api.pods(launch_id)]
        return tuple(found)

    def _resource(self, kind: str, body: Document, word: str) -> Resource:
        name = str(body["metadata"]["name"])
        status = body.get("status", {})
        state = status.get("jobDeploymentStatus") or status.get("state") or status.get("phase") or "new"
        if body["metadata"].get("deletionTimestamp"):
            state = "deleting"
        return Resource.model_validate(
            {
                "kind": kind,
                "id": name,
                "state": state,
                "place": self.namespace,
                "bills": True,
                "launch_id": label_of(body),
                "hint": f"kubectl delete {word} {name} --namespace {self.namespace}",
            }
        )

    def delete(self, resource: Resource) -> None:
        """Delete one object; the operator ends what belongs to it."""
        if resource.kind == "ray-job":
            self.api.delete(JOBS, resource.id)
        elif resource.kind == "ray-cluster":
            self.api.delete(CLUSTERS, resource.id)
        else:
            self.api.delete_pod(resource.id)

    def stop_cluster(self, order: Order, log: Log) -> None:
        """Delete the RayJob: its cluster goes with it."""
        log(f"deleting RayJob {_cluster(order).name}")
        self.api.delete(JOBS, _cluster(order).name)

    def extend(self, order: Order, deadline: datetime) -> None:
        """Move the RayJob's deadline, which counts from its start."""
        name = _cluster(order).name
        job = self.api.get(JOBS, name)
        if job is None:
            raise CloudFault("unreachable", f"no RayJob {name} in {self.namespace}")
        begun = job.get("status", {}).get("startTime") or job["metadata"]["creationTimestamp"]
        seconds = round((deadline - datetime.fromisoformat(begun)).total_seconds())
        if seconds <= 0:
            raise CloudFault("parameter", "the deadline lies before the RayJob's start")
        self.api.patch(JOBS, name, {"spec": {"activeDeadlineSeconds": seconds}})

    def by_hand(self, resource: Resource) -> str:
        """Delete it with kubectl."""
        return resource.hint


def holding_job(job: Document, order: Order) -> Document:
    """Turn a plan's RayJob into one that only holds its cluster, never past the deadline or the budget.

    Ray's images have no torch: it is installed before Ray starts, unless the user names an image.
    """
    spec = cast(Document, copy.deepcopy(job["spec"]))
    hourly = order.usd_per_hour
    seconds = order.choices.seconds_left()
    if order.budget_usd is not None and hourly:
        seconds = min(seconds, int(order.budget_usd / hourly * 3600))
    spec.pop("runtimeEnvYAML", None)
    spec |= {"entrypoint": "sleep infinity", "activeDeadlineSeconds": max(60, seconds)}
    metadata = dict(job["metadata"])
    if order.choices.image is None:
        metadata["annotations"] = {_OWN_COMMAND: "true"}
        ray = spec["rayClusterSpec"]
        for group in (ray["headGroupSpec"], *ray["workerGroupSpecs"]):
            container = group["template"]["spec"]["containers"][0]
            container |= {"command": ["/bin/bash", "-lc", "--"], "args": [_with_torch()]}
    return {**job, "metadata": metadata, "spec": spec}


def _with_torch() -> str:
    """Install torch, then start Ray as the operator would."""
    pinned = versions.software()
    return f"pip install --quiet torch=={pinned.torch} && ulimit -n 65536 && ${_START_COMMAND}"


def _cluster(order: Order) -> Cluster:
    return cluster_of(order.plan, order.choices, "kuberay")


def _created(cluster: Cluster) -> Created:
    return Created(
        address=f"http://127.0.0.1:{DASHBOARD}", num_nodes=cluster.num_nodes, num_gpus=cluster.num_gpus
    )


# ------------------------------------------------------------------------------------ pods


def _is_head(pod: Document) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("ray.io/node-type") == "head")


def _runs(pod: Document) -> bool:
    status = pod.get("status", {})
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ()))
    ending = pod["metadata"].get("deletionTimestamp")
    return bool(status.get("phase") == _RUNNING and ready and not ending)


def _all_run(pods: Sequence[Document], cluster: Cluster) -> bool:
    """Whether the head and exactly the plan's workers run and are ready."""
    workers = sum(_runs(p) and not _is_head(p) for p in pods)
    return any(_runs(p) and _is_head(p) for p in pods) and workers == cluster.num_nodes


def _waiting(pod: Document) -> Iterator[str]:
    """Reasons for which containers of a pod do not start."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        yield container.get("state", {}).get("waiting", {}).get("reason", "")


def _unscheduled(pod: Document) -> str:
    """Why the scheduler has no node for a pod, empty where it has."""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", condition.get("reason", "")))
    return ""


def _state(pods: Sequence[Document], cluster: Cluster) -> str:
    """Say how far the pods are."""
    running = sum(map(_runs, pods))
    why = sorted({w for pod in pods for w in (*_waiting(pod), _unscheduled(pod)) if w})
    reasons = f": {'; '.join(why)[:300]}" if why else ""
    return f"{running} of {cluster.num_nodes + 1} pods run{reasons}"


def _said(last: str, now: str, log: Log) -> str:
    """Log a state once."""
    if now != last:
        log(now)
    return now


def _why_late(pods: Sequence[Document]) -> FaultKind:
    """Kind of the fault when pods do not come: no node for one of them, or one that does not get ready."""
    return "capacity" if any(map(_unscheduled, pods)) else "not-joined"
