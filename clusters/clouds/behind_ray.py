"""Machines behind Ray's launcher: what AWS, Google Cloud, Azure and given hosts do alike.

The launch's own token and key, the way to the head, ``ray up`` until all nodes have joined, the tunnel to job
submission, and the deadline moved on every node. Where the head is, what it costs, and what is deleted is
each cloud's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Protocol, cast

from clusters import watchdog
from clusters.backend import launcher, ssh
from clusters.backend.shell import Log
from clusters.clouds import keys, reckoned
from clusters.clouds.base import Created, Order
from clusters.config.choices import Choices
from clusters.config.nodes import Cluster
from clusters.config.ray_yaml import Document
from clusters.faults import CloudFault

LOOPBACK = f"http://127.0.0.1:{launcher.PORT}"  # of job submission, on the head


class Backend(Protocol):
    """What is done through Ray's launcher: ``clusters.backend.launcher``; a stand-in in tests."""

    def up(
        self,
        launch: launcher.Launcher,
        document: Document,
        limits: watchdog.Limits,
        timeout_s: float,
        log: Log,
    ) -> None:
        """Start the head, which starts the workers."""

    def wait_joined(
        self,
        launch: launcher.Launcher,
        num_nodes: int,
        gpus_per_node: int,
        kind: str,
        timeout_s: float,
        log: Log,
    ) -> tuple[int, int]:
        """Count nodes and GPUs that have joined."""

    def spread(self, launch: launcher.Launcher, limits: watchdog.Limits) -> int:
        """Write limits on every node."""

    def down(self, launch: launcher.Launcher, log: Log) -> bool:
        """End the cluster in good order."""


RAY = cast(Backend, launcher)


def launcher_of(order: Order, *, own_temp: bool = False) -> launcher.Launcher:
    """Files and marks of a launch. ``own_temp``: on hosts that are not ours alone."""
    return launcher.Launcher(directory=order.directory, launch_id=order.launch_id, own_temp=own_temp)


def with_keys(order: Order, choices: Choices, kind: str = "ed25519") -> Choices:
    """Make Ray's token and the launch's SSH key on this machine; the choices that name them. Repeatable.

    ``kind``: of the key, as ``ssh-keygen`` calls it.
    """
    directory = Path(order.directory)
    token = launcher.write_token(directory)
    public_key = keys.make(directory, kind)
    return choices.model_copy(
        update={
            "auth_token": str(token),
            "ssh_key": str(directory / keys.KEY),
            "ssh_public_key": public_key,
        }
    )


def way(order: Order, proxy_command: str = "") -> ssh.Way:
    """How the head is reached over SSH, with the launch's own key and its own list of known hosts."""
    directory = Path(order.directory)
    return ssh.Way(
        user="ubuntu",
        key=str(directory / keys.KEY),
        proxy_command=proxy_command,
        known_hosts=str(directory / "known_hosts"),  # addresses of a cloud are given to others later
    )


def limits_of(order: Order, end: str) -> watchdog.Limits:
    """Limits of a launch whose machines begin to bill now. ``end``: how the watchdog ends them."""
    return reckoned.limits(order, end, time.time(), LOOPBACK, region=order.place.region)


def up(
    backend: Backend,
    made: launcher.Launcher,
    order: Order,
    cluster: Cluster,
    document: Document,
    limits: watchdog.Limits,
    log: Log,
) -> tuple[int, int]:
    """Run ``ray up``, the head from here and its workers by the head itself; nodes and GPUs that joined."""
    until = time.monotonic() + order.create_timeout_s
    backend.up(made, document, limits, order.create_timeout_s, log)
    left_s = max(until - time.monotonic(), 1.0)
    return backend.wait_joined(
        made, cluster.num_nodes, cluster.gpus_per_node, right_kind(cluster), left_s, log
    )


def right_kind(cluster: Cluster) -> str:
    """Resource that every node of the plan's GPUs has."""
    return f"accelerator_type:{cluster.gpu.ray_accelerator_type}"


def created(order: Order, head: str, joined: tuple[int, int]) -> Created:
    """A cluster whose nodes and GPUs have joined. ``head``: its address."""
    return Created(
        address=f"http://{head}:{launcher.PORT}",
        num_nodes=joined[0],
        num_gpus=joined[1],
        auth_token_path=order.choices.auth_token,
    )


@contextmanager
def reached(order: Order, cluster: Cluster, over: ssh.Way, head: str) -> Iterator[Created]:
    """Open a tunnel to the head's loopback, where job submission listens."""
    with ssh.tunnel(over, head, launcher.PORT) as port:
        yield Created(
            address=f"http://127.0.0.1:{port}",
            num_nodes=cluster.num_nodes,
            num_gpus=cluster.num_gpus,
            auth_token_path=str(Path(order.directory) / launcher.TOKEN),
        )


def move_deadline(
    backend: Backend,
    made: launcher.Launcher,
    order: Order,
    deadline: datetime,
    machines: Callable[[], Sequence[str]],
) -> Sequence[str]:
    """Move the timers on every node; returns the machines, which are asked for once nodes have answered.

    Raises ``CloudFault`` ``not-joined`` where it was moved on fewer: the old deadline is still kept here.
    """
    launcher.refuse_without(made)
    moved = reckoned.moved(watchdog.read(str(made.file(launcher.LIMITS))), order, deadline)
    done = backend.spread(made, moved)
    there = machines()
    if done < len(there):
        raise CloudFault("not-joined", f"the deadline was moved on {done} of {len(there)} machines")
    watchdog.write(str(made.file(launcher.LIMITS)), moved)
    return there
