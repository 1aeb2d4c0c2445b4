"""Which link class a machine has, read from free text or from the columns of a catalog row.

Text is what people write: "NVLink + 8x400 Gb/s RDMA", "PCIe, no NVLink", "EFAv2 x32", "DGX-H100".
Ids are rows of ``data/links.csv``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from planner.types import Gpu

_BOARD_LINK = {
    "nvlink1": "nvlink1-mesh",
    "nvlink2": "nvlink2-mesh",
    "nvlink3+nvswitch": "nvlink3-nvswitch",
    "nvlink3+nvswitch (400 GB/s)": "nvlink3-nvswitch-400",
    "nvlink4+nvswitch": "nvlink4-nvswitch",
    "nvlink4+nvswitch (400 GB/s)": "nvlink4-nvswitch-400",
    "nvlink5+nvswitch": "nvlink5-nvswitch",
    "nvlink5 NVL72 domain": "nvlink5-nvl72",
    "xgmi 7x128": "xgmi-mi300",
    "xgmi 7x153": "xgmi-mi355",
    "xgmi": "xgmi-mi250",
    "xgmi bridge": "xgmi-mi250",
}
_NO_PEER = re.compile(r"no[t]? p2p|without p2p|p2p off|through host|host memory|no peer|patched off")
_PEER = re.compile(r"p2p (is )?on|patched driver|peer to peer|p2p yes")
_NO_NVLINK = re.compile(r"no nvlink|without nvlink|nvlink (is )?(disabled|off)")
_BRIDGE = re.compile(r"nvlink(?!.*not stated)")


def is_board(card: Gpu) -> bool:
    """Tell whether the GPU sits on a board that is sold whole (SXM, OAM, superchip), not in a slot."""
    return card.form_factor.startswith(("sxm", "oam", "superchip"))


def _pcie_id(card: Gpu, peer: bool, said: str = "") -> str:
    """Id of the PCIe class: the card's generation or a lower one that is stated; half the lanes: one less."""
    generation = min(card.pcie_gen, 5.0)
    if slot := _PCIE_SLOT.search(said):
        generation = min(generation, float(slot[1] or 5))
        generation -= {"8": 1.0, "4": 2.0}.get(slot[2] or "", 0.0)
    return f"pcie{int(max(generation, 3.0))}-{'p2p' if peer else 'host'}"


def _bridge_id(card: Gpu) -> str | None:
    """Id of the NVLink bridge class that fits the card, ``None`` where it has no bridge."""
    if not card.link_kind.startswith("nvlink-bridge"):
        return None
    if card.link_kind.endswith("(4)"):
        return "nvlink4-quad-pcie5"
    if card.architecture == "Hopper":
        return "nvlink4-pair-pcie5"
    if card.architecture == "Turing":
        return "nvlink2-pair-pcie3"
    if card.nvlink_bytes_per_s >= 200e9:
        return "nvlink3-pair-pcie4"
    return "nvlink3-bridge-pcie4" if card.pcie_peer else "nvlink3-bridge-pcie4-host"


def _volta_link(gpus_per_node: int, said: str) -> str:
    """V100 boards: DGX-2 has switches, a cube mesh joins 8, four are fully connected."""
    if "nvswitch" in said or "dgx-2" in said or gpus_per_node > 8:
        return "nvlink2-nvswitch"
    return "nvlink2-mesh4" if gpus_per_node <= 4 else "nvlink2-mesh"


def intra_link(card: Gpu, gpus_per_node: int, text: str = "") -> str:
    """Id of the link inside a node: what the board brings, what ``text`` says, else PCIe through the host.

    ``text`` is free ("NVLink + 8x400 Gb/s RDMA", "PCIe, no NVLink", "nvswitch", "pcie/nvlink-bridge").
    """
    said = text.lower()
    if gpus_per_node <= 1:
        return "none"
    no_nvlink = _NO_NVLINK.search(said) is not None
    board = _BOARD_LINK.get(card.link_kind)
    if board and not no_nvlink:
        if board == "nvlink2-mesh":
            return _volta_link(gpus_per_node, said)
        four = gpus_per_node == 4 and re.search(r"4 gpu|fully connected|directly connected", said)
        return "nvlink3-mesh4" if board == "nvlink3-nvswitch" and four else board
    bridge = _bridge_id(card)
    if bridge and _BRIDGE.search(said) and not no_nvlink:
        return bridge
    if not said:
        return _pcie_id(card, peer=False)
    if "slow" in said:
        return "pcie3-host"
    peer = not _NO_PEER.search(said) and (card.pcie_peer or _PEER.search(said) is not None)
    return _pcie_id(card, peer, said)


