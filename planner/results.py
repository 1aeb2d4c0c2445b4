"""What the planner answers, as frozen records: estimates, candidates, rejections, plans."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from planner.types import (
    Band,
    Goal,
    Layout,
    Market,
    ModelSpec,
    Offer,
    PeakAt,
    Record,
    RejectionReason,
    Run,
    TrainingSpec,
    Verdict,
)


class MemoryParts(Record):
    """Bytes per GPU at the instant of the peak, on the fullest GPU. They add up to device mid."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    gathered: float
    communication: float
    context: float
    allocator_slack: float


class MemoryEstimate(Record):
    """Peak memory of one GPU. ``fits``: allocated mid + context; ``safe``: device high, against usable."""

    parts_bytes: MemoryParts
    allocated_bytes: Band
    reserved_bytes: Band
    device_bytes: Band
    peak_at: PeakAt
    usable_bytes: float | None
    fits: bool | None
    safe: bool | None
    host_bytes: float
    load_bytes: float


class SpeedParts(Record):
    """Seconds of one optimizer step, by cause. They add up to step mid."""

    matmul: float
    attention: float
    memory_bound: float
    exposed_communication: float
    bubble: float
    optimizer: float
    overhead: float


class SpeedEstimate(Record):
    """Speed of one optimizer step. MFU counts model FLOPs, HFU those that the hardware does."""

    parts_s: SpeedParts
    step_s: Band
    tokens_per_s_per_gpu: Band
    mfu: float
    hfu: float
    limiting_link: str | None
    limiting_link_share: float


class CostLine(Record):
    """quantity x unit price. ``usd`` is ``None`` where a factor is not known: named, never summed."""

    name: str
    quantity: float | None
    unit: str
    usd_per_unit: Decimal | None
    usd: Band | None
    note: str = ""


class WholeRun(Record):
    """A whole training: hours of wall clock, GPU hours, and cost where the price is known."""

    hours: Band
    gpu_hours: Band
    cost_usd: Band | None


class Estimate(Record):
    """The answer for one run. What could not be answered is ``None``, with a warning that says why."""

    run: Run
    memory: MemoryEstimate | None
    speed: SpeedEstimate | None
    whole: WholeRun | None = None
    warnings: tuple[str, ...] = ()


class Candidate(Record):
    """A layout on an offer, judged. ``why`` says what keeps a ``tight`` or ``over`` one from being ``ok``."""

    id: str
    rank: int
    verdict: Verdict
    why: str
    offer: Offer
    num_nodes: int
    run: Run
    memory: MemoryEstimate
    speed: SpeedEstimate
    hours: Band
    cost_usd: Band
    cost_is_complete: bool
    cost_lines: tuple[CostLine, ...]
    warnings: tuple[str, ...] = ()


class Miss(Record):
    """The loser that came nearest, in figures; ``None`` = not what it lost by, or not known.

    ``needed_bytes`` and ``usable_bytes``: of a GPU's memory, or of a node's where the reason is host-memory.
    ``layout``: its best one, or the one that needs least; ``None`` where it has no legal layout.
    """

    provider: str
    instance_type: str
    region: str
    market: Market
    gpu: str
    num_gpus: int
    num_nodes: int
    layout: Layout | None
    needed_bytes: float | None
    usable_bytes: float | None
    hours: Band | None
    cost_usd: Band | None


class Rejection(Record):
    """Candidates that lost for one reason: how many, the nearest miss, and the flags that would save it.

    ``rescue_verdict``: what the search answered with those flags, ``ok`` or ``tight``.
    """

    reason: RejectionReason
    count: int
    nearest: str
    rescue: str | None
    miss: Miss | None = None
    rescue_verdict: Verdict | None = None


class Dot(Record):
    """One candidate in a few words: its best layout's time and cost, and why it lost (empty: it did not)."""

    hours: float
    usd: float
    name: str
    verdict: Verdict
    reason: str


class OnDemand(Record):
    """The run of a spot candidate on the same machine on demand; ``None`` where no such price is listed."""

    id: str
    rank: int
    usd_per_hour: Decimal | None
    region: str | None
    hours: Band | None
    cost_usd: Band | None


class SkippedProvider(Record):
    """A provider whose offers were not considered, and why."""

    provider: str
    reason: str


class Suggestion(Record):
    """What ``plan suggest`` answers: the ranked choices and what became of everything else.

    ``on_demand``: where all choices are spot, what each would cost on demand.
    """

    schema_version: int = 1
    model: ModelSpec
    training: TrainingSpec
    goal: Goal
    assumptions: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    rescues: tuple[str, ...]
    skipped_providers: tuple[SkippedProvider, ...]
    num_offers: int
    num_layouts: int
    layouts_by_family: dict[str, int]
    num_fitting: int = 0
    field: tuple[Dot, ...] = ()
    on_demand: tuple[OnDemand, ...] = ()


class Plan(Record):
    """A chosen candidate with its prices frozen. ``id`` is a hash of the content."""

    schema_version: int = 1
    id: str
    created: datetime
    command: str
    candidate: Candidate
