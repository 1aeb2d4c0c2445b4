"""The worker group of a probe on Ray Train, with every time-out short and every retry off.

Ray's own defaults retry a controller's failure for ever and wait ten minutes for a silent worker
(``ray.train.v2._internal.constants`` of Ray 2.60), so none of them is left as it is.
"""

from __future__ import annotations

import fcntl
import os
import platform
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from types import TracebackType
from typing import Any, cast

import ray
import torch
from ray.actor import ActorHandle
from ray.train.backend import Backend
from ray.train.torch import TorchConfig

# ray.train gives these out as well, typed as those of its version 1
from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.torch.torch_trainer import TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .board import Board, Parts
from .hardware import nccl_environment
from .request import ProbeRequest
from .results import Failure
from .worker import Task, work

START_S = 120.0
SHUTDOWN_S = 5
CLEANER = "PlacementGroupCleanerCallback"
SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface


def set_limits(request: ProbeRequest) -> None:
    """Set what Ray Train reads from the environment: short time-outs, no retries of what hangs."""
    seconds = str(request.collective_timeout_s)
    told = {
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": seconds,
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(min(START_S, request.probe_timeout_s)),
        "RAY_TRAIN_COLLECTIVE_TIMEOUT_S": seconds,
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
        "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
        "RAY_TRAIN_METRICS_ENABLED": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": str(SHUTDOWN_S),
    }
    if request.use_gpu:
        told |= {
            "RAY_TRAIN_ENABLE_NCCL_HANG_DETECTOR": "1",
            "RAY_TRAIN_NCCL_RAS_ACTION": "fail",
            "RAY_TRAIN_NCCL_RAS_CONFIRM_DURATION_S": seconds,
        }
    os.environ.update(told)


def start_board() -> ActorHandle[Board]:
    """Start the board on this node: it lives as long as this job."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
    return cast(ActorHandle[Board], actor)


def fit(request: ProbeRequest, board: ActorHandle[Board], scratch: Path) -> Parts:
    """Run the worker group; returns what every rank measured. Raises what Ray Train raises.

    ``scratch``: a folder of ours, which is deleted with the probe.
    """
    each = {"CPU": 1.0, "GPU": 1.0} if request.use_gpu else {"CPU": 1.0}
    trainer = _Trainer(
        work,
        train_loop_config={"task": Task(request=request, board=board)},
        scaling_config=ScalingConfig(
            num_workers=request.num_workers,
            use_gpu=request.use_gpu,
            resources_per_worker=each,
            placement_strategy="PACK",
        ),
        torch_config=ProbeTorchConfig(
            backend=request.backend,
            timeout_s=max(int(request.collective_timeout_s), 1),
            nccl_log=request.use_gpu and "hardware" in request.phases,
        ),
        run_config=RunConfig(
            name="probe",
            storage_path=str(scratch),
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
        ),
    )
    told: Parts = trainer.fit().return_value  # type: ignore[attr-defined]
    return told


@contextmanager
def joined() -> Iterator[None]:
    """Join the cluster of ``RAY_ADDRESS``, or the one that runs here, and leave it in the end."""
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def lacking(request: ProbeRequest) -> Failure | None:
    """Say what the cluster has not got, so that no worker group waits for it; a node that lacks is named."""
    kind = "GPU" if request.use_gpu else "CPU"
    nodes = {_name(node): node["Resources"].get(kind, 0.0) for node in _nodes() if node["Alive"]}
    each = request.expected.gpus_per_node
    if request.use_gpu and each is not None:
        short = {name: count for name, count in nodes.items() if 0 < count < each}
        for name, count in short.items():
            return _not_there(f"node {name} has {count:.0f} of {each} GPUs", name)
    total = sum(nodes.values())
    if total < request.num_workers:
        told = ", ".join(f"{name}: {count:.0f}" for name, count in nodes.items())
        return _not_there(f"the cluster has {total:.0f} of {request.num_workers} {kind}s ({told})", None)
    return None


def _nodes() -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], ray.nodes())  # type: ignore[no-untyped-call]


def _not_there(message: str, node: str | None) -> Failure:
    return Failure(kind="error", phase="hardware", rank=None, node=node, message=message)


def _name(node: dict[str, Any]) -> str:
    """Name of a node of Ray for people."""
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


class _Trainer(TorchTrainer):
    """Without Ray's detached cleaner of placement groups: ours ends with the job; nothing may outlive it."""

    def _create_default_callbacks(self) -> list[Any]:
        return [each for each in super()._create_default_callbacks() if type(each).__name__ != CLEANER]


# ------------------------------------------------------------------------------- the process group


@dataclass
class ProbeTorchConfig(TorchConfig):
    """Ray's process group, with gloo on the interface that Ray itself uses.

    ``nccl_log``: NCCL writes down what it talks over; the hardware readings read and delete that file.
    """

    nccl_log: bool = False

    @property
    def backend_cls(self) -> type[Backend]:
        """Backend that sets the interface before the group starts."""
        return _Backend


class _Backend(TorchConfig().backend_cls):  # type: ignore[misc]
    """Host names that resolve to a loopback address (Debian) leave gloo alone on its node."""

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:  # noqa: ANN401
        worker_group.execute(_choose_interface)
        if cast(ProbeTorchConfig, backend_config).nccl_log:
            worker_group.execute(_write_nccl_log)
        super().on_start(worker_group, backend_config)


def _choose_interface() -> None:
    """Tell gloo the interface that has this node's address in Ray."""
    name = interface_of(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _write_nccl_log() -> None:
    """Have NCCL of this worker say what it chooses, before its first communicator."""
    os.environ.update(nccl_environment(gettempdir()))


def interface_of(address: str) -> str | None:
    """Name of the interface with this IPv4 address, ``None`` where none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # this one has no IPv4 address
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None


# ------------------------------------------------------------------------------- in the background


class _Kept:
    """Keeps an error of a thread in its future, where whoever waits finds it."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return True


def in_background(function: Callable[[], Parts]) -> Future[Parts]:
    """Call it in a thread that never keeps this process from ending."""
    future: Future[Parts] = Future()

    def call() -> None:
        with _Kept(future):
            future.set_result(function())

    threading.Thread(target=call, daemon=True).start()
    return future


def versions() -> dict[str, str]:
    """Versions of what the probe runs on; those of every node are among the hardware readings."""
    told = {"python": platform.python_version(), "torch": torch.__version__, "ray": ray.__version__}
    if torch.version.cuda is not None:
        told["cuda"] = torch.version.cuda
        told["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return told
