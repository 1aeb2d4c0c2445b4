"""Judged rows -> candidates: the full estimates, cost lines and words of the few that are shown."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from planner import answers
from planner.cost import Work
from planner.cost.lines import Cost, cost_lines
from planner.grouping import Index
from planner.hardware.links import warnings_of
from planner.layouts import layout_of
from planner.memory.host import loads_or_offloads
from planner.results import Candidate, MemoryEstimate, SpeedEstimate
from planner.search import verdicts
from planner.search.market import shape_of
from planner.search.question import Outcome
from planner.search.verdicts import REASONS, Judged
from planner.trust import nearness
from planner.types import Band, Goal, Offer, Run, TrainingSpec
from planner.units import gib, gib_number, hours, percent, usd

OWN_STEP = "plan"
NO_PRICE = Band(low=0.0, mid=0.0, high=0.0)


def candidates(of: Outcome, rows: Index, judged: Judged | None = None) -> tuple[Candidate, ...]:
    """Make the candidates of judged rows, in their order, ranked from 1."""
    table = of.judged if judged is None else judged
    runs = [_run(of, table, int(row)) for row in rows]
    estimates = answers.evaluate(runs, of.question.known)
    return tuple(
        _candidate(of, table, int(row), rank, run, *estimate)
        for rank, (row, run, estimate) in enumerate(zip(rows, runs, estimates, strict=True), 1)
    )


def offer_of(of: Outcome, judged: Judged, row: int) -> Offer:
    """Offer of a judged row."""
    return of.market.offers[int(of.market.offer[judged.listing[row]])]


def _run(of: Outcome, judged: Judged, row: int) -> Run:
    """Run of a judged row: the layout picked for it, on nodes of its offer."""
    picks, pick = of.found.picks, int(judged.pick[row])
    offer, nodes = offer_of(of, judged, row), int(of.market.num_nodes[judged.listing[row]])
    return Run.model_construct(
        id=f"{nodes}x-{offer.provider}-{offer.instance_type}".lower().replace(" ", "-"),
        model=of.question.model,
        training=of.found.variants[int(picks.variant[pick])],
        layout=layout_of(picks.table, pick),
        shape=shape_of(offer, nodes),
    )


def _candidate(
    of: Outcome,
    judged: Judged,
    row: int,
    rank: int,
    run: Run,
    in_memory: MemoryEstimate,
    in_time: SpeedEstimate,
) -> Candidate:
    """Make the record of one row."""
    offer = offer_of(of, judged, row)
    priced = price_run(run, in_time, offer)
    verdict = verdicts.VERDICTS[int(judged.verdict[row])]
    reason = REASONS[int(judged.reason[row])] if judged.reason[row] >= 0 else ""
    return Candidate.model_construct(
        id=candidate_id(offer, run),
        rank=rank,
        verdict=verdict,
        why="" if verdict == "ok" else why(of.question.goal, reason, offer, in_memory, in_time, priced),
        offer=offer,
        num_nodes=run.shape.num_nodes,
        run=run,
        memory=in_memory,
        speed=in_time,
        hours=priced.hours,
        cost_usd=priced.usd or NO_PRICE,
        cost_is_complete=priced.is_complete,
        cost_lines=priced.lines,
        warnings=_warnings(of, run, offer, in_memory),
    )


def candidate_id(offer: Offer, run: Run) -> str:
    """Hash of what is rented and what runs on it: ``p-`` and twelve hexadecimal digits."""
    content = offer.model_dump_json() + run.model_dump_json(exclude={"id"})
    return f"p-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def work_of_run(run: Run) -> Work:
    """Count what one run does, for its cost."""
    nodes, per_node = float(run.shape.num_nodes), float(run.shape.gpus_per_node)
    layout, training = run.layout, run.training
    step_tokens = layout.micro_batch * layout.grad_accum * layout.dp * training.seq_len
    num_steps = np.ceil(np.asarray((training.num_tokens or 0.0) / step_tokens))
    return verdicts.work_of(run.model, training, num_steps, np.asarray(nodes), np.asarray(per_node))


def price_run(run: Run, in_time: SpeedEstimate, offer: Offer) -> Cost:
    """Hours and cost of a whole run on nodes of an offer."""
    return cost_lines(in_time.step_s, work_of_run(run), offer)


# ---------------------------------------------------------------------------------- words


def why(
    goal: Goal,
    reason: str,
    offer: Offer,
    in_memory: MemoryEstimate,
    in_time: SpeedEstimate,
    priced: Cost,
) -> str:
    """Say what keeps a row from being ``ok``: every limit that its mid values or high ends break."""
    said: list[str] = []
    usable = in_memory.usable_bytes or 0.0
    need, held = in_memory.device_bytes, in_memory.reserved_bytes.mid
    if max(need.mid, in_memory.load_bytes) > usable:
        said.append(f"needs {gib_number(max(need.mid, in_memory.load_bytes))} of {gib(usable)}")
    elif need.high > usable:
        said.append(f"memory may reach {gib_number(need.high)} of {gib(usable)}")
    elif held > usable * (1.0 - goal.headroom):
        said.append(f"less than {percent(goal.headroom)} of the memory stays free")
    if reason == "link":
        said.append(f"waits for {in_time.limiting_link} {percent(in_time.limiting_link_share)} of the step")
    if reason == "host-memory":
        said.append(f"needs {gib(in_memory.host_bytes)} of host memory per node")
    if host_unknown(offer, in_memory):
        said.append(_host_words(in_memory))
    if reason == "stage":
        said.append(_stage_words(offer))
    said += _over(priced.usd, None if goal.budget_usd is None else float(goal.budget_usd), "costs", usd)
    deadline_h = None if goal.deadline_s is None else goal.deadline_s / 3600.0
    said += _over(priced.hours, deadline_h, "takes", hours)
    return "; ".join(said)


def host_unknown(offer: Offer, in_memory: MemoryEstimate) -> bool:
    """Whether a run loads or offloads into host memory that the offer does not state."""
    needed = bool(loads_or_offloads(in_memory.host_bytes, offer.gpus_per_node))
    return offer.host_memory_bytes is None and needed


def _host_words(in_memory: MemoryEstimate) -> str:
    """Say what the host must have."""
    return f"needs {gib(in_memory.host_bytes)} of host memory per node; the offer does not say what it has"


def _stage_words(offer: Offer) -> str:
    """Say what the production stage does not accept."""
    return "spot without checkpoints" if offer.market == "spot" else f"{offer.gpu} has no ECC, for over a day"


def _over(value: Band | None, limit: float | None, verb: str, show: Callable[[float], str]) -> list[str]:
    """Say by how much a band is over a limit."""
    if value is None or limit is None or value.high <= limit:
        return []
    if value.mid > limit:
        return [f"{verb} {show(value.mid)}, {show(value.mid - limit)} over"]
    return [f"{verb} up to {show(value.high)}, {show(value.high - limit)} over"]


def _warnings(of: Outcome, run: Run, offer: Offer, in_memory: MemoryEstimate) -> tuple[str, ...]:
    """Say what the user must know of a candidate beyond its figures."""
    shape = run.shape
    said = list(nearness.warnings(shape.gpu, of.question.known))
    if shape.num_gpus > 1:
        said += warnings_of(shape.links)
    if run.training.optimizer != of.training.optimizer:
        said.append(f"{run.training.optimizer} states change the numerics")
    if offer.host_memory_bytes is None and not host_unknown(offer, in_memory):  # else it stands in ``why``
        said.append(_host_words(in_memory))
    said += _batch_warning(of.training, run)
    if run.training.framework == OWN_STEP and (needed := frameworks_for(run)):
        said.append(needed)
    if offer.market == "spot":
        said.append("spot: save checkpoints off the machine, it may be taken away (plan cluster --storage)")
    if offer.not_included:
        said.append(f"listed price without {', '.join(offer.not_included)}; cost lines add what is known")
    return tuple(said)


def frameworks_for(run: Run) -> str | None:
    """Say what our own training step does not do of a run (``clusters/probe/refusals.py``), or ``None``."""
    layout, training = run.layout, run.training
    whole_weights = layout.zero_stage < 3 and (layout.dp > 1 or layout.zero_stage > 0)
    missing = {
        "context parallel": layout.cp > 1,
        "expert parallel": layout.ep > 1,
        "tensor or pipeline parallel without FSDP": max(layout.tp, layout.pp) > 1 and whole_weights,
        "ZeRO stage 2": layout.zero_stage == 2,
        "offload": layout.offload != "none" or layout.activation_offload,
        "QLoRA": training.method == "qlora",
        "fp8": training.precision == "fp8",
    }
    named = [name for name, is_missing in missing.items() if is_missing]
    if not named:
        return None
    return f"{', '.join(named)}: needs a framework that has it, our own training step refuses it"


def _batch_warning(asked: TrainingSpec, run: Run) -> list[str]:
    """Say where the batch was rounded to suit the GPUs."""
    layout = run.layout
    made = layout.micro_batch * layout.grad_accum * layout.dp
    wanted = round((asked.global_batch_tokens or 0) / asked.seq_len)
    return [] if made == wanted else [f"global batch {made} sequences, not {wanted}, to suit the GPUs"]
