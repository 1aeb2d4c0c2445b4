"""Readings of one rank's GPU: what torch sees of it, and what ``nvidia-smi`` says of it.

Field names: ``nvidia-smi --help-query-gpu`` and ``--help-query-remapped-rows``; bits of the clock event
reasons: NVIDIA's nvml.h (nvmlClocksEventReasons).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch

from ..request import Expected
from ..results import Reading
from .tools import Said, judged, run_tool, shown, unread

GIB = 2**30
MEMORY_TOLERANCE = 0.02  # drivers of different years keep a little more or less for themselves
NOT_REPORTED = ("[N/A]", "N/A", "[Not Supported]", "Not Supported")
BAD_EVENTS = {  # idle, application clocks, power cap and sync boost are how a healthy GPU works
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
POWER_CAP = 0x04


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU as torch sees it. ``uuid`` as nvidia-smi writes it: ``GPU-…``."""

    name: str
    uuid: str
    usable_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Smi:
    """One row of ``nvidia-smi --query-gpu``; field names with ``__`` for dots."""

    driver_version: str
    ecc__mode__current: str
    ecc__errors__uncorrected__volatile__total: str
    ecc__errors__uncorrected__aggregate__total: str
    clocks__current__sm: str
    clocks__max__sm: str
    clocks__current__memory: str
    clocks__max__memory: str
    pcie__link__gen__current: str
    pcie__link__gen__max: str
    pcie__link__width__current: str
    pcie__link__width__max: str


SMI_NAMES = {  # of the readings made of a row, in order
    "driver": "driver_version",
    "ECC": "ecc.mode.current",
    "ECC errors uncorrected": "ecc.errors.uncorrected.volatile.total",
    "ECC errors uncorrected, lifetime": "ecc.errors.uncorrected.aggregate.total",
    "SM clock": "clocks.current.sm",
    "memory clock": "clocks.current.memory",
    "PCIe generation": "pcie.link.gen.current",
    "PCIe lanes": "pcie.link.width.current",
}


def read_card(device: torch.device) -> Card:
    """Ask torch for the GPU of this rank."""
    found = torch.cuda.get_device_properties(device)
    uuid = str(found.uuid)
    return Card(
        name=found.name,
        uuid=uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}",
        usable_memory_bytes=torch.cuda.mem_get_info(device)[1],
    )


@contextmanager
def busy(device: torch.device) -> Iterator[None]:
    """Keep a GPU at work meanwhile: an idle one lowers its clocks and its PCIe generation."""
    if device.type != "cuda":
        yield
        return
    done = threading.Event()
    worker = threading.Thread(target=_work, args=(device, done), daemon=True)
    worker.start()
    try:
        yield
    finally:
        done.set()
        worker.join()


def _work(device: torch.device, done: threading.Event) -> None:
    """Multiply and copy from the host until told to stop."""
    with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
        square = torch.ones(2048, 2048, dtype=torch.float16, device=device)
        host = torch.ones(2**22, pin_memory=True)
        there = torch.empty_like(host, device=device)
        while not done.is_set():
            torch.mm(square, square)
            there.copy_(host, non_blocking=True)
            torch.cuda.current_stream(device).synchronize()


def card_readings(expected: Expected, card: Card, timeout_s: float) -> list[Reading]:
    """Everything about one GPU. Each value that nvidia-smi does not give is a reading of its own."""
    smi = _query(card, timeout_s)
    return [
        _model(expected, card),
        _memory(expected, card),
        *(_from_smi(expected, smi) if isinstance(smi, Smi) else [unread(n, smi.why) for n in SMI_NAMES]),
        *_remapped(card, timeout_s),
        _events(card, timeout_s),
        _nvlink(expected, card, timeout_s),
    ]


def _query(card: Card, timeout_s: float) -> Smi | Said:
    """Row of this GPU, or why there is none."""
    asked = ",".join(f.name.replace("__", ".") for f in fields(Smi))
    said = _smi(card, timeout_s, f"--query-gpu={asked}", "--format=csv,noheader,nounits")
    if said.text is None:
        return said
    rows = [line for line in said.text.splitlines() if line.strip()]
    cells = [cell.strip() for cell in rows[0].split(",")] if rows else []
    if len(rows) != 1 or len(cells) != len(fields(Smi)):
        return Said(None, f"nvidia-smi printed something else than one row: {said.text.strip()[:80]!r}")
    return Smi(*cells)


