"""Ray's launcher for clouds over REST, without SSH: the calls that Ray makes for a document, no others."""

import copy
from collections.abc import Callable
from pathlib import Path

import requests

from clusters import watchdog
from clusters.backend.launcher import Launcher
from clusters.backend.shell import Log
from tests.clusters.clouds.rest_fake import TOKEN, Document

Start = Callable[[Document, Document, bool, int], None]  # document, node_config, is head, number


class RayOverRest:
    """Starts the head and the workers of a document; ``fault`` is raised after ``after`` machines."""

    def __init__(self, start: Start, fault: Exception | None = None, after: int = 0) -> None:
        self._start = start
        self.fault, self.after = fault, after
        self.started = 0
        self.documents: list[Document] = []
        self.limits: list[watchdog.Limits] = []
        self.downs = 0

    def up(
        self, launch: Launcher, document: Document, limits: watchdog.Limits, timeout_s: float, log: Log
    ) -> None:
        watchdog.write(str(launch.file("limits.json")), limits)
        launch.file("cluster.yaml").write_text("{}")
        self.documents.append(document)
        for name, node in document["available_node_types"].items():
            is_head = name == document["head_node_type"]
            for _ in range(1 if is_head else node["min_workers"]):
                if self.fault is not None and self.started == self.after:
                    raise self.fault
                self._start(document, copy.deepcopy(node["node_config"]), is_head, self.started)
                self.started += 1

    def wait_joined(
        self, launch: Launcher, num_nodes: int, gpus_per_node: int, kind: str, timeout_s: float, log: Log
    ) -> tuple[int, int]:
        return num_nodes, num_nodes * gpus_per_node

    def spread(self, launch: Launcher, limits: watchdog.Limits) -> int:
        self.limits.append(limits)
        return self.started

    def down(self, launch: Launcher, log: Log) -> bool:
        self.downs += 1
        return True


def start_at_gcp(base: str) -> Start:
    """As ``ray/autoscaler/_private/gcp/node.py`` does: its labels merged in, the type as a path."""

    def start(document: Document, config: Document, is_head: bool, number: int) -> None:
        provider = document["provider"]
        zone = provider["availability_zone"]
        labels = {
            "ray-node-type": "head" if is_head else "worker",
            "ray-cluster-name": document["cluster_name"],
        }
        config |= {
            "labels": config["labels"] | labels,
            "name": f"ray-{document['cluster_name']}-{number}-compute",
            "machineType": f"zones/{zone}/machineTypes/{config['machineType']}",
        }
        answer = requests.post(
            f"{base}/projects/{provider['project_id']}/zones/{zone}/instances",
            json=config,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=10,
        )
        assert answer.ok, answer.text

    return start


def start_at_azure(base: str, subscription: str) -> Start:
    """As ``ray/autoscaler/_private/_azure/node_provider.py`` does: a deployment of its template."""

    def start(document: Document, config: Document, is_head: bool, number: int) -> None:
        provider, group = document["provider"], document["provider"]["resource_group"]
        said = config["azure_arm_parameters"] | {
            "adminUsername": document["auth"]["ssh_user"],
            "publicKey": Path(document["auth"]["ssh_public_key"]).read_text(encoding="utf-8"),
            "vmName": f"ray-{document['cluster_name']}-{number}-",
            "vmCount": 1,
            "vmTags": {"ray-node-type": "head" if is_head else "worker"},
            "provisionPublicIp": not provider["use_internal_ips"],
            "msi": "msi",
            "nsg": "nsg",
            "subnet": "subnet",
            "zones": [] if provider["availability_zone"] == "none" else [provider["availability_zone"]],
        }
        answer = requests.put(
            f"{base}/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Resources"
            f"/deployments/{said['vmName']}",
            params={"api-version": "2021-04-01"},
            json={"properties": {"parameters": {name: {"value": value} for name, value in said.items()}}},
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=10,
        )
        assert answer.ok, answer.text

    return start
