"""Hosts that exist already, over SSH: the user's own, or rented ones by address (Lambda, RunPod, Vast).

The first host is the head. Ours on a host are the processes that carry the launch's id, a directory of the
launch, and the Python environment that setup made; nothing else there is touched. Hosts are not switched off:
what is rented goes on billing until the user ends it at the provider.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from clusters import watchdog
from clusters.backend import documents, launcher, ssh
from clusters.backend.shell import Log
from clusters.clouds import behind_ray, reckoned
from clusters.clouds.base import Created, Order, Place, PreflightCheck
from clusters.config import emit
from clusters.config.nodes import cluster_of
from clusters.faults import CloudFault
from planner import units
from planner.launched import CloudKind, Resource
from planner.types import Record

PORTS = (6379, launcher.PORT)
HEAD_FILES = ("~/ray_bootstrap_key.pem", "~/ray_bootstrap_config.yaml")  # the user's key: Ray copies it
OLDEST_PYTHON = (3, 8)
LARGEST_SKEW_S = 5.0
_DISK_BYTES = 15 * 1024**3  # Python, torch with CUDA (about 6 GiB unpacked), Ray, logs and spilled objects
_ASK_S, _END_S = 30.0, 60.0
R = TypeVar("R")


class HostFacts(Record):
    """What a host said of itself (``watchdog.facts``); ``asked_s``, ``answered_s``: on our clock."""

    host: str
    python: str
    cpus: int | None
    gpus: int | None
    disk_free_bytes: float
    shm_free_bytes: float | None
    time_s: float
    ports_taken: tuple[int, ...]
    asked_s: float
    answered_s: float

    @property
    def skew_s(self) -> float:
        """Seconds by which its clock is surely off ours, the way there and back taken off."""
        return max(self.asked_s - self.time_s, self.time_s - self.answered_s, 0.0)


class HostsCloud:
    """Given hosts, as a cloud."""

    kind: CloudKind = "hosts"
    tried = True

    def __init__(self, hosts: Sequence[str], ssh_user: str, ssh_key: str, known_hosts: str = "") -> None:
        self.hosts = tuple(hosts)
        self.way = ssh.Way(user=ssh_user, key=ssh_key, known_hosts=known_hosts)

    # ------------------------------------------------------------------------------------ before

    def preflight(self, order: Order, budget_usd: Decimal | None) -> tuple[PreflightCheck, ...]:
        """Each host: reached, Python, GPUs, disk, ports, clock; nothing of the launch is there."""
        answers = self._all(self._facts)
        checks = [_host_check(host, answer, order) for host, answer in zip(self.hosts, answers, strict=True)]
        there = [
            a for a in self._all(lambda host: self._marked(host, order.launch_id)) if isinstance(a, list)
        ]
        num = sum(len(a) for a in there)
        checks.append(
            PreflightCheck(
                name="no such launch",
                passed=num == 0,
                detail=f"{num} processes of {order.launch_id} on the hosts",
                hint=f"plan down {order.launch_id}" if num else "",
            )
        )
        return tuple(checks)

    def _facts(self, host: str) -> HostFacts:
        asked = time.time()
        said = self._watchdog(host, "facts " + " ".join(map(str, PORTS)), _ASK_S)
        try:
            return HostFacts.model_validate(
                {**json.loads(said), "host": host, "asked_s": asked, "answered_s": time.time()}
            )
        except ValueError:
            raise CloudFault("setup", f"{host} answered {said[:80]!r}") from None

    def places(self, order: Order) -> Sequence[Place]:
        """Where the hosts are."""
        return (order.place,)

    def prepare(self, order: Order) -> Order:
        """Make Ray's token on this machine."""
        token = launcher.write_token(Path(order.directory))
        return order.model_copy(
            update={"choices": order.choices.model_copy(update={"auth_token": str(token)})}
        )

    # ------------------------------------------------------------------------------------ up

    def create(self, order: Order, log: Log) -> Created:
        """Run ``ray up`` on the hosts, and count what has joined."""
        cluster = cluster_of(order.plan, order.choices, "local")
        document = emit.documents(cluster, order.choices, "local")["cluster.yaml"]
        limits = reckoned.limits(
            order,
            "here",
            time.time(),
            behind_ray.LOOPBACK,
            paths=f"{documents.TEMP}{order.launch_id}:~/.plan-{order.launch_id}",
            head_paths=":".join(HEAD_FILES),
        )
        joined = behind_ray.up(behind_ray.RAY, _launcher(order), order, cluster, document, limits, log)
        return behind_ray.created(order, self.hosts[0], joined)

    def reach(self, order: Order) -> AbstractContextManager[Created]:
        """Open a tunnel to the head's loopback, where job submission listens."""
        cluster = cluster_of(order.plan, order.choices, "local")
        return behind_ray.reached(order, cluster, self.way, self.hosts[0])

    def shell(self, order: Order) -> tuple[str, ...]:
        """SSH to the head."""
        return tuple(self.way.to(self.hosts[0]))

    def extend(self, order: Order, deadline: datetime) -> None:
        """Write new limits on every host."""
        behind_ray.move_deadline(behind_ray.RAY, _launcher(order), order, deadline, lambda: self.hosts)

    # ------------------------------------------------------------------------------------ down

    def find(self, launch_id: str | None) -> tuple[Resource, ...]:
        """Processes of the launch, host by host.

        Raises ``CloudFault`` ``unreachable`` where a host cannot be asked: something may still run there.
        """
        answers = self._all(lambda host: self._marked(host, launch_id))
        found: list[Resource] = []
        for host, answer in zip(self.hosts, answers, strict=True):
            if isinstance(answer, CloudFault):
                raise answer
            for launch in sorted({row["launch_id"] for row in answer}):
                found.append(self._resource(host, launch, sum(r["launch_id"] == launch for r in answer)))
        return tuple(found)

    def delete(self, resource: Resource) -> None:
        """End the launch's processes on one host, and delete what it put there."""
        launch = resource.launch_id or ""
        left = self._watchdog(resource.place, f"end {launch}", _END_S).strip()
        ours = [documents.home(launch), f"{documents.TEMP}{launch}"]
        if resource.place == self.hosts[0]:
            ours += HEAD_FILES
        ssh.ask(self.way, resource.place, f"rm -rf {' '.join(ours)}", _END_S)
        if left:
            raise CloudFault("timeout", f"{len(left.splitlines())} processes still run on {resource.place}")

    def stop_cluster(self, order: Order, log: Log) -> None:
        """End the head first, so that nothing is started anew; ``ray down`` would end all Ray on it."""
        for host in self.hosts:
            with suppress(CloudFault):
                log(f"ending {order.launch_id} on {host}")
                self.delete(self._resource(host, order.launch_id, 0))

    def by_hand(self, resource: Resource) -> str:
        """Kill what carries the id, over SSH."""
        inner = (
            f"kill -9 $(grep -lsz {watchdog.MARK}={resource.launch_id} /proc/[0-9]*/environ | cut -d/ -f3)"
        )
        return f"ssh -i {self.way.key} {self.way.user}@{resource.place} '{inner}'"

    # ------------------------------------------------------------------------------------ hosts

    def _marked(self, host: str, launch_id: str | None) -> list[dict[str, str]]:
        said = self._watchdog(host, f"find {launch_id or '-'}", _ASK_S)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def _watchdog(self, host: str, words: str, timeout_s: float) -> str:
        """Run a command of our one file on a host; nothing of ours needs to be there."""
        source = Path(watchdog.__file__).read_text(encoding="utf-8")
        return ssh.ask(self.way, host, f"python3 - {words}", timeout_s, source)

    def _all(self, ask: Callable[[str], R]) -> list[R | CloudFault]:
        """Ask every host at once; a fault is the answer of one that could not be asked."""

        def one(host: str) -> R | CloudFault:
            try:
                return ask(host)
            except CloudFault as fault:
                return fault

        with ThreadPoolExecutor(max_workers=min(len(self.hosts), 16) or 1) as pool:
            return list(pool.map(one, self.hosts))

    def _resource(self, host: str, launch: str, number: int) -> Resource:
        made = Resource(
            kind="ray-on-host", id=f"{launch}@{host}", state=f"{number} processes", place=host, bills=False,
            launch_id=launch,
        )  # fmt: skip
        return made.model_copy(update={"hint": self.by_hand(made)})


