"""What a probe is asked to do: one JSON file, written by whoever starts it, read on the cluster.

Only the standard library is imported. The planner's side fills in what the plan expects; here nothing is
looked up: what is ``None`` is not expected, is read all the same, and is judged by nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args

from .results import Collective

Phase = Literal["hardware", "collectives", "memory", "steps"]
PHASES: tuple[Phase, ...] = ("hardware", "collectives", "memory", "steps")
MIN_STEPS = 6

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCollective:
    """A collective that the plan's own step runs: its size as nccl-tests counts it, and what it is for."""

    op: Collective
    bytes: int
    purpose: str  # "gradient bucket", "all-gather of one layer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the plan takes every node and rank to be. ``None`` or empty: nothing is expected of it.

    ``gpu_names``: every name under which the driver may report the GPU. ``usable_memory_bytes``: as torch
    reports it. ``transport``: how NCCL should cross nodes, or gloo everything.
    """

    gpu: str | None = None
    gpu_names: tuple[str, ...] = ()
    gpus_per_node: int | None = None
    num_nodes: int | None = None
    usable_memory_bytes: float | None = None
    ecc: bool | None = None
    pcie_gen: float | None = None
    pcie_lanes: int | None = None
    link: str | None = None
    nvlink: bool | None = None
    peer_to_peer: bool | None = None
    transport: Literal["efa", "ib", "socket", "gloo"] | None = None
    num_nics: int | None = None
    nic_gbit_per_s: float | None = None
    versions: dict[str, str] = field(default_factory=dict)  # "ray", "torch", "python": as the plan pins them


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """One probe of one plan.

    ``plan``: content of ``plan.json`` (``spec.read_plan`` takes its run). ``num_params``: what the planner
    counts; another count on the real model fails the probe. ``predicted_bytes``: upper end of predicted
    peak memory of the fullest rank, for the whole model. ``scale``: ``none`` runs all layers, ``auto`` cuts
    them where the model cannot fit or a step would take more than ``max_step_s``, a number says how many.
    ``memory_limit_bytes``: what a rank may hold; ``None`` = what the machine has. ``repeat``: collectives
    and steps are measured so often; medians are over all. ``entrypoint``: ``module:function`` of the user's
    own loop in place of the plan's step (``entrypoint.py``). ``min_busbw_bytes_per_s``: an all-reduce of the
    largest size over all ranks below it has its pairs timed one by one; ``None``: pairs are timed wherever
    there are several nodes. ``collectives_s``: seconds that all collectives may take, ``None`` = 12 s over
    gloo on one node, else 60 s.
    """

    schema_version: int = 1
    plan: dict[str, Any]
    num_params: int | None = None
    phases: tuple[Phase, ...] = PHASES
    use_gpu: bool
    num_workers: int
    collectives: tuple[PlanCollective, ...] = ()
    max_collective_bytes: int | None = None  # None: 1 GiB over NCCL, 64 MiB over gloo
    collectives_s: float | None = None
    min_busbw_bytes_per_s: float | None = None
    expected: Expected = field(default_factory=Expected)
    predicted_bytes: float | None = None
    memory_limit_bytes: float | None = None
    scale: str = "none"
    max_step_s: float = 5.0
    num_steps: int = MIN_STEPS
    warmup_steps: int = 2
    repeat: int = 1
    check_precision: bool = False
    entrypoint: str | None = None
    probe_timeout_s: float = 600.0
    collective_timeout_s: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be run. Raises ``ValueError`` naming the field."""
        wrong = _wrong(self)
        if wrong:
            raise ValueError(f"probe request: {wrong}")

    @property
    def layers(self) -> int | None:
        """Layers to run where ``scale`` names their number."""
        return int(self.scale) if self.scale.isdecimal() else None

    @property
    def backend(self) -> Literal["nccl", "gloo"]:
        """Process-group backend."""
        return "nccl" if self.use_gpu else "gloo"


def _wrong(request: ProbeRequest) -> str | None:
    """Say the first field that makes no sense, ``None`` where all do."""
    unknown = [phase for phase in request.phases if phase not in PHASES]
    if unknown or not request.phases:
        return f"phases {list(request.phases)}: some of {', '.join(PHASES)}"
    if request.scale not in ("none", "auto") and not (request.layers or 0) >= 1:
        return f"scale {request.scale!r}: none, auto, or a number of layers"
    if request.num_steps < MIN_STEPS:
        return f"num_steps {request.num_steps}: at least {MIN_STEPS}"
    if request.entrypoint is not None and not all(request.entrypoint.partition(":")):
        return f"entrypoint {request.entrypoint!r}: module:function"
    for name, least in (("num_workers", 1), ("repeat", 1), ("warmup_steps", 0)):
        if getattr(request, name) < least:
            return f"{name} {getattr(request, name)}: at least {least}"
    for name in ("probe_timeout_s", "collective_timeout_s", "max_step_s"):
        if getattr(request, name) <= 0:
            return f"{name} {getattr(request, name)}: more than 0"
    known = get_args(Collective)
    return next((f"collective {c.op!r} is not known" for c in request.collectives if c.op not in known), None)


def to_json(request: ProbeRequest) -> str:
    """Write a request as JSON."""
    return json.dumps(asdict(request), allow_nan=False)


def from_json(text: str) -> ProbeRequest:
    """Read a request. Raises ``ValueError`` for what is not one, naming the field."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("probe request: not a JSON object")
    sizes = tuple(_record(PlanCollective, item) for item in values.get("collectives", ()))
    told = dict(values.get("expected", {}))
    told["gpu_names"] = tuple(told.get("gpu_names", ()))
    parts = {"collectives": sizes, "expected": _record(Expected, told)}
    if "phases" in values:
        parts["phases"] = tuple(values["phases"])
    return _record(ProbeRequest, values | parts)


def _record(kind: type[R], values: Mapping[str, Any]) -> R:
    """Build ``kind`` from ``values``; an unknown or missing field is an error by its name."""
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(known))
    needed = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in values]
    if unknown or missing:
        said = f"unknown field {unknown[0]!r}" if unknown else f"no field {missing[0]!r}"
        raise ValueError(f"probe request: {said} in {kind.__name__}")
    return kind(**values)
