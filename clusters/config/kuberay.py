"""Kubernetes: ``RayCluster`` and ``RayJob`` of KubeRay (``ray.io/v1``). The head pod has no GPU."""

from __future__ import annotations

import yaml

from clusters.config import aws_network, guards, versions
from clusters.config.choices import Choices
from clusters.config.nodes import Cluster
from clusters.config.ray_yaml import Document

_HEAD_CPUS, _HEAD_MEMORY = "2", "8Gi"
_SHM = {"name": "shm", "emptyDir": {"medium": "Memory"}}
_SHM_MOUNT = {"name": "shm", "mountPath": "/dev/shm"}
PLAN_DIR = "/plan"


def ray_cluster(cluster: Cluster, choices: Choices) -> Document:
    """Return the RayCluster of a plan: as many worker pods as the plan has nodes, neither more nor less."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": _metadata(cluster, choices),
        "spec": _cluster_spec(cluster, choices),
    }


def ray_job(cluster: Cluster, choices: Choices) -> Document:
    """Return the RayJob of a plan: makes the cluster, trains, and deletes the cluster whatever happens."""
    pinned = versions.software()
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": _metadata(cluster, choices),
        "spec": {
            "entrypoint": f"python {PLAN_DIR}/train.py --plan {PLAN_DIR}/plan.json",
            "submissionMode": "K8sJobMode",
            "runtimeEnvYAML": yaml.safe_dump({"pip": [f"torch=={pinned.torch}"]}),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": 60,
            "activeDeadlineSeconds": choices.seconds_left(),
            "backoffLimit": 0,
            "rayClusterSpec": _cluster_spec(cluster, choices),
        },
    }


def _metadata(cluster: Cluster, choices: Choices) -> Document:
    labels = guards.label_tags(cluster, choices)
    return {"name": cluster.name, "namespace": choices.namespace, "labels": labels}


def _cluster_spec(cluster: Cluster, choices: Choices) -> Document:
    labels = guards.label_tags(cluster, choices)
    return {
        "rayVersion": versions.software().ray,
        "enableInTreeAutoscaling": False,
        "authOptions": {"mode": "token"},
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": _HEAD_CPUS, "num-gpus": "0", "dashboard-host": "0.0.0.0"},
            "template": {"metadata": {"labels": labels}, "spec": _head_pod(cluster)},
        },
        "workerGroupSpecs": [
            {
                "groupName": "gpus",
                "replicas": cluster.num_nodes,
                "minReplicas": cluster.num_nodes,
                "maxReplicas": cluster.num_nodes,
                "numOfHosts": 1,
                "rayStartParams": {
                    "num-gpus": str(cluster.gpus_per_node),
                    "resources": f'"{{\\"accelerator_type:{cluster.gpu.ray_accelerator_type}\\": 1}}"',
                },
                "template": {"metadata": {"labels": labels}, "spec": _gpu_pod(cluster, choices)},
            }
        ],
    }


def _head_pod(cluster: Cluster) -> Document:
    size: Document = {"cpu": _HEAD_CPUS, "memory": _HEAD_MEMORY}
    return {
        "containers": [_container("ray-head", versions.container().cpu_image, size)],
        "volumes": _volumes(cluster),
    }


def _gpu_pod(cluster: Cluster, choices: Choices) -> Document:
    """Pod of a GPU node: all its GPUs, and all its EFA interfaces where pods talk to each other."""
    vendor = "amd" if cluster.gpu.vendor == "amd" else "nvidia"
    size: Document = {f"{vendor}.com/gpu": cluster.gpus_per_node}
    num_efa = aws_network.efa_interfaces(cluster.instance_type) if cluster.provider == "aws" else 0
    if num_efa and cluster.num_nodes > 1:
        size["vpc.amazonaws.com/efa"] = num_efa
    chosen = dict(pair.split("=", 1) for pair in choices.node_selector)
    return {
        **({"nodeSelector": chosen} if chosen else {}),
        "containers": [_container("ray-worker", choices.image or _image(cluster), size)],
        "tolerations": [{"key": f"{vendor}.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": _volumes(cluster),
    }


def _image(cluster: Cluster) -> str:
    """Container image of a GPU pod; Ray marks those for arm64 with a suffix."""
    suffix = "-aarch64" if versions.arch_of(cluster.gpu) == "arm64" else ""
    return versions.container().image + suffix


def _volumes(cluster: Cluster) -> list[Document]:
    """Shared memory, and the ConfigMap with plan.json and train.py; the cluster starts without it too."""
    return [dict(_SHM), {"name": "plan", "configMap": {"name": cluster.name, "optional": True}}]


def _container(name: str, image: str, size: Document) -> Document:
    return {
        "name": name,
        "image": image,
        "env": [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}],
        "resources": {"limits": size, "requests": size},
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [dict(_SHM_MOUNT), {"name": "plan", "mountPath": PLAN_DIR}],
    }
