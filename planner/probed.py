"""What a probe measures on a cluster, and what is concluded from it, as frozen records.

The probe itself (``clusters/probe``) knows nothing of the planner: it writes the JSON form of
``ProbeResult``, and whoever started it reads that back with these records. A figure that could not be
measured is ``None`` with a reason beside it: an unknown never passes a check.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

from planner.types import Band, Record

ProbePhase = Literal["hardware", "collectives", "memory", "steps"]
PHASES: tuple[ProbePhase, ...] = ("hardware", "collectives", "memory", "steps")
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


class Reading(Record):
    """One value that a node was asked for. ``value`` is ``None`` where it could not be read: see ``why``.

    ``passed``: ``None`` where nothing is expected of it (shown, never judged).
    """

    name: str
    value: str | None
    expected: str | None = None
    passed: bool | None = None
    why: str = ""


class RankHardware(Record):
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


class CollectiveTiming(Record):
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


class SkippedCollective(Record):
    """A collective that was not timed, and why: the backend lacks it, or it would overrun the time given."""

    op: Collective
    scope: Literal["node", "between-nodes", "all"]
    bytes: int
    why: str


class PairTiming(Record):
    """Send and receive between two ranks: looked at pair by pair when a total disappoints."""

    rank_a: int
    rank_b: int
    bytes: int
    busbw_bytes_per_s: float


class RankMemory(Record):
    """Peak memory of a rank in the step. On a CPU: what the process held above its baseline, as reserved."""

    rank: int
    allocated_bytes: float | None
    reserved_bytes: float | None
    device_bytes: float | None
    num_alloc_retries: int | None
    num_ooms: int | None


class MeasuredSteps(Record):
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


class PrecisionCheck(Record):
    """Loss of the same steps from one seed, in fp32 and in the plan's precision."""

    precision: str
    loss_fp32: tuple[float, ...]
    loss: tuple[float, ...]


class Depth(Record):
    """One run of the step with fewer layers than the model has (``--scale``)."""

    num_layers: int
    memory: tuple[RankMemory, ...]
    steps: MeasuredSteps | None


class Failure(Record):
    """Why a phase ended early. ``kind`` decides the advice; figures are ``None`` where nobody knew them."""

    kind: Literal["oom", "worker-lost", "timeout", "hang", "refused", "wrong-count", "error"]
    phase: str
    rank: int | None
    node: str | None
    bytes_asked: float | None = None
    bytes_free: float | None = None
    message: str = ""


class ProbeResult(Record):
    """Everything that one probe measured; phases that did not run, or failed, are empty.

    ``num_layers`` < the model's: the step ran on a model of fewer layers (``--scale``), and is compared with
    the prediction for that one. ``num_params``: counted on the real model that ran.
    """

    schema_version: int = 1
    started: datetime
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


class Check(Record):
    """One line of the verdict. ``passed`` is ``False`` for what could not be measured: see ``why``.

    ``passed`` is ``None`` where the figure is shown and decides nothing.

    Figures are in ``unit``; ``limit`` is what ``measured`` may reach (a floor for bandwidths: see ``name``).
    """

    name: str
    predicted: Band | None
    measured: float | None
    limit: float | None
    unit: str
    passed: bool | None
    why: str = ""


class Repriced(Record):
    """The rest of the run, priced again from the measured step."""

    hours: Band
    cost_usd: Band | None
    budget_usd: Decimal | None
    within_budget: bool | None


class ProbeVerdict(Record):
    """Prediction against measurement. It passes only if every check passes."""

    verdict: Literal["pass", "fail"]
    checks: tuple[Check, ...]
    repriced: Repriced | None
    likely_cause: str = ""
    advice: tuple[str, ...] = ()
