"""A cloud of one machine, the one at hand: no root, no sshd, no bill. Its launches carry their ids.

Any plan may be launched here whose ranks have room: on the GPUs that are found, if there is one for each
rank, else on CPU workers over gloo, one for each rank, as the probe does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from clusters import watchdog
from clusters.backend import documents, here
from clusters.backend.shell import Log
from clusters.clouds import reckoned
from clusters.clouds.base import Created, Order, Place, PreflightCheck
from clusters.faults import CloudFault
from planner import units
from planner.launched import CloudKind, Resource

PLACE = Place(region="here")
LIMITS, STARTED = "limits.json", "local_ray.json"
_DISK_BYTES = 2 * 1024**3  # Ray's logs and spilled objects of a short run, and a small checkpoint
_SHM_BYTES = 64 * 1024**2  # NCCL's and Ray's segments; containers have no more by default


class LocalCloud:
    """The machine on which this runs, as a cloud."""

    kind: CloudKind = "local"
    tried = True

    def preflight(self, order: Order, budget_usd: Decimal | None) -> tuple[PreflightCheck, ...]:
        """Processors, memory, disk, shared memory for the plan's ranks; nothing of this launch is alive."""
        ranks, gpus = reckoned.num_ranks(order.plan), num_gpus()
        return (
            _processors(ranks, gpus, os.cpu_count() or 1),
            _memory(order, ranks, on_gpus=gpus >= ranks, free_bytes=free_memory_bytes()),
            _room("disk", order.directory, _DISK_BYTES),
            _room("shared memory", "/dev/shm", _SHM_BYTES),
            _nothing_alive(self.find(order.launch_id)),
        )

    def places(self, order: Order) -> Sequence[Place]:
        """Here."""
        return (PLACE,)

    def prepare(self, order: Order) -> Order:
        """Nothing needs to be there before; Ray's token is made when it starts."""
        return order.model_copy(update={"place": PLACE})

    def create(self, order: Order, log: Log) -> Created:
        """Start Ray, and the watchdog that ends it in time."""
        ranks, gpus = reckoned.num_ranks(order.plan), num_gpus()
        wanted = here.Wanted(
            num_cpus=max(os.cpu_count() or 1, ranks),
            num_gpus=ranks if gpus >= ranks else 0,
            start_timeout_s=order.create_timeout_s,
            environment=_marks(order.launch_id),
        )
        try:
            started = here.start(order.launch_id, wanted)
        except here.LocalRayError as error:
            raise CloudFault(
                "setup", f"Ray did not start on this machine: {error}"[:400], log=str(error)
            ) from None
        log(f"Ray answers at {started.address}")
        _file(order, STARTED).write_text(started.model_dump_json(), encoding="utf-8")
        self._guard(order, started)
        return _created(started, wanted.num_gpus or 0)

    def _guard(self, order: Order, started: here.LocalRay) -> None:
        """Write the limits, and start what keeps them; it lives as long as the cluster."""
        path = _file(order, LIMITS)
        watchdog.write(
            str(path),
            reckoned.limits(order, "here", time.time(), started.address, paths=started.directory),
        )
        with _file(order, "watchdog.log").open("ab") as out:
            subprocess.Popen(
                [sys.executable, watchdog.__file__, "watch", str(path)],
                env={**os.environ, **dict(_marks(order.launch_id)), **_ray_env(started.auth_token_path)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @contextmanager
    def reach(self, order: Order) -> Iterator[Created]:
        """Nothing needs to be opened: Ray listens on the loopback."""
        try:
            text = _file(order, STARTED).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise CloudFault("unreachable", f"nothing of {order.launch_id} runs on this machine") from None
        started = here.LocalRay.model_validate_json(text)
        if not here.processes(order.launch_id):
            raise CloudFault("unreachable", f"Ray of {order.launch_id} has ended on this machine")
        ranks = reckoned.num_ranks(order.plan)
        yield _created(started, ranks if num_gpus() >= ranks else 0)

    def shell(self, order: Order) -> tuple[str, ...]:
        """None is needed: the head is here."""
        return ()

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        """Processes of this machine that carry the launch's id, and what they left in Ray's directory."""
        counted: dict[str, int] = {}
        for _, _, launch in watchdog.marked(launch_id):
            counted[launch] = counted.get(launch, 0) + 1
        if launch_id is not None and here.directory_of(launch_id).exists():
            counted.setdefault(launch_id, 0)
        return tuple(_resource(launch, number) for launch, number in sorted(counted.items()))

    def delete(self, resource: Resource) -> None:
        """End the processes, SIGTERM first, and delete Ray's directory with its token."""
        watchdog.end_marked(resource.id)
        try:
            here.stop(resource.id)
        except here.LocalRayError as error:
            raise CloudFault("timeout", str(error), self.by_hand(resource)) from None

    def stop_cluster(self, order: Order, log: Log) -> None:
        """End everything of the launch."""
        for resource in self.find(order.launch_id):
            log(f"ending {resource.state}")
            self.delete(resource)

    def extend(self, order: Order, deadline: datetime) -> None:
        """Write new limits; the watchdog reads them at its next tick."""
        path = _file(order, LIMITS)
        if not path.exists():
            raise CloudFault("unreachable", f"nothing of {order.launch_id} runs on this machine")
        old = watchdog.read(str(path))
        watchdog.write(str(path), reckoned.moved(old, order, deadline))

    def by_hand(self, resource: Resource) -> str:
        """Kill what carries the id."""
        return by_hand(resource.id)


def by_hand(launch_id: str) -> str:
    """Shell command that ends the processes of a launch on the machine where it runs."""
    return f"kill -9 $(grep -lsz {watchdog.MARK}={launch_id} /proc/[0-9]*/environ | cut -d/ -f3)"


def num_gpus() -> int:
    """GPUs of this machine, as the driver lists them; 0 where its tool is absent, fails or hangs."""
    return watchdog.num_gpus() or 0


def free_memory_bytes() -> float | None:
    """Memory that may still be taken, of the machine or of our control group, whichever is less."""
    free = reckoned.kernel_bytes(_text("/proc/meminfo"), "MemAvailable")
    limit, used = _text("/sys/fs/cgroup/memory.max").strip(), _text("/sys/fs/cgroup/memory.current").strip()
    if free is not None and limit.isdigit() and used.isdigit():
        return min(free, float(limit) - float(used))
    return free


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _file(order: Order, name: str) -> Path:
    return Path(order.directory) / name


def _marks(launch_id: str) -> tuple[tuple[str, str], ...]:
    """What every process of a launch carries; SIGTERM to a job leaves it time for a checkpoint."""
    return (
        (watchdog.MARK, launch_id),
        (here.MARK, launch_id),
        ("RAY_JOB_STOP_WAIT_TIME_S", str(round(documents.GRACE_S))),
    )


def _ray_env(token_path: str) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token_path, "RAY_USAGE_STATS_ENABLED": "0"}


def _created(started: here.LocalRay, gpus: int) -> Created:
    return Created(
        address=started.address, num_nodes=1, num_gpus=gpus, auth_token_path=started.auth_token_path
    )


def _resource(launch: str, number: int) -> Resource:
    return Resource(
        kind="process-group",
        id=launch,
        state=f"{number} processes" if number else "files in " + str(here.directory_of(launch)),
        place="here",
        bills=False,
        launch_id=launch,
        hint=by_hand(launch),
    )


# ------------------------------------------------------------------------------------------ preflight


def _processors(ranks: int, gpus: int, cpus: int) -> PreflightCheck:
    if gpus >= ranks:
        return PreflightCheck(name="GPUs", passed=True, detail=f"{ranks} of {gpus} GPUs of this machine")
    found = f"{gpus} GPUs and {cpus} CPUs here"
    if cpus >= ranks:
        return PreflightCheck(
            name="processors",
            passed=True,
            detail=f"{ranks} CPU workers over gloo stand in for GPUs ({found})",
        )
    return PreflightCheck(
        name="processors",
        passed=False,
        detail=f"the plan has {ranks} ranks; {found}",
        hint=f"plan suggest … --max-gpus {max(gpus, cpus)}",
    )


def _memory(order: Order, ranks: int, on_gpus: bool, free_bytes: float | None) -> PreflightCheck:
    memory = order.plan.candidate.memory
    need = memory.host_bytes if on_gpus else ranks * (memory.allocated_bytes.high + reckoned.WORKER_BYTES)
    if free_bytes is None:
        return PreflightCheck(name="memory", passed=False, detail="free memory of this machine is unknown")
    said = f"{units.gib(need)} needed, {units.gib(free_bytes)} free"
    return PreflightCheck(
        name="memory",
        passed=need <= free_bytes,
        detail=said,
        hint="" if need <= free_bytes else "a smaller model: plan suggest --params …",
    )


def _room(name: str, where: str, least: int) -> PreflightCheck:
    try:
        free = shutil.disk_usage(where).free
    except OSError as error:
        return PreflightCheck(name=name, passed=False, detail=f"{where}: {error.strerror}")
    said = f"{units.gib(free)} free in {where}, {units.gib(least)} needed"
    return PreflightCheck(name=name, passed=free >= least, detail=said)


def _nothing_alive(found: Sequence[Resource]) -> PreflightCheck:
    if not found:
        return PreflightCheck(name="no such launch", passed=True, detail="nothing of it runs here yet")
    return PreflightCheck(
        name="no such launch",
        passed=False,
        detail=f"{found[0].state} of {found[0].id} are here already",
        hint=f"plan down {found[0].id}",
    )
