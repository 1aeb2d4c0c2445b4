"""Runs probes on one Ray of this machine for ``test_job.py``: requests on stdin, results out as JSON.

A script of its own: Ray needs sockets, and its processes must not outlive it.
"""

import json
import os
import signal
import sys
import tempfile
import time

os.environ |= {  # before Ray is imported
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_raylet_start_wait_time_s": "120",  # on a busy machine
}

import loops
import ray

from clusters.probe import fit, job, request, results

STARTING_S = "240"  # a busy machine starts a worker group slowly


def probed(case: dict) -> dict:
    asked = request.from_json(json.dumps(case["request"]))
    fit.set_limits(asked)
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = STARTING_S
    honest, fit.work = fit.work, loops.spoils if case.get("spoilt") else fit.work
    try:
        return json.loads(results.to_json(job.run(asked, time.monotonic())))
    finally:
        fit.work = honest


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="rp", dir="/tmp", ignore_cleanup_errors=True) as home:
        ray.init(
            address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=home,
            object_store_memory=100 * 2**20,
        )  # fmt: skip
        try:
            found = {name: probed(case) for name, case in json.load(sys.stdin).items()}
        finally:
            ray.shutdown()
    print(json.dumps({**found, "home": home}))
