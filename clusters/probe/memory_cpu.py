"""Peak memory of a process on a CPU: what it held above its baseline, read from Linux.

glibc keeps what was freed: as it comes, a process of sharded weights looks as large as one of whole ones.
Told to (``keep_freed``), it gives freed blocks back at once, and steps get slower: memory and time are
measured in two passes. Memory comes first: blocks kept from before are used again, and stay.
Figures: proc_pid_status(5), proc_pid_clear_refs(5), getrlimit(2), mallopt(3).
"""

from __future__ import annotations

import ctypes
import resource
from dataclasses import dataclass
from pathlib import Path

KIB = 1024
STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
CGROUP = Path("/sys/fs/cgroup")
RESET_PEAK = "5"

# mallopt(3): numbers of malloc.h; what is set by hand no longer adapts itself
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
GIVING_BACK = {M_ARENA_MAX: 1, M_MMAP_THRESHOLD: 64 * KIB, M_TRIM_THRESHOLD: 64 * KIB}
# what the defaults grow to in a process that frees large blocks (DEFAULT_MMAP_THRESHOLD_MAX on 64 bits)
KEEPING = {M_ARENA_MAX: 64, M_MMAP_THRESHOLD: 32 * KIB * KIB, M_TRIM_THRESHOLD: 64 * KIB * KIB}


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of a process: resident, of it pages of files (code that was loaded), and the peak of resident."""

    resident: int
    files: int
    peak: int


def keep_freed(*, keep: bool) -> bool:
    """Let glibc keep freed blocks, or give them back at once; ``False``: the C library has no such knob."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(knob, value) == 1 for knob, value in (KEEPING if keep else GIVING_BACK).items())


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
