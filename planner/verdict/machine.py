"""Checks of the machines and their links: ranks, readings, collectives."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from planner.hardware.expected import (
    expected_busbw_bytes_per_s,
    slow_ranks,
    wire_busbw_bytes_per_s,
)
from planner.probed import Check, CollectiveTiming, PairTiming, ProbeResult, RankHardware
from planner.types import Band
from planner.verdict import cpu, words
from planner.verdict.limits import limit
from planner.verdict.own import OwnCollective, own_collectives
from planner.verdict.subject import Subject

_MOST_NAMED = 4
_SCOPES = {"node": " in a node", "between-nodes": " between nodes", "all": ""}


def hardware(subject: Subject, result: ProbeResult) -> Iterator[Check]:
    """Every rank is there, on what was planned, and every reading of it is as it should be."""
    if not result.hardware:
        yield words.not_measured("hardware", "count", result, "hardware")
        return
    found = len(result.hardware)
    on_gpu = [each for each in result.hardware if each.backend == "nccl"]
    kind_is_right = subject.on_cpu or len(on_gpu) == found
    yield Check(
        name="ranks",
        predicted=_exactly(subject.num_ranks),
        measured=float(found),
        limit=float(subject.num_ranks),
        unit="count",
        passed=found == subject.num_ranks and kind_is_right,
        why="" if kind_is_right else f"the plan is for {subject.run.shape.gpu}, {found} ranks have no GPU",
    )
    judged = [r for each in result.hardware for r in each.readings if r.passed is not None]
    failed = sum(r.passed is False for r in judged)
    yield Check(
        name="hardware readings",
        predicted=_exactly(len(judged)),
        measured=float(len(judged) - failed),
        limit=float(len(judged)),
        unit="count",
        passed=failed == 0,
        why=_failed_readings(result.hardware),
    )


def _exactly(value: float) -> Band:
    return Band(low=value, mid=value, high=value)


def _failed_readings(ranks: tuple[RankHardware, ...]) -> str:
    """Say which readings failed, on which nodes, the same reason once."""
    failed = [
        (f"{r.name}: {r.why or f'{r.value}, not {r.expected}'}", each.host)
        for each in ranks
        for r in each.readings
        if r.passed is False
    ]
    said = []
    for what, group in groupby(sorted(set(failed)), key=lambda pair: pair[0]):
        hosts = [host for _, host in group]
        named = ", ".join(hosts[:_MOST_NAMED]) + (
            f" and {len(hosts) - _MOST_NAMED} more" * (len(hosts) > _MOST_NAMED)
        )
        said.append(f"{named}: {what}")
    return "; ".join(said)


def collectives(subject: Subject, result: ProbeResult) -> Iterator[Check]:
    """Every value right; the plan's own sizes, and the largest AllReduce, as fast as expected."""
    if subject.num_ranks == 1 and result.num_ranks == 1:
        return
    if not result.collectives:
        yield words.not_measured("collectives", "bytes/s", result, "collectives")
        return
    yield _values(result)
    for own in own_collectives(subject.run):
        timed = [t for t in result.collectives if t.op == own.op and t.purpose == own.purpose]
        if timed:
            for timing in timed:
                yield _bandwidth(subject, timing)
        else:
            yield _not_timed(subject, own, result)
    for timing in _largest(result):
        yield _bandwidth(subject, timing)
    pairs = _between_nodes(result)
    if pairs:
        yield _slowest_pair(pairs, result)


def _values(result: ProbeResult) -> Check:
    """No rank was left with a wrong value."""
    wrong = [t for t in result.collectives if not t.correct]
    named = [f"{words.OPERATIONS[t.op]} of {t.bytes} bytes{_on(t.wrong_ranks)}" for t in wrong[:_MOST_NAMED]]
    return Check(
        name="wrong values",
        predicted=_exactly(0.0),
        measured=float(len(wrong)),
        limit=limit("wrong_values"),
        unit="count",
        passed=len(wrong) <= limit("wrong_values"),
        why=", ".join(named),
    )