def _launcher(order: Order) -> launcher.Launcher:
    return behind_ray.launcher_of(order, own_temp=True)


def _host_check(host: str, answer: HostFacts | CloudFault, order: Order) -> PreflightCheck:
    if isinstance(answer, CloudFault):
        return PreflightCheck(name=f"host {host}", passed=False, detail=str(answer), hint=answer.hint)
    wrong = _wrong(answer, order)
    found = (
        f"Python {answer.python}, {answer.gpus} GPUs, {units.gib(answer.disk_free_bytes)} free, clock"
        f" {answer.skew_s:.1f} s off"
    )
    return PreflightCheck(name=f"host {host}", passed=not wrong, detail="; ".join(wrong) or found)


def _wrong(facts: HostFacts, order: Order) -> list[str]:
    """What keeps a host from being a node of the plan."""
    wanted = order.plan.candidate.run.shape.gpus_per_node
    cpu_head = order.choices.cpu_head and facts.host == order.choices.hosts[0]
    wrong = []
    if tuple(int(part) for part in facts.python.split(".")) < OLDEST_PYTHON:
        wrong.append(f"Python {facts.python}, 3.8 or newer is needed")
    if facts.gpus is None:
        wrong.append("nvidia-smi fails or hangs, so its GPUs are not known")
    elif facts.gpus < wanted and not cpu_head:
        wrong.append(f"{facts.gpus} GPUs, the plan needs {wanted}")
    if facts.disk_free_bytes < _DISK_BYTES and not order.choices.preinstalled:
        wrong.append(f"{units.gib(facts.disk_free_bytes)} free, {units.gib(_DISK_BYTES)} needed")
    if facts.ports_taken:
        taken = ", ".join(map(str, facts.ports_taken))
        wrong.append(f"port {taken} is taken (another Ray?)")
    if facts.skew_s > LARGEST_SKEW_S:
        wrong.append(f"its clock is {facts.skew_s:.0f} s off")
    return wrong
