"""Peak memory of a process on a CPU: what it held above its baseline, read from Linux.

glibc keeps what was freed: without ``MALLOC_ENV`` a process of sharded weights looks as large as one of whole
ones. With it freed blocks go back at once, and steps get slower: memory and time are measured in two
worker groups. Figures: proc_pid_status(5), clear_refs of proc_pid_clear_refs(5), getrlimit(2).
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

KIB = 1024
STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
CGROUP = Path("/sys/fs/cgroup")
RESET_PEAK = "5"

MALLOC_ENV = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of a process: resident, of it pages of files (code that was loaded), and the peak of resident."""

    resident: int
    files: int
    peak: int


def held() -> Held:
    """Read this process's memory. Raises ``OSError`` where there is no Linux ``/proc``."""
    return Held(_status("VmRSS"), _status("RssFile"), _status("VmHWM"))


def reset_peak() -> None:
    """Let the peak begin at what is held now."""
    CLEAR_REFS.write_text(RESET_PEAK)


def peak_above(baseline: Held) -> int:
    """Bytes at the peak above ``baseline``, without code that was loaded since."""
    now = held()
    return max(now.peak - baseline.resident - max(now.files - baseline.files, 0), 0)


def _status(name: str) -> int:
    """Bytes of one line of ``/proc/self/status``."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * KIB
    raise OSError(f"{STATUS} has no {name}")


def free_bytes() -> int:
    """Bytes that this process can still get: of the machine, its control group and its own limit."""
    most = [_available(), *_cgroup_room()]
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY:
        most.append(soft - _status("VmData"))
    return max(min(most), 0)


def _available() -> int:
    """Bytes that Linux can hand out without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIB
    raise OSError("/proc/meminfo has no MemAvailable")


def _cgroup_room() -> list[int]:
    """What the control group (version 2) leaves, where it has a limit. Cached pages of files can go."""
    most, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if not most.exists() or not used.exists() or most.read_text().strip() == "max":
        return []
    lines = (CGROUP / "memory.stat").read_text().splitlines()
    cached = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    return [int(most.read_text()) - int(used.read_text()) + cached]


def limit(bytes_: float) -> None:
    """Let this process hold ``bytes_`` more than now, and no more."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + int(bytes_), hard))


def lift_limit() -> None:
    """Lift a limit of ``limit``: an error needs memory to be told."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
