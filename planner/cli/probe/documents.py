"""What ``plan probe --json`` prints, and what is saved of a probe. Add fields freely; rename none."""

from __future__ import annotations

from datetime import datetime
from statistics import median

from planner.probed import (
    Check,
    CollectiveTiming,
    Depth,
    Failure,
    PairTiming,
    PrecisionCheck,
    ProbePhase,
    ProbeResult,
    ProbeVerdict,
    RankHardware,
    RankMemory,
    Repriced,
    SkippedCollective,
)
from planner.results import Estimate
from planner.types import Record, Run
from planner.verdict import Subject
from planner.verdict.machine import expected_and_wire

SCHEMA_VERSION = 1


class CollectiveDocument(CollectiveTiming):
    """A timed collective with what was expected of it; ``None`` where nothing is."""

    backend: str
    expected_busbw_bytes_per_s: float | None
    wire_busbw_bytes_per_s: float | None


class StepsDocument(Record):
    """Seconds of each step of the slowest rank, tokens a second of all ranks; ``mfu`` is unknown on a CPU."""

    seconds: tuple[float, ...] = ()
    median_s_by_rank: tuple[float, ...] = ()
    loader_s: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None


class ProbeDocument(Record):
    """One probe: the verdict, and everything that was measured."""

    schema_version: int
    verdict: str
    checks: tuple[Check, ...]
    hardware: tuple[RankHardware, ...]
    collectives: tuple[CollectiveDocument, ...]
    memory: tuple[RankMemory, ...]
    steps: StepsDocument
    loss: tuple[float, ...]
    versions: dict[str, str]
    repriced: Repriced | None
    likely_cause: str
    advice: tuple[str, ...]
    plan_id: str | None
    run: Run
    phases: tuple[ProbePhase, ...]
    num_layers: int
    num_params: int | None
    started: datetime
    wall_s: float
    phase_s: dict[str, float]
    num_nodes: int
    num_ranks: int
    skipped: tuple[SkippedCollective, ...]
    pairs: tuple[PairTiming, ...]
    depths: tuple[Depth, ...]
    precision: PrecisionCheck | None
    failures: tuple[Failure, ...]


def document(
    subject: Subject, part: Estimate, result: ProbeResult, verdict: ProbeVerdict, plan_id: str | None
) -> ProbeDocument:
    """Put the document together. ``part``: the prediction for what ran."""
    backend = result.hardware[0].backend if result.hardware else "gloo" if subject.on_cpu else "nccl"
    found = [(t, expected_and_wire(subject, t)) for t in result.collectives]
    return ProbeDocument(
        schema_version=SCHEMA_VERSION,
        verdict=verdict.verdict,
        checks=verdict.checks,
        hardware=result.hardware,
        collectives=tuple(
            CollectiveDocument(
                **timing.model_dump(),
                backend=backend,
                expected_busbw_bytes_per_s=expected,
                wire_busbw_bytes_per_s=wire,
            )
            for timing, (expected, wire) in found
        ),
        memory=result.memory,
        steps=steps_of(subject, part, result),
        loss=result.steps.loss if result.steps else (),
        versions=result.versions,
        repriced=verdict.repriced,
        likely_cause=verdict.likely_cause,
        advice=verdict.advice,
        plan_id=plan_id,
        run=subject.run,
        phases=subject.phases,
        num_layers=result.num_layers,
        num_params=result.num_params,
        started=result.started,
        wall_s=result.wall_s,
        phase_s=result.phase_s,
        num_nodes=result.num_nodes,
        num_ranks=result.num_ranks,
        skipped=result.skipped,
        pairs=result.pairs,
        depths=result.depths,
        precision=result.precision,
        failures=result.failures,
    )


def steps_of(subject: Subject, part: Estimate, result: ProbeResult) -> StepsDocument:
    """Speed of the measured steps. MFU: the predicted one, by how much faster or slower the step was."""
    steps = result.steps
    if steps is None or not steps.seconds:
        return StepsDocument()
    middle = median(steps.seconds)
    speed = None if subject.on_cpu or subject.own_loop else part.speed
    return StepsDocument(
        seconds=steps.seconds,
        median_s_by_rank=steps.median_s_by_rank,
        loader_s=steps.loader_s,
        tokens_per_s=steps.tokens_per_step / middle,
        mfu=None if speed is None else speed.mfu * speed.step_s.mid / middle,
    )
