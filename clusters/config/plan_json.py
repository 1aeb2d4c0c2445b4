"""``plan.json``: what a training script on the cluster reads. Plain JSON; the planner is not needed there."""

from __future__ import annotations

import json

from clusters.config import versions
from clusters.config.choices import Choices
from clusters.config.nodes import Cluster
from clusters.config.ray_yaml import Document
from planner.results import Plan


def scaling_config(cluster: Cluster) -> Document:
    """Arguments of Ray Train's ``ScalingConfig``: one worker for each GPU, packed on nodes."""
    return {
        "num_workers": cluster.num_gpus,
        "use_gpu": True,
        "resources_per_worker": {"CPU": 1, "GPU": 1},
        "placement_strategy": "PACK",
        "accelerator_type": cluster.gpu.ray_accelerator_type,
    }


def text(plan: Plan, cluster: Cluster, choices: Choices) -> str:
    """Return the file: the run, how Ray Train spreads it, where checkpoints go, and what was predicted."""
    candidate, pinned = plan.candidate, versions.software()
    document: Document = {
        "schema_version": 1,
        "plan_id": plan.id,
        "launch_id": choices.launch_id,
        "deadline": choices.deadline_utc(),
        "run": candidate.run.model_dump(mode="json"),
        "scaling_config": scaling_config(cluster),
        "storage_path": choices.storage,
        "versions": {"python": pinned.python, "ray": pinned.ray, "torch": pinned.torch},
        "predicted": {
            "step_s": candidate.speed.step_s.model_dump(),
            "tokens_per_s_per_gpu": candidate.speed.tokens_per_s_per_gpu.model_dump(),
            "device_bytes": candidate.memory.device_bytes.model_dump(),
            "hours": candidate.hours.model_dump(),
        },
    }
    return json.dumps(document, indent=2) + "\n"
