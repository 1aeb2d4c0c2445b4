"""The Kubernetes API, as a launch needs it: the caller's kubeconfig, objects of KubeRay, sorted errors.

Only objects of one namespace are touched, and only those with the label of a launch of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from clusters.config.guards import LAUNCH_TAG
from clusters.faults import CloudFault, FaultKind, is_absent, is_conflict
from planner.types import Record

GROUP, VERSION = "ray.io", "v1"
JOBS, CLUSTERS = "rayjobs", "rayclusters"
_TIMEOUT_S = (5.0, 30.0)
_KINDS: Mapping[int, FaultKind] = {
    400: "parameter",
    401: "credentials",
    403: "permission",
    404: "parameter",
    409: "parameter",
    422: "parameter",
    429: "throttling",
}
_QUOTA = re.compile(r"exceeded quota|quota")
Document = dict[str, Any]  # what Kubernetes sends
R = TypeVar("R")


class Access(Record):
    """Which cluster, as whom, in which namespace. ``None``: what the kubeconfig says."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str = "default"


class Api:
    """A connection to one cluster. Every method may raise ``CloudFault``."""

    def __init__(self, access: Access) -> None:
        self.namespace = access.namespace
        self._client = _client(access)

    def get(self, plural: str, name: str) -> Document | None:
        """One object of KubeRay, ``None`` where there is none."""
        objects = self._objects()
        try:
            found: Document = _asked(
                lambda: objects.get_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, plural, name, _request_timeout=_TIMEOUT_S
                )
            )
        except CloudFault as fault:
            if is_absent(fault):
                return None
            raise
        return found

    def carrying(self, plural: str, launch_id: str | None) -> list[Document]:
        """Objects of KubeRay that carry a launch's label, or the label of any launch."""
        objects = self._objects()
        found = _asked(
            lambda: objects.list_namespaced_custom_object(
                GROUP,
                VERSION,
                self.namespace,
                plural,
                label_selector=selector(launch_id),
                _request_timeout=_TIMEOUT_S,
            )
        )
        return list(found["items"])

    def create(self, plural: str, body: Document) -> None:
        """Create an object; one of the same name and launch that is there already is no error."""
        objects = self._objects()
        try:
            _asked(
                lambda: objects.create_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, plural, body, _request_timeout=_TIMEOUT_S
                )
            )
        except CloudFault as fault:
            there = self.get(plural, body["metadata"]["name"]) if is_conflict(fault) else None
            if there is None or label_of(there) != label_of(body):
                raise

    def patch(self, plural: str, name: str, change: Document) -> None:
        """Change fields of an object."""
        objects = self._objects()
        _asked(
            lambda: objects.patch_namespaced_custom_object(
                GROUP, VERSION, self.namespace, plural, name, change, _request_timeout=_TIMEOUT_S
            )
        )

    def delete(self, plural: str, name: str) -> None:
        """Delete an object and what it owns; one that is gone is no error."""
        objects = self._objects()
        self._unless_absent(
            lambda: objects.delete_namespaced_custom_object(
                GROUP,
                VERSION,
                self.namespace,
                plural,
                name,
                propagation_policy="Background",
                _request_timeout=_TIMEOUT_S,
            )
        )

    def pods(self, launch_id: str | None) -> list[Document]:
        """Pods that carry a launch's label."""
        core = self._core()
        return self._plain(
            lambda: core.list_namespaced_pod(
                self.namespace, label_selector=selector(launch_id), _request_timeout=_TIMEOUT_S
            )
        )

    def delete_pod(self, name: str) -> None:
        """Delete a pod; one that is gone is no error."""
        core = self._core()
        self._unless_absent(
            lambda: core.delete_namespaced_pod(
                name, self.namespace, _request_timeout=_TIMEOUT_S, _preload_content=False
            )
        )

    def nodes(self) -> list[Document]:
        """Nodes of the cluster."""
        core = self._core()
        return self._plain(lambda: core.list_node(_request_timeout=_TIMEOUT_S))

    def quotas(self) -> list[Document]:
        """Quotas of the namespace."""
        core = self._core()
        return self._plain(
            lambda: core.list_namespaced_resource_quota(self.namespace, _request_timeout=_TIMEOUT_S)
        )

    def secret(self, name: str) -> Mapping[str, str]:
        """Base64 values of a secret."""
        core = self._core()
        found = _asked(lambda: core.read_namespaced_secret(name, self.namespace, _request_timeout=_TIMEOUT_S))
        return dict(found.data or {})

    def whoami(self) -> str:
        """Name of the caller, as the cluster knows it."""
        from kubernetes import client

        api = client.AuthenticationV1Api(self._client)
        review = _asked(
            lambda: api.create_self_subject_review(client.V1SelfSubjectReview(), _request_timeout=_TIMEOUT_S)
        )
        return str(cast(Any, review).status.user_info.username)

    def may(self, verb: str, resource: str, group: str = "") -> bool:
        """Whether the caller may do something in the namespace."""
        from kubernetes import client

        api = client.AuthorizationV1Api(self._client)
        attributes = client.V1ResourceAttributes(
            namespace=self.namespace, verb=verb, resource=resource, group=group
        )
        body = client.V1SelfSubjectAccessReview(
            spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        )
        review = _asked(lambda: api.create_self_subject_access_review(body, _request_timeout=_TIMEOUT_S))
        return bool(cast(Any, review).status.allowed)

    def forward(self, pod: str, port: int) -> Any:  # noqa: ANN401 (the library has no types)
        """Open a way to a port of a pod; the answer's ``socket(port)`` is one connection."""
        from kubernetes.stream import portforward

        core = self._core()
        return _asked(
            lambda: portforward(
                core.connect_get_namespaced_pod_portforward, pod, self.namespace, ports=str(port)
            )
        )

    def _objects(self) -> Any:  # noqa: ANN401 (the library has no types)
        from kubernetes import client

        return client.CustomObjectsApi(self._client)

    def _core(self) -> Any:  # noqa: ANN401 (the library has no types)
        from kubernetes import client

        return client.CoreV1Api(self._client)

    def _plain(self, ask: Callable[[], Any]) -> list[Document]:
        """Items of a typed list, as Kubernetes writes them."""
        found = _asked(ask)
        return [self._client.sanitize_for_serialization(item) for item in found.items]

    def _unless_absent(self, ask: Callable[[], object]) -> None:
        try:
            _asked(ask)
        except CloudFault as fault:
            if not is_absent(fault):
                raise