def _smi(card: Card, timeout_s: float, *arguments: str) -> Said:
    return run_tool(("nvidia-smi", *arguments, "-i", card.uuid), timeout_s)


def _model(expected: Expected, card: Card) -> Reading:
    """Tell whether this is the GPU that was rented."""
    if not expected.gpu_names:
        return shown("GPU", card.name)
    names = {_plain(name) for name in expected.gpu_names}
    wanted = expected.gpu or expected.gpu_names[0]
    return judged(
        "GPU", card.name, wanted, _plain(card.name) in names, f"the GPU is {card.name}, not {wanted}"
    )


def _plain(name: str) -> str:
    """Name of a GPU without maker, case, separators, and the word Edition that only some drivers add."""
    return re.sub(r"nvidia|amd|edition$|[\s_/-]+", "", name.lower())


def _memory(expected: Expected, card: Card) -> Reading:
    value = f"{card.usable_memory_bytes / GIB:.1f} GiB"
    if expected.usable_memory_bytes is None:
        return shown("usable memory", value)
    wanted = f"{expected.usable_memory_bytes / GIB:.1f} GiB"
    enough = card.usable_memory_bytes >= expected.usable_memory_bytes * (1 - MEMORY_TOLERANCE)
    return judged("usable memory", value, wanted, enough, f"{value} where the plan counts on {wanted}")


def _from_smi(expected: Expected, smi: Smi) -> list[Reading]:
    """Readings of a row, in the order of ``SMI_NAMES``."""
    return [
        shown("driver", smi.driver_version)
        if re.fullmatch(r"\d+(\.\d+)+", smi.driver_version)
        else unread("driver", f"nvidia-smi says {smi.driver_version!r}"),
        _ecc(expected, smi.ecc__mode__current),
        _no_errors("ECC errors uncorrected", smi.ecc__errors__uncorrected__volatile__total),
        _count("ECC errors uncorrected, lifetime", smi.ecc__errors__uncorrected__aggregate__total),
        _clock("SM clock", smi.clocks__current__sm, smi.clocks__max__sm),
        _clock("memory clock", smi.clocks__current__memory, smi.clocks__max__memory),
        _slot("PCIe generation", smi.pcie__link__gen__current, smi.pcie__link__gen__max, expected.pcie_gen),
        _slot("PCIe lanes", smi.pcie__link__width__current, smi.pcie__link__width__max, expected.pcie_lanes),
    ]


def _ecc(expected: Expected, mode: str) -> Reading:
    """ECC on or off; GeForce cards have none."""
    known = {"Enabled": "on", "Disabled": "off", **dict.fromkeys(NOT_REPORTED, "not supported")}
    if mode not in known:
        return unread("ECC", f"nvidia-smi says {mode!r}")
    if expected.ecc is None:
        return shown("ECC", known[mode])
    wanted = "on" if expected.ecc else "off"
    right = (known[mode] == "on") == expected.ecc
    return judged("ECC", known[mode], wanted, right, f"ECC is {known[mode]}: usable memory differs")


def _no_errors(name: str, text: str) -> Reading:
    """Errors since the driver was loaded: there must be none."""
    if text in NOT_REPORTED:
        return shown(name, "not counted")
    if not text.isdecimal():
        return unread(name, f"nvidia-smi says {text!r}", "0")
    return judged(name, text, "0", int(text) == 0, f"{text} memory errors that could not be corrected")


def _count(name: str, text: str) -> Reading:
    """A count that is shown: errors of the past may have been repaired."""
    if text in NOT_REPORTED:
        return shown(name, "not counted")
    return shown(name, text) if text.isdecimal() else unread(name, f"nvidia-smi says {text!r}")


def _clock(name: str, now: str, most: str) -> Reading:
    """Clock under load; what it is held down by is told by the clock events."""
    if now in NOT_REPORTED or most in NOT_REPORTED:
        return shown(name, "not reported")
    if not (now.isdecimal() and most.isdecimal()):
        return unread(name, f"nvidia-smi says {now!r} of {most!r}")
    return shown(name, f"{now} of {most} MHz")


