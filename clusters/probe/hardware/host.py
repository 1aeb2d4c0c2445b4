"""Readings of the host around the GPUs: versions, network adapter, disk, shared memory."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import tempfile
from pathlib import Path

import torch

from ..place import Place
from ..request import Expected
from ..results import Reading
from .tools import Said, judged, read_file, shown, unread

GIB = 2**30
FULL_DISK = 0.95  # Ray stops making objects here: docs.ray.io, out-of-disk prevention
LEAST_SHM_BYTES = 2**30  # NVIDIA NCCL user guide, troubleshooting: containers need --shm-size=1g
SYS_NET, SYS_RDMA = Path("/sys/class/net"), Path("/sys/class/infiniband")


def host_readings(expected: Expected, place: Place) -> list[Reading]:
    """Readings of this rank's host, of which nothing needs a GPU."""
    return [
        *_versions(expected, place.device),
        *_adapter(expected, place.num_nodes),
        *_rdma(),
        _disk(),
        _shared_memory(place.device),
    ]


def cpu_name() -> str:
    """Model of the CPU, or its architecture where the system does not say it."""
    said = read_file("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", said.text or "", re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine() or "CPU"


def _versions(expected: Expected, device: torch.device) -> list[Reading]:
    """Versions of what trains; those of all ranks must be the same."""
    told = expected.versions
    found = [
        _version("Python", platform.python_version(), told.get("python")),
        _version("torch", str(torch.__version__), told.get("torch")),
        _version("Ray", _installed("ray"), told.get("ray")),
    ]
    if device.type == "cuda":
        found += [
            _version("CUDA", torch.version.cuda or torch.version.hip, None),
            _version("NCCL", _nccl_version(), None),
        ]
    return found


def _version(name: str, value: str | None, expected: str | None) -> Reading:
    """A version; ``2.13`` expects any ``2.13.x``, with or without what stands behind a plus sign."""
    if value is None:
        return unread(name, f"{name} is not installed here", expected)
    if expected is None:
        return shown(name, value)
    plain = value.split("+")[0]
    same = plain == expected.split("+")[0] or plain.startswith(expected.split("+")[0] + ".")
    return judged(name, value, expected, same, f"{name} {value} runs here, the plan pins {expected}")


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nccl_version() -> str:
    """NCCL that torch was built with or has loaded."""
    found = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(str(part) for part in found) if isinstance(found, tuple) else str(found)


def adapter_name() -> Said:
    """Interface that traffic between nodes takes: as told to gloo or NCCL, else that of the default route."""
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        told = os.environ.get(variable, "").split(",")[0].lstrip("=")
        if told and not told.startswith("^"):
            return Said(told) if told in _interfaces() else Said(None, f"{variable} names {told}: not here")
    routes = read_file("/proc/net/route")
    for line in (routes.text or "").splitlines()[1:]:
        columns = line.split()
        if len(columns) > 1 and columns[1] == "00000000":
            return Said(columns[0])
    others = [name for name in _interfaces() if name != "lo"]
    if len(others) == 1:
        return Said(others[0])
    return Said(None, routes.why or "no default route, and no interface is named in GLOO_SOCKET_IFNAME")


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _adapter(expected: Expected, num_nodes: int) -> list[Reading]:
    """Network adapter and its speed. On one node nothing goes over it."""
    name = adapter_name()
    if name.text is None:
        if num_nodes == 1:
            return [shown("network adapter", None, name.why)]
        return [unread("network adapter", name.why)]
    return [shown("network adapter", name.text), _speed(name.text, expected, num_nodes)]


def _speed(name: str, expected: Expected, num_nodes: int) -> Reading:
    """Speed of an adapter in Gbit/s.

    Virtual adapters (ENA, virtio) state none: the kernel says -1, or refuses. That is shown and left to the
    timed collectives; an adapter that is not there has not passed.
    """
    label, wanted_gbit = "network speed", expected.nic_gbit_per_s
    if not (SYS_NET / name).exists():
        return unread(label, f"{SYS_NET / name} is not there") if num_nodes > 1 else shown(label, None)
    said = read_file(SYS_NET / name / "speed")
    if said.text is None or said.text == "-1":
        return shown(label, "not stated by the adapter", "collectives measure it")
    if not said.text.isdecimal():
        return unread(label, f"{SYS_NET / name / 'speed'} says {said.text[:40]!r}")
    gbit = int(said.text) / 1000
    if wanted_gbit is None or num_nodes == 1 or list_rdma():
        return shown(label, f"{gbit:g} Gbit/s")
    enough = gbit >= wanted_gbit
    wanted = f"{wanted_gbit:g} Gbit/s"
    return judged(label, f"{gbit:g} Gbit/s", wanted, enough, f"{name} runs at {gbit:g} of {wanted}")


def list_rdma() -> list[Path]:
    """Ports of RDMA adapters (InfiniBand, RoCE, EFA) that the kernel knows."""
    return sorted(SYS_RDMA.glob("*/ports/*")) if SYS_RDMA.exists() else []


def _rdma() -> list[Reading]:
    """RDMA ports, where there are any: how many are active, and at which rate."""
    ports = list_rdma()
    if not ports:
        return []
    states = [read_file(port / "state") for port in ports]
    unknown = next((state.why for state in states if state.text is None), None)
    if unknown:
        return [unread("RDMA ports active", unknown)]
    active = [p for p, state in zip(ports, states, strict=True) if "ACTIVE" in (state.text or "")]
    rates = sorted({(read_file(port / "rate").text or "unknown rate") for port in active})
    value = f"{len(active)} of {len(ports)}" + (f", {', '.join(rates)}" if rates else "")
    return [shown("RDMA ports active", value)]


def _disk() -> Reading:
    """Room where Ray and torch write."""
    folder = tempfile.gettempdir()
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return unread("disk free", f"{folder} cannot be read: {error.strerror}")
    used = 1 - usage.free / usage.total
    value = f"{usage.free / GIB:.1f} of {usage.total / GIB:.1f} GiB"
    limit = f"{1 - FULL_DISK:.0%} of the disk"
    return judged(
        "disk free", value, limit, used < FULL_DISK, f"{folder} is {used:.0%} full: Ray stops at 95 %"
    )


def _shared_memory(device: torch.device) -> Reading:
    """Size of /dev/shm: NCCL and data loaders pass tensors through it; Docker gives 64 MiB unless asked."""
    name = "shared memory"
    try:
        total = shutil.disk_usage("/dev/shm").total
    except OSError as error:
        return unread(name, f"/dev/shm cannot be read: {error.strerror}")
    value = f"{total / GIB:.2f} GiB"
    if device.type != "cuda":
        return shown(name, value)
    return judged(
        name,
        value,
        "1 GiB",
        total >= LEAST_SHM_BYTES,
        f"/dev/shm has {value}: start with --shm-size=1g or more",
    )
