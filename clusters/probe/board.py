"""Where ranks write what they have measured, so that a later failure keeps it: one small Ray actor.

Ray Train hands back what rank 0 returns at the end, and only if every rank got there. The board holds each
rank's parts as they come, its phase, and its failure, and whoever started the probe reads it at any time.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, cast

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError

from . import memory_cpu
from .failures import Where, failure_of
from .results import Failure

ANSWER_S = 10.0

Parts = Mapping[str, Mapping[int, Any]]


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a rank was last."""

    phase: str
    done: int
    of: int


@dataclass(slots=True)
class Snapshot:
    """What the board holds: ``parts[name][rank]``, and of each rank its node, progress and failure.

    Parts are pickled: the board need not load torch for what it only keeps.
    """

    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    nodes: dict[int, str] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)

    @property
    def phase(self) -> str:
        """Phase of the first rank that is not through, ``start`` before any has begun."""
        behind = [self.seen[rank].phase for rank in sorted(self.seen) if rank not in self.finished]
        return behind[0] if behind else "start"


def unpacked(snapshot: Snapshot) -> dict[str, dict[int, Any]]:
    """Parts of a snapshot, by name and rank."""
    return {
        name: {rank: pickle.loads(value) for rank, value in told.items()}
        for name, told in snapshot.parts.items()
    }


class Board:
    """The actor."""

    def __init__(self) -> None:
        self._now = Snapshot()

    def here(self, rank: int, node: str) -> None:
        """A rank says where it runs."""
        self._now.nodes[rank] = node

    def seen(self, rank: int, phase: str, done: int, of: int) -> None:
        """A rank says how far it is."""
        self._now.seen[rank] = Seen(phase, done, of)

    def put(self, rank: int, name: str, value: bytes) -> None:
        """A rank hands in a part, pickled."""
        self._now.parts.setdefault(name, {})[rank] = value

    def failed(self, rank: int, failure: Failure) -> None:
        """A rank says why it ends."""
        self._now.failures[rank] = failure

    def done(self, rank: int) -> None:
        """A rank is through."""
        self._now.finished.add(rank)

    def read(self) -> Snapshot:
        """Everything so far."""
        return self._now


def read_board(board: ActorHandle[Board]) -> Snapshot | None:
    """Everything so far; ``None`` where the board gives no answer."""
    try:
        return cast(Snapshot, ray.get(board.read.remote(), timeout=ANSWER_S))
    except (GetTimeoutError, RayActorError):
        return None


class Reporter:
    """A rank's pen for the board. As a context it says why the rank ends, and lets the error go on."""

    def __init__(self, board: ActorHandle[Board], rank: int, node: str) -> None:
        self._board, self._rank, self._node = board, rank, node
        self._phase, self._parts = "start", dict[str, object]()
        self._board.here.remote(rank, node)

    @property
    def parts(self) -> Mapping[str, object]:
        """What this rank has handed in."""
        return self._parts

    def at(self, phase: str, done: int, of: int) -> None:
        """Say how far this rank is."""
        self._phase = phase
        self._board.seen.remote(self._rank, phase, done, of)

    def put(self, name: str, value: object) -> None:
        """Hand in a part; it is on the board when this returns."""
        self._parts[name] = value
        ray.get(self._board.put.remote(self._rank, name, pickle.dumps(value)), timeout=ANSWER_S)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            ray.get(self._board.done.remote(self._rank), timeout=ANSWER_S)
            return
        free = memory_cpu.free_bytes() if memory_cpu.STATUS.exists() else None
        memory_cpu.lift_limit()
        where = Where(phase=self._phase, rank=self._rank, node=self._node, bytes_free=free)
        ray.get(self._board.failed.remote(self._rank, failure_of(error, where)), timeout=ANSWER_S)