def selector(launch_id: str | None) -> str:
    """Label selector of one launch, or of all of ours."""
    return LAUNCH_TAG if launch_id is None else f"{LAUNCH_TAG}={launch_id}"


def label_of(body: Document) -> str | None:
    """Launch that an object belongs to."""
    found = body.get("metadata", {}).get("labels", {}).get(LAUNCH_TAG)
    return None if found is None else str(found)


def _client(access: Access) -> Any:  # noqa: ANN401 (the library has no types)
    """Read the kubeconfig."""
    try:
        from kubernetes import config as untyped
    except ImportError:
        raise CloudFault(
            "parameter", "the kubernetes client is not installed", "pip install 'plan[kubernetes]'"
        ) from None
    config = cast(Any, untyped)
    try:
        return config.new_client_from_config(config_file=access.kubeconfig, context=access.context)
    except (config.ConfigException, OSError) as error:
        raise CloudFault(
            "credentials", f"kubeconfig: {str(error)[:200]}", "kubectl config get-contexts"
        ) from None


def _asked(ask: Callable[[], R]) -> R:
    """Ask, and sort what goes wrong."""
    import urllib3.exceptions
    from kubernetes.client.exceptions import ApiException

    try:
        return ask()
    except ApiException as error:
        raise _sorted(error) from None
    except urllib3.exceptions.TimeoutError as error:
        raise CloudFault("timeout", f"Kubernetes did not answer: {type(error).__name__}") from None
    except (urllib3.exceptions.HTTPError, OSError) as error:
        why = f"Kubernetes cannot be reached: {type(error).__name__}"
        raise CloudFault("connection", why, "kubectl cluster-info") from None


def _sorted(error: Any) -> CloudFault:  # noqa: ANN401 (the library has no types)
    """Sort an error by its status; a quota answers 403, as a missing right does."""
    said = re.sub(r"\s+", " ", str(error.body or error.reason or ""))[:300]
    status = int(error.status or 0)
    kind: FaultKind = _KINDS.get(status, "connection")
    if status == 403 and _QUOTA.search(said):
        kind = "quota"
    hint = "kubectl auth can-i --list" if kind == "permission" else ""
    return CloudFault(kind, f"Kubernetes answered ({status}): {said}", hint, status=status or None)