def _slot(name: str, now: str, most: str, expected: float | None) -> Reading:
    """PCIe link under load, of what slot and GPU can do together."""
    wanted = None if expected is None else f"{expected:g}"
    if now in NOT_REPORTED and wanted is None:
        return shown(name, "not reported")
    if not now.isdecimal():
        return unread(name, f"nvidia-smi says {now!r} of {most!r}", wanted)
    value = f"{now} of {most}"
    if expected is None or wanted is None:
        return shown(name, value)
    return judged(name, value, wanted, float(now) >= expected, f"the link runs at {value}, not at {wanted}")


def _remapped(card: Card, timeout_s: float) -> list[Reading]:
    """Memory rows that wait for a reset to be replaced, or could not be."""
    names = {"row remapping pending": "pending", "row remapping failed": "failure"}
    asked = ",".join(f"remapped_rows.{field}" for field in names.values())
    said = _smi(card, timeout_s, f"--query-remapped-rows={asked}", "--format=csv,noheader")
    if said.text is None:
        return [unread(name, said.why, "no") for name in names]
    rows = [line for line in said.text.splitlines() if line.strip()]
    cells = [cell.strip() for cell in rows[0].split(",")] if rows else []
    if not rows:  # GPUs before Ampere replace pages, not rows, and are not listed
        return [shown(name, "not supported") for name in names]
    if len(rows) != 1 or len(cells) != len(names):
        return [unread(name, f"nvidia-smi says {said.text.strip()[:80]!r}", "no") for name in names]
    return [_flag(name, cell) for name, cell in zip(names, cells, strict=True)]


def _flag(name: str, cell: str) -> Reading:
    if cell in NOT_REPORTED:
        return shown(name, "not supported")
    if cell.lower() in ("0", "no"):
        return judged(name, "no", "no", True)
    if cell.lower() in ("1", "yes"):
        return judged(name, "yes", "no", False, f"{name}: reset the GPU, or take another node")
    return unread(name, f"nvidia-smi says {cell!r}", "no")


def _events(card: Card, timeout_s: float) -> Reading:
    """What holds the clocks down while the GPU works. Drivers before 535 have the older field name."""
    name = "clock events"
    said = _smi(card, timeout_s, "--query-gpu=clocks_event_reasons.active", "--format=csv,noheader")
    if said.text is None and "not a valid field" in said.why:
        said = _smi(card, timeout_s, "--query-gpu=clocks_throttle_reasons.active", "--format=csv,noheader")
    if said.text is None:
        return unread(name, said.why, "none")
    text = said.text.strip()
    if text in NOT_REPORTED:
        return shown(name, "not reported")
    if not re.fullmatch(r"0x[0-9a-fA-F]+", text):
        return unread(name, f"nvidia-smi says {text[:80]!r}", "none")
    active = int(text, 16)
    bad = [words for bit, words in BAD_EVENTS.items() if active & bit]
    value = ", ".join(bad) or ("power cap" if active & POWER_CAP else "none")
    return judged(name, value, "none", not bad, f"clocks are held down: {value}")


def _nvlink(expected: Expected, card: Card, timeout_s: float) -> Reading:
    """NVLink links that are up. GPUs without NVLink print no links."""
    name, wanted = "NVLink links up", "at least 1" if expected.nvlink else None
    said = _smi(card, timeout_s, "nvlink", "-s")
    if said.text is None:
        return unread(name, said.why, wanted)
    states = re.findall(r"Link\s+\d+:\s*(.+)", said.text)
    up = [
        state for state in states if re.match(r"[\d.]+\s*GB/s", state) and not re.match(r"0+(\.0+)?\s", state)
    ]
    down = [state for state in states if state not in up]
    if len(down) != sum("inactive" in s.lower() or s.startswith("0") for s in down) or _is_nonsense(
        said.text
    ):
        return unread(name, f"nvidia-smi says {said.text.strip()[:80]!r}", wanted)
    value = f"{len(up)} of {len(states)}"
    if not expected.nvlink:
        return shown(name, value)
    return judged(name, value, "at least 1", bool(up), "no NVLink link is up, the plan counts on NVLink")


def _is_nonsense(text: str) -> bool:
    """Tell whether there is text, yet not about a GPU or its links."""
    return bool(text.strip()) and not re.search(r"GPU \d+:|NvLink|NVLINK|all links are inActive", text)
