"""Why a probe ended early: errors of torch, gloo, NCCL and Ray in words that advice can use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import Literal

from .results import Failure
from .spec import RefusedError

Kind = Literal["oom", "worker-lost", "timeout", "hang", "refused", "wrong-count", "error"]

MOST_CHARACTERS = 600
GPU_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

# torch: c10/core/impl/alloc_cpu.cpp, c10/cuda/CUDACachingAllocator.cpp; gloo/transport/tcp; c10d's store
_ASKED_CPU = re.compile(r"you tried to allocate (\d+) bytes")
_ASKED_GPU = re.compile(r"Tried to allocate ([\d.]+) (\w+)")
_FREE_GPU = re.compile(r"of which ([\d.]+) (\w+) is free")
_NO_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|out of memory|OutOfMemoryError|memory pressure", re.I
)
_TOO_LATE = re.compile(r"timed out|time ?out|deadline exceeded", re.I)
_PEER_GONE = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection refused|socket closed|the actor died", re.I
)


class WrongCountError(ValueError):
    """The real model has another number of parameters than the planner counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Who met an error: ``phase``, rank and node, and what memory the rank could still have had."""

    phase: str
    rank: int | None = None
    node: str | None = None
    bytes_free: float | None = None


def failure_of(error: BaseException, where: Where) -> Failure:
    """Put one error into words. Out-of-memory errors say the bytes asked for and free, where known."""
    text = str(error)
    kind = kind_of(error)
    if not text.strip() or kind == "error":
        text = f"{type(error).__name__}: {text}"
    asked, free = _memory(text) if kind == "oom" else (None, None)
    return Failure(
        kind=kind,
        phase=where.phase,
        rank=where.rank,
        node=where.node,
        bytes_asked=asked,
        bytes_free=(where.bytes_free if free is None else free) if kind == "oom" else None,
        message=shorten(text),
    )


def kind_of(error: BaseException) -> Kind:
    """Class of an error, by its type where it has one, else by its text."""
    text = str(error)
    if isinstance(error, RefusedError):
        return "refused"
    if isinstance(error, WrongCountError):
        return "wrong-count"
    if isinstance(error, MemoryError) or _NO_MEMORY.search(f"{type(error).__name__} {text}"):
        return "oom"
    if isinstance(error, TimeoutError) or _TOO_LATE.search(text):
        return "timeout"
    if isinstance(error, ConnectionError) or _PEER_GONE.search(text):
        return "worker-lost"  # of another rank: this one only noticed
    return "error"


def _memory(text: str) -> tuple[float | None, float | None]:
    """Bytes asked for, and free, as an allocator's message says them."""
    cpu = _ASKED_CPU.search(text)
    if cpu:
        return float(cpu[1]), None
    return _gpu_bytes(_ASKED_GPU.search(text)), _gpu_bytes(_FREE_GPU.search(text))


def _gpu_bytes(found: re.Match[str] | None) -> float | None:
    """Bytes of a figure like ``2.00 GiB``."""
    if found is None or found[2] not in GPU_UNITS:
        return None
    return float(found[1]) * GPU_UNITS[found[2]]


def shorten(text: str) -> str:
    """Cut a message down to what fits a screen: frames of Python and C++, and long tails, go."""
    text = text.split("Exception raised from")[0].split("\nC++ CapturedTraceback")[0].strip()
    before, _, trace = text.partition("Traceback (most recent call last):\n")
    text = before + "\n".join(dropwhile(lambda line: line.startswith(" "), trace.splitlines()))
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def causes(
    told: Sequence[Failure],
    lost: Mapping[int, str],
    silent: Sequence[int],
    nodes: Mapping[int, str],
    phase: str,
) -> tuple[Failure, ...]:
    """What really went wrong, from what every rank said before the worker group was taken down.

    ``told``: one failure a rank that could speak. ``lost``: ranks whose process died, with Ray's reason.
    ``silent``: ranks that neither finished nor spoke. An error of its own counts before a lost process, and
    that before a rank that only noticed a peer's silence.
    """
    own = [each for each in told if each.kind not in ("worker-lost", "timeout")]
    if own:
        return _first_of_each(own)
    dead = [_of_lost(rank, why, nodes.get(rank), phase) for rank, why in sorted(lost.items())]
    if dead:
        return tuple(dead)
    named = silent[0] if len(silent) == 1 else None
    noticed = [each for each in told if each.kind == "worker-lost"] or list(told)
    if not noticed:
        return ()
    first = noticed[0]
    if named is None:
        return (replace(first, rank=None, node=None) if first.kind == "worker-lost" else first,)
    said = f"rank {named} gave no answer; rank {first.rank} says: {first.message}"
    return (replace(first, rank=named, node=nodes.get(named), message=shorten(said)),)


def _first_of_each(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Failures in order of rank; what several ranks say alike (a refused plan) is said once."""
    ordered = sorted(failures, key=lambda each: -1 if each.rank is None else each.rank)
    if {each.kind for each in ordered} <= {"refused", "wrong-count"}:
        return (ordered[0],)
    return tuple(ordered)


def _of_lost(rank: int, why: str, node: str | None, phase: str) -> Failure:
    """Failure of a rank whose process is gone; Ray's memory monitor says so where it killed it."""
    return Failure(
        kind="oom" if _NO_MEMORY.search(why) else "worker-lost",
        phase=phase,
        rank=rank,
        node=node,
        message=shorten(why),
    )
