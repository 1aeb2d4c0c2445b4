"""Readings of a node as a whole: how many GPUs it has, how they reach each other, what broke since boot."""

from __future__ import annotations

import re
from collections import Counter

from ..request import Expected
from ..results import Reading
from .tools import judged, run_tool, shown, unread

P2P_STATES = {"OK", "NS", "CNS", "GNS", "TNS", "DR", "U"}  # the legend of ``nvidia-smi topo -p2p``
ANSI = re.compile(r"\x1b\[[0-9;]*m")
FATAL_XIDS = frozenset(  # Azure/azurehpc-health-checks, customTests/azure_gpu_xid.nhc
    (48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120)
)


def node_readings(expected: Expected, host: str, timeout_s: float) -> list[Reading]:
    """What the first rank of each node reads for all of its GPUs."""
    return [
        _count(expected, host, timeout_s),
        _peer_to_peer(expected, timeout_s),
        _topology(timeout_s),
        _xids(timeout_s),
    ]


def _count(expected: Expected, host: str, timeout_s: float) -> Reading:
    """GPUs that the driver sees."""
    name = "GPUs in the node"
    wanted = None if expected.gpus_per_node is None else str(expected.gpus_per_node)
    said = run_tool(("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"), timeout_s)
    if said.text is None:
        return unread(name, said.why, wanted)
    lines = [line.strip() for line in said.text.splitlines() if line.strip()]
    if any(not re.fullmatch(r"(GPU|MIG)-[0-9a-fA-F-]+", line) for line in lines):
        return unread(name, f"nvidia-smi says {said.text.strip()[:80]!r}", wanted)
    if expected.gpus_per_node is None or wanted is None:
        return shown(name, str(len(lines)))
    enough = len(lines) >= expected.gpus_per_node
    return judged(name, str(len(lines)), wanted, enough, f"{host} has {len(lines)} of {wanted} GPUs")


def _matrix(text: str) -> dict[tuple[int, int], str] | None:
    """Cells between GPUs of a matrix as ``nvidia-smi topo`` prints it; (a, b) with a < b.

    Headings, rows of adapters and the legend are left out. ``None`` where the text is no such matrix.
    """
    rows: list[list[str]] = []
    for line in ANSI.sub("", text).splitlines():
        found = re.match(r"\s*GPU(\d+)\s+(.*)", line)
        cells = found.group(2).split() if found else []
        if found and int(found.group(1)) == len(rows) < len(cells) and cells[len(rows)] == "X":
            rows.append(cells)
    if not rows or len(rows[0]) < len(rows):
        return None
    return {(a, b): rows[a][b] for a in range(len(rows)) for b in range(a + 1, len(rows)) if b < len(rows[a])}


def _peer_to_peer(expected: Expected, timeout_s: float) -> Reading:
    """Pairs of GPUs that read each other's memory."""
    name = "peer to peer"
    wanted = None if expected.peer_to_peer is None else "all pairs" if expected.peer_to_peer else "no pairs"
    said = run_tool(("nvidia-smi", "topo", "-p2p", "r"), timeout_s)
    if said.text is None:
        return unread(name, said.why, wanted)
    cells = _matrix(said.text)
    if cells is None or not set(cells.values()) <= P2P_STATES:
        return unread(name, f"nvidia-smi says {said.text.strip()[:80]!r}", wanted)
    if not cells:
        return shown(name, "one GPU")
    off = [f"{a}-{b} {cell}" for (a, b), cell in sorted(cells.items()) if cell != "OK"]
    value = f"{len(cells) - len(off)} of {len(cells)} pairs" + (f" (off: {_some(off)})" if off else "")
    if not expected.peer_to_peer:
        return shown(name, value)
    return judged(name, value, "all pairs", not off, f"GPUs talk through host memory: {_some(off)}")


def _some(pairs: list[str]) -> str:
    """At most four of a list, and how many more there are."""
    more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
    return ", ".join(pairs[:4]) + more


def _topology(timeout_s: float) -> Reading:
    """Kinds of paths between GPUs, counted: NV18 = 18 NVLink links, PIX, PXB, PHB, NODE, SYS = over PCIe."""
    name = "paths between GPUs"
    said = run_tool(("nvidia-smi", "topo", "-m"), timeout_s)
    if said.text is None:
        return unread(name, said.why)
    cells = _matrix(said.text)
    if cells is None or not all(re.fullmatch(r"NV\d+|PIX|PXB|PHB|NODE|SYS", c) for c in cells.values()):
        return unread(name, f"nvidia-smi says {said.text.strip()[:80]!r}")
    kinds = Counter(cells.values())
    return shown(name, ", ".join(f"{kind} × {n}" for kind, n in kinds.most_common()) or "one GPU")


def _xids(timeout_s: float) -> Reading:
    """Fatal errors that the driver wrote to the kernel's log since boot.

    Where only root may read that log, nothing is judged: the probe runs as whoever runs Ray.
    """
    name = "Xid errors"
    said = run_tool(("dmesg",), timeout_s)
    if said.text is None:
        return shown(name, None, f"not judged: {said.why}")
    codes = Counter(int(code) for code in re.findall(r"NVRM: Xid \(PCI:[^)]*\): (\d+)", said.text))
    fatal = sorted(set(codes) & FATAL_XIDS)
    value = ", ".join(f"{code} × {n}" for code, n in sorted(codes.items())) or "none"
    return judged(name, value, "none that is fatal", not fatal, f"fatal Xid {', '.join(map(str, fatal))}")
