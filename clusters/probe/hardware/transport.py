"""What the process group talks over: read from NCCL's own log, never guessed from what is installed.

NCCL writes the log at the first collective, if it was told to before: ``nccl_environment``. Lines as of NCCL
2.8 to 2.28 and aws-ofi-nccl 1.1 to 1.16:

    NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
    NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.2<0>
    NET/Socket : Using [0]eth0:10.0.0.2<0>
    Using network Socket
    Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..request import Expected
from ..results import Reading
from .tools import Said, judged, read_file, shown, unread

NAMES = {"efa": "EFA", "ib": "InfiniBand or RoCE", "socket": "TCP sockets", "gloo": "gloo over TCP"}


@dataclass(frozen=True, slots=True)
class Transport:
    """What NCCL chose. ``kind``: efa, ib, socket, or the plugin's own name. ``num_nics`` where it said so."""

    kind: str
    num_nics: int | None
    paths: tuple[tuple[str, int], ...]  # between GPUs and out of the node: P2P, SHM, NET, how often


def nccl_environment(folder: str) -> dict[str, str]:
    """Environment that makes NCCL write its choice down in ``folder``, a file for each process."""
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,P2P",
        "NCCL_DEBUG_FILE": f"{folder}/plan-probe-nccl.%h.%p",
    }


def nccl_log() -> Said:
    """Log of this process, whose name NCCL makes of host and process id; the file is deleted with that."""
    told = os.environ.get("NCCL_DEBUG_FILE", "")
    if not told:
        return Said(None, "NCCL was not told to write a log (NCCL_DEBUG_FILE)")
    host = socket.gethostname().split(".")[0]  # as NCCL's getHostName cuts it
    path = Path(told.replace("%h", host).replace("%p", str(os.getpid())))
    said = read_file(path)
    path.unlink(missing_ok=True)
    return said


def parse_log(text: str) -> Transport | None:
    """What NCCL chose, ``None`` where the log does not say so."""
    chosen = re.findall(r"NCCL INFO Using network (.+)", text)
    if not chosen:
        return None
    network = chosen[-1].strip()
    provider = re.search(r"NET/OFI Selected [Pp]rovider is (\w+)(?:.*\(found (\d+) nics\))?", text)
    kind, nics = network.lower(), None
    if provider and re.search("ofi|libfabric", network, re.IGNORECASE):
        kind = provider.group(1).lower()
        nics = int(provider.group(2)) if provider.group(2) else None
    elif re.search(r"\bg?IB|RDMA", network):  # IB, IBext of HPC-X, gIB of Google, plug-ins over verbs
        kind, nics = "ib", _devices(text, "IB")
    elif network in ("Socket", "FastSocket"):
        kind, nics = "socket", _devices(text, network)
    paths = Counter(re.findall(r"Channel \d+(?:/\d+)? : .*via (P2P|SHM|NET)\b", text))
    return Transport(kind, nics, tuple(sorted(paths.items())))


def _devices(text: str, net: str) -> int | None:
    """Devices that NCCL numbers in its line, ``None`` where it wrote none."""
    lines = re.findall(rf"NET/{net} : Using (.*)", text)
    found = max((len(re.findall(r"\[\d+\]\S", line)) for line in lines), default=0)
    return found or None


def transport_readings(expected: Expected, backend: str, num_nodes: int) -> tuple[str | None, list[Reading]]:
    """Transport of this rank in a word, and readings of it. On one node no network is crossed."""
    if backend == "gloo":
        return "gloo", [_chosen(expected, "gloo", num_nodes)]
    log = nccl_log()
    found = parse_log(log.text) if log.text is not None else None
    if found is None:
        why = log.why or "NCCL's log does not say which network it uses"
        wanted = NAMES.get(expected.transport or "", expected.transport)
        return None, [unread("transport", why, wanted)]
    readings = [_chosen(expected, found.kind, num_nodes), _nics(expected, found, num_nodes)]
    if found.paths:
        readings.append(_paths(expected, found))
    return found.kind, readings


def _chosen(expected: Expected, kind: str, num_nodes: int) -> Reading:
    value = NAMES.get(kind, kind)
    if expected.transport is None or num_nodes == 1:
        return shown("transport", value)
    wanted = NAMES[expected.transport]
    right = kind == expected.transport
    return judged("transport", value, wanted, right, f"traffic between nodes goes over {value}, not {wanted}")


def _nics(expected: Expected, found: Transport, num_nodes: int) -> Reading:
    name, wanted = "adapters in use", expected.num_nics
    if found.num_nics is None:
        why = "NCCL's log does not say how many adapters it uses"
        return shown(name, None, why) if wanted is None or num_nodes == 1 else unread(name, why, str(wanted))
    if wanted is None or num_nodes == 1:
        return shown(name, str(found.num_nics))
    enough = found.num_nics >= wanted
    return judged(
        name, str(found.num_nics), str(wanted), enough, f"NCCL uses {found.num_nics} of {wanted} adapters"
    )


def _paths(expected: Expected, found: Transport) -> Reading:
    """Channels between GPUs of a node: P2P, or SHM = through host memory."""
    value = ", ".join(f"{path} × {n}" for path, n in found.paths)
    if not expected.peer_to_peer:
        return shown("NCCL channels", value)
    through_host = dict(found.paths).get("SHM", 0) > 0
    return judged(
        "NCCL channels", value, "P2P", not through_host, "GPUs of a node talk through host memory (SHM)"
    )
