"""Ray's launcher without SSH: the calls to EC2 that Ray makes for a document, and nothing else."""

import copy

from clusters import watchdog
from clusters.backend.launcher import Launcher
from clusters.backend.shell import Log


class RayWithoutSsh:
    """Starts the head and the workers of a document; ``fault`` is raised after ``after`` machines.

    As Ray does (``autoscaler/_private/aws/node_provider.py``): its own tags merged into the document's, one
    call for each machine.
    """

    def __init__(self, ec2: object, fault: Exception | None = None, after: int = 0) -> None:
        self.ec2, self.fault, self.after = ec2, fault, after
        self.started: list[dict] = []
        self.limits: list[watchdog.Limits] = []

    def up(
        self, launch: Launcher, document: dict, limits: watchdog.Limits, timeout_s: float, log: Log
    ) -> None:
        watchdog.write(str(launch.file("limits.json")), limits)
        launch.file("cluster.yaml").write_text("{}")
        for name, node in document["available_node_types"].items():
            is_head = name == document["head_node_type"]
            for _ in range(1 if is_head else node["min_workers"]):
                if self.fault is not None and len(self.started) == self.after:
                    raise self.fault
                self._start(document["cluster_name"], node["node_config"], is_head)

    def _start(self, cluster: str, config: dict, is_head: bool) -> None:
        asked = copy.deepcopy(config) | {"MinCount": 1, "MaxCount": 1}
        for spec in asked["TagSpecifications"]:
            if spec["ResourceType"] == "instance":
                spec["Tags"] += [
                    {"Key": "ray-cluster-name", "Value": cluster},
                    {"Key": "ray-node-type", "Value": "head" if is_head else "worker"},
                ]
        self.started.append(asked)
        self.ec2.run_instances(**asked)

    def wait_joined(
        self, launch: Launcher, num_nodes: int, gpus_per_node: int, kind: str, timeout_s: float, log: Log
    ) -> tuple[int, int]:
        return num_nodes, num_nodes * gpus_per_node

    def spread(self, launch: Launcher, limits: watchdog.Limits) -> int:
        self.limits.append(limits)
        return len(self.started)

    def down(self, launch: Launcher, log: Log) -> bool:
        return True
