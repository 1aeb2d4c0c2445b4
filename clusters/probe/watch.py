"""Waits for a worker group, tells how far it is, ends at the deadline, and says what went wrong."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from ray.exceptions import RayActorError, RayError
from ray.train import TrainingFailedError

from .board import Parts, Snapshot, unpacked
from .failures import Where, causes, failure_of, shorten
from .progress import Progress, progress_line, say
from .request import ProbeRequest
from .results import Failure

POLL_S = 0.3
TELL_S = 2.0
SILENT_SHARE = 0.9  # of the collectives' time-out: a rank that dies after that much silence hung before


Reader = Callable[[], Snapshot | None]


class Watch:
    """The probe's clock, and everything that its worker groups have handed in so far."""

    def __init__(self, request: ProbeRequest, began: float) -> None:
        self._request, self._began = request, began
        self._snapshot = Snapshot()
        self._returned: dict[str, Mapping[int, Any]] = {}
        self._told: tuple[float, Progress | None] = (0.0, None)
        self._moved = began
        self._phase_s: defaultdict[str, float] = defaultdict(float)

    @property
    def parts(self) -> Parts:
        """Parts by name and rank."""
        return {**unpacked(self._snapshot), **self._returned}

    @property
    def phase_s(self) -> Mapping[str, float]:
        """Seconds of each phase so far; ``start``: worker groups starting."""
        return self._phase_s

    @property
    def spent_s(self) -> float:
        """Seconds since the probe began."""
        return time.monotonic() - self._began

    @property
    def left_s(self) -> float:
        """Seconds until the probe's deadline."""
        return max(self._request.probe_timeout_s - self.spent_s, 0.0)

    def until_done(self, group: Future[Parts], read: Reader) -> tuple[Failure, ...]:
        """Wait for a worker group; returns why it failed, nothing where it did not. ``read``: the board."""
        last = self._moved = time.monotonic()
        while not group.done():
            if self.left_s <= 0:
                self._read(read)
                return (self._too_late(),)
            time.sleep(POLL_S)
            self._read(read)
            now = time.monotonic()
            self._phase_s[self._snapshot.phase] += now - last
            last = now
            self._tell()
        self._read(read)
        error = group.exception()
        if error is None:
            self._returned |= group.result()
            return ()
        return self._why(error)

    def _read(self, read: Reader) -> None:
        """Read the board; one that does not answer says nothing new."""
        before, now = self._snapshot, read()
        if now is None:
            return
        self._snapshot = now
        if self._snapshot.seen != before.seen or self._snapshot.finished != before.finished:
            self._moved = time.monotonic()

    def _tell(self) -> None:
        """Print how far the first rank that is not through has come, now and then."""
        now, snapshot = time.monotonic(), self._snapshot
        rank = next((r for r in sorted(snapshot.seen) if r not in snapshot.finished), None)
        seen = snapshot.seen.get(rank) if rank is not None else None
        progress = Progress(
            phase=snapshot.phase,
            rank=rank,
            done=seen.done if seen else 0,
            of=seen.of if seen else 1,
            seconds_left=round(self.left_s, 1),
        )
        at, before = self._told
        if before is None or before.phase != progress.phase or now - at >= TELL_S:
            self._told = (now, progress)
            say(progress_line(progress))

    def _too_late(self) -> Failure:
        """Failure at the deadline, naming the rank that is behind the others."""
        snapshot = self._snapshot
        behind = [rank for rank in sorted(snapshot.seen) if rank not in snapshot.finished]
        rank = behind[0] if len(behind) == 1 else None
        return Failure(
            kind="timeout",
            phase=snapshot.phase,
            rank=rank,
            node=snapshot.nodes.get(rank) if rank is not None else None,
            message=f"the probe's {self._request.probe_timeout_s:.0f} s were over",
        )

    def _why(self, error: BaseException) -> tuple[Failure, ...]:
        """Say why a worker group failed, from the board and from what Ray says."""
        if not isinstance(error, TrainingFailedError | RayError):
            raise error  # a mistake of ours
        snapshot = self._snapshot
        lost = {rank: shorten(_last_words(e)) for rank, e in _dead(error).items()}
        told = [failure for rank, failure in snapshot.failures.items() if rank not in lost]
        ranks = range(self._request.num_workers)
        silent = [r for r in ranks if r not in snapshot.failures and r not in snapshot.finished]
        found = causes(told, lost, silent, snapshot.nodes, snapshot.phase)
        if found:
            return tuple(map(self._hung, found))
        kind = "hang" if type(error).__name__ == "NCCLHangError" else None
        failure = failure_of(error, Where(phase=snapshot.phase))
        return (failure if kind is None else _as_hang(failure),)

    def _hung(self, failure: Failure) -> Failure:
        """NCCL's watchdog ends a process that waited too long: that was a hang."""
        quiet_s = time.monotonic() - self._moved
        waited = quiet_s >= SILENT_SHARE * self._request.collective_timeout_s
        if failure.kind == "worker-lost" and self._request.use_gpu and waited:
            return _as_hang(failure)
        return failure


def _as_hang(failure: Failure) -> Failure:
    return Failure(
        kind="hang",
        phase=failure.phase,
        rank=failure.rank,
        node=failure.node,
        message=failure.message,
    )


def _dead(error: BaseException) -> dict[int, RayActorError]:
    """Ranks whose process died, with Ray's error."""
    failures: Mapping[int, Any] = getattr(error, "worker_failures", {})
    inner = {rank: getattr(each, "health_check_failure", each) for rank, each in failures.items()}
    return {rank: each for rank, each in inner.items() if isinstance(each, RayActorError)}


def _last_words(error: RayActorError) -> str:
    """Ray's reason for a death, without the ids around it."""
    text = str(error)
    _, _, detail = text.partition("Worker exit detail: ")
    return detail or text
