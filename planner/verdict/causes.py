"""What most likely keeps machines from what was planned, from what was read on them."""

from __future__ import annotations

from collections.abc import Sequence

from planner.probed import Check, ProbeResult, Reading
from planner.units import gb_per_s
from planner.verdict import words
from planner.verdict.machine import slow_hosts
from planner.verdict.step import slowest_rank

# what a reading's name holds -> what it does to speed, the most telling first
_TELLING = (
    ("transport", "the network is not used as planned"),
    ("p2p", "GPUs talk through host memory"),
    ("peer", "GPUs talk through host memory"),
    ("nvlink", "NVLink is not all there"),
    ("nic", "the network is not the one planned"),
    ("pcie", "the slot of a GPU is slower than planned"),
    ("throttl", "GPUs are slowed down"),
    ("clock", "clocks are low"),
    ("shared memory", "shared memory is short"),
)
_OF_SPEED = ("busbw", "step time", "slowest", "cost of the run", "time of the run")
_OF_MEMORY = ("memory", "OOM", "alloc")


def likely_cause(result: ProbeResult, checks: Sequence[Check]) -> str:
    """One sentence, empty where nothing failed or nothing points anywhere."""
    failed = [check.name for check in checks if check.passed is False]
    if any(word in name for name in failed for word in _OF_SPEED):
        return _of_speed(result)
    if any(word in name for name in failed for word in _OF_MEMORY):
        return _of_reading(result, (("memory", "memory of a GPU is not all there"),))
    return ""


def _of_speed(result: ProbeResult) -> str:
    hosts = slow_hosts(result)
    if hosts:
        slowest = min(result.pairs, key=lambda p: p.busbw_bytes_per_s)
        fastest = max(p.busbw_bytes_per_s for p in result.pairs)
        return (
            f"the network of {' or '.join(hosts)} is slow: {gb_per_s(slowest.busbw_bytes_per_s)}, "
            f"where the fastest pair reaches {gb_per_s(fastest)}"
        )
    read = _of_reading(result, _TELLING)
    if read:
        return read
    if result.steps is not None and len(result.steps.median_s_by_rank) > 1:
        rank, ratio = slowest_rank(result.steps)
        if ratio > 1.05:
            return f"{words.rank_at(result, rank)} is slower than the others"
    return ""


def _of_reading(result: ProbeResult, telling: Sequence[tuple[str, str]]) -> str:
    """The first failed reading that tells something, with the node that it was read on."""
    for word, meaning in telling:
        for each in result.hardware:
            found = next((r for r in each.readings if _is_about(r, word)), None)
            if found is not None:
                seen = found.why or f"{found.value}, not {found.expected}"
                return f"{meaning} ({found.name} on {each.host}: {seen})"
    return ""


def _is_about(reading: Reading, word: str) -> bool:
    return reading.passed is False and word in reading.name.lower()