def _on(ranks: tuple[int, ...]) -> str:
    return f" on rank {', '.join(map(str, ranks))}" if ranks else ""


def _largest(result: ProbeResult) -> list[CollectiveTiming]:
    """The largest AllReduce of the sweep, over each kind of group."""
    swept = [t for t in result.collectives if t.op == "all_reduce" and not t.purpose]
    by_scope = {t.scope: t for t in sorted(swept, key=lambda t: t.bytes)}
    return list(by_scope.values())


def expected_and_wire(subject: Subject, timing: CollectiveTiming) -> tuple[float | None, float | None]:
    """Bus bandwidth that is expected of a collective, and the most that its wire allows, bytes/s."""
    shape, inside = subject.run.shape, max(1, round(timing.ranks / timing.nodes))
    expected = expected_busbw_bytes_per_s(
        timing.op, timing.bytes, timing.ranks, inside, shape.links, shape.gpus_per_node
    )
    return expected, wire_busbw_bytes_per_s(timing.op, timing.ranks, inside, shape.links)


def _bandwidth(subject: Subject, timing: CollectiveTiming) -> Check:
    """Bus bandwidth of one collective against its expectation, and against the wire."""
    expected, wire = expected_and_wire(subject, timing)
    measured = timing.busbw_bytes_per_s
    drawn = Check(
        name=f"{words.OPERATIONS[timing.op]} busbw{_SCOPES[timing.scope]}, {timing.purpose or 'largest'}",
        predicted=None if expected is None else _exactly(expected),
        measured=measured,
        limit=None,
        unit="bytes/s",
        passed=None,
        why=cpu.NO_SPEED if subject.on_cpu else "nobody states this link: nothing is expected of it",
    )
    if expected is None:
        return drawn
    least = expected * limit("busbw_share")
    too_fast = wire is not None and measured > wire * limit("wire_share")
    said = "faster than the wire: the link is not the one planned, or the clock is wrong" if too_fast else ""
    judged = {"limit": least, "passed": measured >= least and not too_fast, "why": said}
    return drawn.model_copy(update=judged)


def _not_timed(subject: Subject, own: OwnCollective, result: ProbeResult) -> Check:
    """A collective of the plan's own step that was not timed fails, but where bandwidth is only shown."""
    why = next((s.why for s in result.skipped if s.op == own.op and s.bytes == own.bytes), None)
    name = f"{words.OPERATIONS[own.op]} busbw, {own.purpose}"
    missing = words.not_measured(name, "bytes/s", result, "collectives")
    if why is None:
        return missing
    passed = None if subject.on_cpu else False
    return missing.model_copy(update={"why": f"not measured: {why}", "passed": passed})


def _between_nodes(result: ProbeResult) -> list[PairTiming]:
    """Pairs of ranks on different nodes, slowest first."""
    node = {each.rank: each.node for each in result.hardware}
    apart = [p for p in result.pairs if node.get(p.rank_a) != node.get(p.rank_b)]
    return sorted(apart, key=lambda p: p.busbw_bytes_per_s)


def _slowest_pair(pairs: list[PairTiming], result: ProbeResult) -> Check:
    """Nodes reach each other alike: the slowest pair against the fastest."""
    slowest, fastest = pairs[0], pairs[-1].busbw_bytes_per_s
    least = fastest * limit("pair_share")
    named = " and ".join(words.rank_at(result, r) for r in (slowest.rank_a, slowest.rank_b))
    return Check(
        name="slowest pair of nodes",
        predicted=None,
        measured=slowest.busbw_bytes_per_s,
        limit=least,
        unit="bytes/s",
        passed=slowest.busbw_bytes_per_s >= least,
        why=named,
    )


def slow_hosts(result: ProbeResult) -> tuple[str, ...]:
    """Hosts of ranks that are slow with every partner, slowest first."""
    node = {each.rank: each.node for each in result.hardware}
    pairs = [p for p in result.pairs if p.rank_a in node and p.rank_b in node]
    return tuple(dict.fromkeys(words.host_of(result, r) or f"rank {r}" for r in slow_ranks(pairs, node)))