# The first that matches wins: names of a generation before names of a kind.
_FABRICS: tuple[tuple[str, str], ...] = (
    (r"plain tcp|tcp sockets?\b|\btcp\b", "ethernet"),
    (r"tcpxo|\ba3-mega", "tcpxo"),
    (r"tcpx\b|\ba3-high", "tcpx"),
    (r"\befa ?v4|\bp6[e-]", "efa-v4"),
    (r"\befa ?v3|\bp5en", "efa-v3"),
    (r"\befa ?v2|\bp5e?\b|\befa.*3200", "efa-v2"),
    (r"\befa ?v1|\bp4de?\b|\befa.* 400", "efa-v1"),
    (r"\befa\b|\bp3dn", "efa"),
    (r"\bxdr", "ib-xdr"),
    (r"\bndr|quantum-2|\bcx-?7\b|connectx-?7", "ib-ndr"),
    (r"\bhdr", "ib-hdr"),
    (r"\bedr", "ib-edr"),
    (r"\bfdr", "ib-fdr"),
    (r"omni-?path|\bopa\b", "omni-path"),
    (r"slingshot", "slingshot"),
    (r"\broce|spectrum-x|\ba3-ultra|\ba4-high", "roce"),
    (r"\bno ib\b", "ethernet"),
    (r"infiniband|\bib\b", "ib"),
    (r"\brdma\b", "roce"),
    (r"\bdgx|superpod|\bhgx", "dgx"),
    (r"internet|between pods", "internet"),
    (r"ethernet|\d ?gbe\b", "ethernet"),
)
_GENERATION_IB = {"Pascal": "ib-edr", "Volta": "ib-edr", "Turing": "ib-edr", "Ampere": "ib-hdr"}
_UNKNOWN_NET = {
    "Pascal": "unknown-rdma-volta",
    "Volta": "unknown-rdma-volta",
    "Ampere": "unknown-rdma-ampere",
    "Hopper": "unknown-rdma-hopper",
    "CDNA": "unknown-rdma-hopper",
    "Blackwell": "unknown-rdma-blackwell",
}
_PCIE_SLOT = re.compile(r"pcie ?(?:gen ?)?(\d)?(?:\.\d)? ?(?:x(\d+))?", re.IGNORECASE)
_UNIT = r"(tb/s|tbps|tbit/s|gb/s|gbps|gbit/s|gbit|gbe|gb\b|g\b)"
_KIND = r"(?:edr|hdr|ndr|xdr|omni-?path|opa|slingshot(?:-\d+)?|infiniband|ib|roce|efa)"
_COUNT_X_RATE = re.compile(rf"(\d+) ?[x×] ?(?:{_KIND}[ -]?)?(\d+(?:\.\d+)?) ?{_UNIT}", re.IGNORECASE)
_COUNT_X_KIND = re.compile(rf"(\d+|dual-rail) ?[x×]? ?({_KIND})[ -]?(\d{{2,3}})?\b", re.IGNORECASE)
_PORTS_NAMED = re.compile(rf"{_KIND} ?(\d+) ?[x×] ?(\d{{3}})\b", re.IGNORECASE)
_RATE = re.compile(rf"(\d+(?:\.\d+)?) ?{_UNIT}", re.IGNORECASE)
_EFA_ADAPTERS = re.compile(r"\befa(?: ?v\d)? ?x(\d+)")
_PORT_RATE = {
    "edr": 100.0,
    "hdr": 200.0,
    "ndr": 400.0,
    "xdr": 800.0,
    "opa": 100.0,
    "omni": 100.0,
    "slin": 200.0,
}


