"""What the probe measured, as plain records: ``planner/probed.py`` holds the same nouns for the reader.

Only the standard library is imported: this ships to the cluster. A test keeps both in step, field by field.
``to_json`` writes what the reader takes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

Collective = Literal[
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "scatter",
    "gather",
    "all_to_all",
    "send_recv",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One value that a node was asked for. ``value`` is ``None`` where it could not be read: see ``why``.

    ``passed``: ``None`` where nothing is expected of it (shown, never judged).
    """

    name: str
    value: str | None
    expected: str | None = None
    passed: bool | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHardware:
    """What one rank runs on. ``device`` is the GPU's name, or the CPU's where there is no GPU."""

    rank: int
    node: int
    host: str
    device: str
    backend: Literal["nccl", "gloo"]
    driver: str | None
    nic: str | None
    transport: str | None
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTiming:
    """A collective of one size over one group of ranks, in nccl-tests' conventions.

    ``bytes``: size of the buffer as nccl-tests counts it. ``scope``: ranks of one node, ranks of different
    nodes (one a node), or all. ``busbw`` = ``algbw`` x the factor of the operation
    (NVIDIA/nccl-tests, doc/PERFORMANCE.md). ``correct``: the values were checked on every rank;
    ``wrong_ranks``: those that held wrong ones.
    """

    op: Collective
    scope: Literal["node", "between-nodes", "all"]
    ranks: int
    nodes: int
    bytes: int
    time_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    correct: bool
    purpose: str = ""  # "gradient bucket", "all-gather of one layer"; empty = of the sweep
    wrong_ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCollective:
    """A collective that was not timed, and why: the backend lacks it, or it would overrun the time given."""

    op: Collective
    scope: Literal["node", "between-nodes", "all"]
    bytes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTiming:
    """Send and receive between two ranks: looked at pair by pair when a total disappoints."""

    rank_a: int
    rank_b: int
    bytes: int
    busbw_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Peak memory of a rank in the step. On a CPU: what the process held above its baseline, as reserved."""

    rank: int
    allocated_bytes: float | None
    reserved_bytes: float | None
    device_bytes: float | None
    num_alloc_retries: int | None
    num_ooms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """Optimizer steps after warm-up, on every rank: ``seconds[i]`` is step i of the slowest rank.

    Ranks wait for each other in a step. ``layer_s_by_rank``: one layer on each rank alone, without
    communication, where a slow GPU shows; empty where it was not timed (on CPUs).
    """

    seconds: tuple[float, ...]
    median_s_by_rank: tuple[float, ...]
    loader_s: float
    tokens_per_step: int
    loss: tuple[float, ...]
    layer_s_by_rank: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionCheck:
    """Loss of the same steps from one seed, in fp32 and in the plan's precision."""

    precision: str
    loss_fp32: tuple[float, ...]
    loss: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """One run of the step with fewer layers than the model has (``--scale``)."""

    num_layers: int
    memory: tuple[RankMemory, ...]
    steps: MeasuredSteps | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a phase ended early. ``kind`` decides the advice; figures are ``None`` where nobody knew them."""

    kind: Literal["oom", "worker-lost", "timeout", "hang", "refused", "wrong-count", "error"]
    phase: str
    rank: int | None
    node: str | None
    bytes_asked: float | None = None
    bytes_free: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Everything that one probe measured; phases that did not run, or failed, are empty.

    ``num_layers`` < the model's: the step ran on a model of fewer layers (``--scale``), and is compared with
    the prediction for that one. ``num_params``: counted on the real model that ran.
    """

    schema_version: int = 1
    started: str
    wall_s: float
    phase_s: dict[str, float]
    versions: dict[str, str]
    num_nodes: int
    num_ranks: int
    num_layers: int
    num_params: int | None
    hardware: tuple[RankHardware, ...] = ()
    collectives: tuple[CollectiveTiming, ...] = ()
    skipped: tuple[SkippedCollective, ...] = ()
    pairs: tuple[PairTiming, ...] = ()
    memory: tuple[RankMemory, ...] = ()
    steps: MeasuredSteps | None = None
    depths: tuple[Depth, ...] = ()
    precision: PrecisionCheck | None = None
    failures: tuple[Failure, ...] = ()


def to_json(result: ProbeResult) -> str:
    """Write a result as one line of JSON. Raises ``ValueError`` for a figure that is not finite."""
    return json.dumps(asdict(result), allow_nan=False)
