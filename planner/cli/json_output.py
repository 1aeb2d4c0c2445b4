"""The documents that ``--json`` prints: what scripts rely on. Add fields freely; rename none.

Memory is in GiB, time in seconds or hours as the name says, money a string of decimal digits except in bands.
A band is ``{"low", "mid", "high"}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from planner.cli.describe import num_params
from planner.cli.json_rejections import RejectionDocument, rejection_document
from planner.guide.moving import Moving
from planner.results import (
    Candidate,
    CostLine,
    Estimate,
    MemoryEstimate,
    MemoryParts,
    OnDemand,
    Plan,
    SkippedProvider,
    SpeedEstimate,
    SpeedParts,
    Suggestion,
    WholeRun,
)
from planner.types import (
    Band,
    Gpu,
    Layout,
    Links,
    ModelSpec,
    Offer,
    PeakAt,
    Record,
    Shape,
    TrainingSpec,
    Verdict,
)
from planner.units import GIB

SCHEMA_VERSION = 1


class ModelDocument(ModelSpec):
    """The model, with its exact number of parameters."""

    num_params: int


class MemoryDocument(Record):
    """Peak memory of the fullest GPU, in GiB. The parts add up to the middle of ``device_gib``."""

    allocated_gib: Band
    reserved_gib: Band
    device_gib: Band
    parts_gib: MemoryParts
    peak_at: PeakAt
    usable_gib: float | None
    fits: bool | None
    safe: bool | None
    host_gib: float
    load_gib: float


class SpeedDocument(Record):
    """Speed of an optimizer step. The parts add up to the middle of ``step_s``."""

    step_s: Band
    tokens_per_s_per_gpu: Band
    mfu: float
    hfu: float
    parts_s: SpeedParts
    limiting_link: str | None
    limiting_link_share: float


class OfferDocument(Record):
    """One node of the offer; the price is of the node, never of a GPU."""

    provider: str
    instance_type: str
    region: str
    zone: str | None
    market: str
    gpu: str
    gpus_per_node: int
    links: Links
    usd_per_hour: str | None
    unknown_why: str | None
    price_seen: datetime | None
    source: str
    origin: str
    not_included: tuple[str, ...]


class CostLineDocument(Record):
    """quantity x unit price; ``usd`` is null where a factor is not known, and is then not in the sum."""

    name: str
    quantity: float | None
    unit: str
    usd_per_unit: str | None
    usd: Band | None
    note: str


class CandidateDocument(Record):
    """A layout on an offer, judged. It is itself a line that ``plan estimate --runs`` reads."""

    id: str
    rank: int
    verdict: Verdict
    why: str
    offer: OfferDocument
    shape: Shape
    model: ModelDocument
    training: TrainingSpec
    layout: Layout
    memory: MemoryDocument
    speed: SpeedDocument
    hours: Band
    cost_usd: Band
    cost_is_complete: bool
    cost_lines: tuple[CostLineDocument, ...]
    warnings: tuple[str, ...]


class SuggestDocument(Record):
    """``plan suggest --json``: one document on stdout."""

    schema_version: int
    model: ModelDocument
    training: TrainingSpec
    budget_usd: str | None
    deadline_s: float | None
    headroom: float
    assumptions: tuple[str, ...]
    candidates: tuple[CandidateDocument, ...]
    rejections: tuple[RejectionDocument, ...]
    rescues: tuple[str, ...]
    skipped_providers: tuple[SkippedProvider, ...]
    num_offers: int
    num_layouts: int
    layouts_by_family: dict[str, int]
    on_demand: tuple[OnDemand, ...] = ()
    moving: Moving | None = None


class EstimateDocument(Record):
    """``plan estimate --json``: one line for each run; an error leaves the rest null."""

    schema_version: int
    id: str
    error: str | None
    model: ModelDocument | None = None
    training: TrainingSpec | None = None
    shape: Shape | None = None
    layout: Layout | None = None
    memory: MemoryDocument | None = None
    speed: SpeedDocument | None = None
    whole: WholeRun | None = None
    warnings: tuple[str, ...] = ()


class PlanDocument(Record):
    """A saved plan; ``candidate`` is as ``plan suggest --json`` printed it."""

    schema_version: int
    id: str
    created: datetime
    command: str
    candidate: CandidateDocument


class PlansDocument(Record):
    """``plan ls --plans --json``."""

    schema_version: int
    plans: tuple[PlanDocument, ...]


class GpuDocument(Gpu):
    """A GPU with its cheapest offer in the catalog, null where there is none."""

    cheapest: OfferDocument | None


class GpusDocument(Record):
    """``plan gpus --json``."""

    schema_version: int
    gpus: tuple[GpuDocument, ...]


# ------------------------------------------------------------------------------------- records to documents


def suggest_document(answer: Suggestion) -> SuggestDocument:
    """Document of a whole suggestion."""
    return SuggestDocument(
        schema_version=SCHEMA_VERSION,
        model=model_document(answer.model),
        training=answer.training,
        budget_usd=money(answer.goal.budget_usd),
        deadline_s=answer.goal.deadline_s,
        headroom=answer.goal.headroom,
        assumptions=answer.assumptions,
        candidates=tuple(candidate_document(c) for c in answer.candidates),
        rejections=tuple(rejection_document(r) for r in answer.rejections),
        rescues=answer.rescues,
        skipped_providers=answer.skipped_providers,
        num_offers=answer.num_offers,
        num_layouts=answer.num_layouts,
        layouts_by_family=answer.layouts_by_family,
        on_demand=answer.on_demand,
    )


def candidate_document(c: Candidate) -> CandidateDocument:
    """Document of one candidate."""
    return CandidateDocument(
        id=c.id,
        rank=c.rank,
        verdict=c.verdict,
        why=c.why,
        offer=_offer(c.offer),
        shape=c.run.shape,
        model=model_document(c.run.model),
        training=c.run.training,
        layout=c.run.layout,
        memory=memory_document(c.memory),
        speed=speed_document(c.speed),
        hours=c.hours,
        cost_usd=c.cost_usd,
        cost_is_complete=c.cost_is_complete,
        cost_lines=tuple(_cost_line(line) for line in c.cost_lines),
        warnings=c.warnings,
    )


def estimate_document(answer: Estimate) -> EstimateDocument:
    """Document of one estimate."""
    run = answer.run
    return EstimateDocument(
        schema_version=SCHEMA_VERSION,
        id=run.id,
        error=None,
        model=model_document(run.model),
        training=run.training,
        shape=run.shape,
        layout=run.layout,
        memory=None if answer.memory is None else memory_document(answer.memory),
        speed=None if answer.speed is None else speed_document(answer.speed),
        whole=answer.whole,
        warnings=answer.warnings,
    )


def error_document(run_id: str, message: str, hint: str) -> EstimateDocument:
    """Document of a line that could not be answered."""
    text = f"{message}; hint: {hint}" if hint else message
    return EstimateDocument(schema_version=SCHEMA_VERSION, id=run_id, error=text)


def plans_document(plans: Iterable[Plan]) -> PlansDocument:
    """Document of saved plans."""
    found = tuple(
        PlanDocument(
            schema_version=SCHEMA_VERSION,
            id=p.id,
            created=p.created,
            command=p.command,
            candidate=candidate_document(p.candidate),
        )
        for p in plans
    )
    return PlansDocument(schema_version=SCHEMA_VERSION, plans=found)


def gpus_document(rows: Iterable[Gpu], cheapest: Mapping[str, Offer]) -> GpusDocument:
    """Document of the table of GPUs."""
    found = []
    for gpu in rows:
        offer = cheapest.get(gpu.id)
        best = None if offer is None else _offer(offer)
        found.append(GpuDocument.model_validate({**gpu.model_dump(), "cheapest": best}))
    return GpusDocument(schema_version=SCHEMA_VERSION, gpus=tuple(found))


def model_document(spec: ModelSpec) -> ModelDocument:
    """Document of a model."""
    return ModelDocument.model_validate({**spec.model_dump(), "num_params": num_params(spec)})


def memory_document(memory: MemoryEstimate) -> MemoryDocument:
    """Document of a memory estimate, bytes as GiB."""
    parts = {name: value / GIB for name, value in memory.parts_bytes}
    return MemoryDocument(
        allocated_gib=_gib(memory.allocated_bytes),
        reserved_gib=_gib(memory.reserved_bytes),
        device_gib=_gib(memory.device_bytes),
        parts_gib=MemoryParts.model_validate(parts),
        peak_at=memory.peak_at,
        usable_gib=None if memory.usable_bytes is None else memory.usable_bytes / GIB,
        fits=memory.fits,
        safe=memory.safe,
        host_gib=memory.host_bytes / GIB,
        load_gib=memory.load_bytes / GIB,
    )


def speed_document(speed: SpeedEstimate) -> SpeedDocument:
    """Document of a speed estimate."""
    return SpeedDocument(
        step_s=speed.step_s,
        tokens_per_s_per_gpu=speed.tokens_per_s_per_gpu,
        mfu=speed.mfu,
        hfu=speed.hfu,
        parts_s=speed.parts_s,
        limiting_link=speed.limiting_link,
        limiting_link_share=speed.limiting_link_share,
    )


def _offer(offer: Offer) -> OfferDocument:
    return OfferDocument(
        provider=offer.provider,
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        market=offer.market,
        gpu=offer.gpu,
        gpus_per_node=offer.gpus_per_node,
        links=offer.links,
        usd_per_hour=money(offer.usd_per_hour),
        unknown_why=offer.unknown_why,
        price_seen=offer.price_seen,
        source=offer.source,
        origin=offer.origin,
        not_included=offer.not_included,
    )


def _cost_line(line: CostLine) -> CostLineDocument:
    return CostLineDocument(
        name=line.name,
        quantity=line.quantity,
        unit=line.unit,
        usd_per_unit=money(line.usd_per_unit),
        usd=line.usd,
        note=line.note,
    )


def _gib(band: Band) -> Band:
    return Band(low=band.low / GIB, mid=band.mid / GIB, high=band.high / GIB)


def money(value: Decimal | None) -> str | None:
    """Write decimal digits without an exponent."""
    return None if value is None else f"{value:f}"
