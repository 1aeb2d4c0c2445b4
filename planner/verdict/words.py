"""Failures and ranks in words, and checks of what could not be measured."""

from __future__ import annotations

from planner.probed import Check, Failure, ProbePhase, ProbeResult
from planner.units import gib

OPERATIONS = {
    "all_reduce": "AllReduce",
    "reduce_scatter": "ReduceScatter",
    "all_gather": "AllGather",
    "broadcast": "Broadcast",
    "scatter": "Scatter",
    "gather": "Gather",
    "all_to_all": "All-to-all",
    "send_recv": "send/receive",
}


def of_failure(failure: Failure) -> str:
    """Say what ended a phase early, with rank, node and bytes where they are known."""
    who = "a rank" if failure.rank is None else f"rank {failure.rank}"
    if failure.node is not None:
        who += f" on {failure.node}"
    if failure.kind == "oom":
        asked = "" if failure.bytes_asked is None else f": asked for {gib(failure.bytes_asked)}"
        free = "" if failure.bytes_free is None else f", {gib(failure.bytes_free)} free"
        return f"{who} ran out of memory{asked}{free}"
    said = {
        "worker-lost": f"the process of {who} is gone",
        "timeout": "time is over" if failure.rank is None else f"time is over for {who}",
        "hang": f"{who} hangs",
        "refused": "the step cannot run this plan",
        "wrong-count": "another number of parameters than planned",
        "error": f"error on {who}",
    }[failure.kind]
    return f"{said}: {failure.message}" if failure.message else said


def phase_of(failure: Failure) -> str:
    """Name the phase of a failure."""
    return f"{failure.phase} phase"


def why_not(result: ProbeResult, phase: ProbePhase) -> str:
    """Say why a phase measured nothing."""
    own = [f for f in result.failures if f.phase == phase]
    found = own or list(result.failures)
    if not found:
        return f"not measured: nothing came back from the {phase} phase"
    return f"not measured: {of_failure(found[0])}"


def not_measured(name: str, unit: str, result: ProbeResult, phase: ProbePhase) -> Check:
    """A check whose figure is missing: it failed, and says why."""
    return Check(
        name=name,
        predicted=None,
        measured=None,
        limit=None,
        unit=unit,
        passed=False,
        why=why_not(result, phase),
    )


def host_of(result: ProbeResult, rank: int) -> str | None:
    """Name of the node that a rank runs on, ``None`` where nobody said."""
    return next((each.host for each in result.hardware if each.rank == rank), None)


def rank_at(result: ProbeResult, rank: int) -> str:
    """``rank 3 on node-2``."""
    host = host_of(result, rank)
    return f"rank {rank}" if host is None else f"rank {rank} on {host}"