def _gbit(rate: str, unit: str) -> float:
    """Gbit/s of a figure with its unit: network text counts bits, "GB/s" with a capital B counts bytes."""
    scale = 1000.0 if unit.lower().startswith("t") else 1.0
    return float(rate) * scale * (8.0 if "GB/s" in unit else 1.0)


def _ports_gbit(text: str) -> float | None:
    """Gbit/s of ports that are counted: "8x200", "4x NDR200", "dual-rail EDR", "4x OPA 100Gb"."""
    if found := _PORTS_NAMED.search(text):
        return float(found[1]) * float(found[2])
    if found := _COUNT_X_RATE.search(text):
        return float(found[1]) * _gbit(found[2], found[3])
    if found := _COUNT_X_KIND.search(text):
        rate = float(found[3]) if found[3] else _PORT_RATE.get(found[2].lower()[:4].strip())
        return None if rate is None else rate * (2.0 if found[1].startswith("dual") else float(found[1]))
    return None


def stated_gbit_per_s(text: str, gpus_per_node: int) -> float | None:
    """Gbit/s of a node that a text states ("8x400 Gb/s", "1600 Gbps", "400Gb/s per GPU"), else ``None``."""
    text = _PCIE_SLOT.sub("", text)
    if (ports := _ports_gbit(text)) is not None:
        return ports
    rate = _RATE.search(text)
    if rate is None:
        return None
    each = gpus_per_node if re.search(r"per gpu", text[rate.end() :], re.IGNORECASE) else 1
    return _gbit(rate[1], rate[2]) * each


def _of_architecture(table: dict[str, str], card: Gpu, default: str) -> str:
    """Entry of the card's architecture; "Hopper+Grace" counts as Hopper."""
    for architecture, entry in table.items():
        if card.architecture.startswith(architecture):
            return entry
    return default


def unknown_net(card: Gpu, gpus_per_node: int) -> str:
    """Id of the conservative class: boards of 4 and more are sold with a fabric, slots with Ethernet."""
    if not is_board(card) or gpus_per_node < 4:
        return "unknown-inter"
    return _of_architecture(_UNKNOWN_NET, card, "unknown-inter")


@lru_cache(maxsize=1024)
def _named_fabric(said: str) -> str | None:
    """First entry of the table that a text names; remembered, as a catalog has few texts and many rows."""
    return next((fabric for pattern, fabric in _FABRICS if re.search(pattern, said)), None)


def fabric_of(card: Gpu, gpus_per_node: int, text: str) -> str:
    """Id of the fabric that ``text`` names; where it names a family only, the one of the GPU's generation."""
    said = text.lower()
    named = _named_fabric(said)
    if named in ("ib", "dgx"):
        return _of_architecture(_GENERATION_IB, card, "ib-ndr")
    fast = is_board(card) and (stated_gbit_per_s(text, gpus_per_node) or 0.0) >= 800.0
    if named is not None:
        return "roce" if named == "ethernet" and fast and "tcp" not in said else named
    gbit = stated_gbit_per_s(text, gpus_per_node)
    if gbit is None:
        return unknown_net(card, gpus_per_node)
    return "roce" if is_board(card) and gbit >= 200 else "ethernet"


_INSIDE = re.compile(
    r"nvlink|nvswitch|nvl\d|pci|p2p|peer|xgmi|infinity|fabric|host|single|one |node|slow|none"
)


def unread(text: str | None) -> tuple[str, ...]:
    """Sentence for a text in which no link is found: what it says counts for nothing, and that is said."""
    said = (text or "").strip().lower()
    if not said or _INSIDE.search(said) or _named_fabric(said) or _RATE.search(said):
        return ()
    return (f"interconnect {text!r:.60} names no link that is known: taken as not stated",)


def is_dgx(text: str) -> bool:
    """Tell whether ``text`` names a DGX or a SuperPOD: one port per GPU, by its data sheet."""
    return re.search(r"\bdgx|superpod", text.lower()) is not None


def efa_adapters(text: str) -> int | None:
    """Count the adapters that a fabric name states: 4 in "EFA x4", ``None`` in "EFA"."""
    found = _EFA_ADAPTERS.search(text.lower())
    return int(found[1]) if found else None
