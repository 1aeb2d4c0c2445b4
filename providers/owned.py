"""Machines that the user owns or may buy, as offers: from words, a YAML file, or the nodes of a Ray cluster.

    --own "2x rtx-4090"
    --own "4x rtx-a6000, machines=2, purchase_usd=21000, electricity_usd_per_kwh=0.31"
    --own machines.yaml

The price of an offer is what an hour of use of one machine costs (``planner.ownership``). What went into it
by assumption stands in its note, what is not in it, because nobody said it, among ``not_included``.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

from planner.errors import UserError
from planner.hardware.gpus import gpu, gpus
from planner.hardware.link_names import unread
from planner.hardware.links import links_for
from planner.ownership import OwnedMachine, ownership
from planner.records import build
from planner.types import Links, Offer
from providers.base import sort_key
from providers.catalog import GIB

PROVIDER = "own"
REGION = "own"
EXAMPLE = '--own "2x rtx-4090, purchase_usd=5200, electricity_usd_per_kwh=0.30, hours_used_per_month=300"'
CONNECT_S = 5.0
_COUNT = re.compile(r"^(\d{1,4})\s*[x×*]\s*(.+)$", re.IGNORECASE)
_MOST_GPUS, _RACK = 16, "nvl72"  # in one machine; a rack of GB200 is one NVLink domain
_MOST_ETHERNET_GBIT_PER_S = 100.0
_WORD_FIELDS = ("name", "intra_node", "inter_node")
_LABEL = "accelerator_type:"


# ---------------------------------------------------------------------------------- from words and files


def machines_of(text: str) -> tuple[OwnedMachine, ...]:
    """Machines of one ``--own``: a YAML file, or words. Raises ``UserError`` that names what is wrong."""
    if text.strip().lower().endswith((".yaml", ".yml")):
        return from_file(text.strip())
    return (from_words(text),)


def from_words(text: str) -> OwnedMachine:
    """Read ``2x rtx-4090, key=value, …``. Raises ``UserError``."""
    first, *rest = (part.strip() for part in text.split(","))
    counted = _COUNT.match(first)
    name = counted[2] if counted else first
    if not name:
        raise UserError(f"--own {text!r:.80}: no GPU", EXAMPLE)
    values: dict[str, object] = {"gpu": name, "gpus": int(counted[1]) if counted else 1}
    for part in rest:
        key, equals, value = part.partition("=")
        if not equals or not value.strip():
            raise UserError(f"--own: {part!r:.60} is not key=value", EXAMPLE)
        values[key.strip()] = value.strip()
    return machine(values, f"--own {text!r:.60}")


def from_file(path: str) -> tuple[OwnedMachine, ...]:
    """Read a YAML file: one machine, or a list of them. Raises ``UserError`` with file and machine."""
    import yaml  # only where a file is read

    try:
        content = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        said = str(error).splitlines()[0][:120]
        raise UserError(f"--own {path}: not YAML ({said})", EXAMPLE) from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the path
        raise UserError(f"--own: cannot read {path!r:.200} ({error})", EXAMPLE) from None
    listed = content if isinstance(content, list) else [content]
    if not listed or not all(isinstance(each, dict) for each in listed):
        raise UserError(
            f"--own {path}: neither a machine nor a list of machines", "- {gpu: rtx-4090, gpus: 2}"
        )
    return tuple(machine(each, f"--own {path}, machine {i}") for i, each in enumerate(listed, 1))


def machine(values: Mapping[str, object], what: str) -> OwnedMachine:
    """Machine of these values, its GPU as an id. Raises ``UserError`` that begins with ``what``."""
    words = {k: str(v) if k in _WORD_FIELDS else v for k, v in values.items()}
    made = build(OwnedMachine, words, what)
    if made.resale_usd is not None and made.purchase_usd is not None and made.resale_usd > made.purchase_usd:
        raise UserError(f"{what}: resale_usd is more than purchase_usd", "resale_usd=0")
    try:
        card = gpu(made.gpu)
    except UserError as error:
        raise UserError(f"{what}: {error}", "plan gpus   lists the names") from None
    return made.model_copy(update={"gpu": card.id})


# ---------------------------------------------------------------------------------- from a cluster


def from_ray_nodes(
    nodes: Sequence[Mapping[str, object]], allowed: Collection[str] = ()
) -> tuple[OwnedMachine, ...]:
    """Machines of a cluster: the list that ``ray.nodes()`` returns. Pure.

    Nodes that are dead or have no GPU are left out, equal ones counted together. Ray names a GPU without its
    form factor ("H100"); ``allowed`` are the GPU ids that it may be, where that is not the only one.
    Raises ``UserError`` for a GPU that is not known or may be several.
    """
    counted = Counter(found for node in nodes if (found := _ray_machine(node, allowed)) is not None)
    if not counted:
        raise UserError(f"no machine with a GPU is alive among {len(nodes)} nodes of the cluster", EXAMPLE)
    return tuple(
        each.model_copy(update={"machines": n})
        for each, n in sorted(counted.items(), key=lambda item: (item[0].gpu, item[0].gpus, str(item[0])))
    )


def _ray_machine(node: Mapping[str, object], allowed: Collection[str]) -> OwnedMachine | None:
    """Machine of one node of the cluster."""
    resources = node.get("Resources")
    if not node.get("Alive") or not isinstance(resources, dict) or not resources.get("GPU"):
        return None
    where = str(node.get("NodeManagerHostname") or node.get("NodeID") or "a node")
    types = [name.removeprefix(_LABEL) for name in resources if str(name).startswith(_LABEL)]
    memory = sum(float(resources.get(k) or 0) for k in ("memory", "object_store_memory"))
    return OwnedMachine(
        gpu=_ray_gpu(types, allowed, where),
        gpus=int(resources["GPU"]),
        vcpus=int(resources.get("CPU") or 0) or None,
        memory_gib=Decimal(round(memory / GIB)) if memory >= GIB else None,
    )


def _ray_gpu(types: Sequence[str], allowed: Collection[str], where: str) -> str:
    """GPU id of the accelerator types of a node; the particular ones ("A100-80G") say more."""
    if not types:
        raise UserError(f"{where}: Ray does not say which GPU it has", EXAMPLE)
    fitting = [g.id for g in gpus() if g.ray_accelerator_type in types]
    sizes = [f"{t[-3:]}B" for t in types if t.endswith(("-40G", "-80G"))]
    fitting = [i for i in fitting if not sizes or any(size in i for size in sizes)]
    chosen = [i for i in fitting if i in allowed] if allowed else fitting
    if not fitting:
        raise UserError(f"{where}: GPU {', '.join(types)} is not in the table", "plan gpus   lists the names")
    if len(chosen) != 1:
        several = ", ".join(chosen or fitting)
        raise UserError(f"{where}: {types[0]} can mean {several}", f"--gpu '{(chosen or fitting)[-1]}'")
    return chosen[0]


def ray_nodes(address: str) -> list[dict[str, object]]:
    """Ask a running cluster for its nodes. Usage statistics of Ray are off. Raises ``UserError``."""
    _check_answers(address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before Ray is imported
    ray = import_module("ray")
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        try:
            return list(ray.nodes())
        finally:
            ray.shutdown()
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise UserError(f"--own-ray {address}: no cluster answers ({said})", "ray status") from None


def _check_answers(address: str) -> None:
    """Refuse what names no cluster (Ray would start one), or where nobody listens (it tries for minutes)."""
    if address == "auto":
        return
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        host, port = place.hostname, place.port
        if host and port:
            socket.create_connection((host, port), timeout=CONNECT_S).close()
    except (OSError, ValueError) as error:  # ValueError: no such port
        raise UserError(f"--own-ray {address:.80}: no cluster answers ({error})", "ray status") from None
    if not host or not port:
        raise UserError(f"--own-ray: {address!r:.80} is no HOST:PORT", "--own-ray auto   (this machine's)")


# ---------------------------------------------------------------------------------- as offers


def links_of(owned: OwnedMachine) -> Links:
    """Links of a machine; conservative where the user says nothing.

    Raises ``UserError`` for more GPUs than a machine has, a fabric that nobody knows, and a rate beyond
    Ethernet's usual ones whose fabric is not said: taken as Ethernet it would be several times too slow.
    """
    _check_links(owned)
    stated = owned.network_gbit_per_s
    return links_for(
        gpu(owned.gpu),
        owned.gpus,
        num_nodes=owned.machines,
        intra_node=owned.intra_node or None,
        inter_node_fabric=owned.inter_node or ("ethernet" if stated else None),
        network_gbit_per_s=stated,
    )


def _check_links(owned: OwnedMachine) -> None:
    """Refuse what would silently be taken for something else."""
    machine = f"{owned.gpus}x {owned.gpu}"
    if owned.gpus > _MOST_GPUS and _RACK not in gpu(owned.gpu).form_factor:
        raise UserError(
            f"--own: {machine} in one machine: {_MOST_GPUS} at most",
            f'--own "8x {owned.gpu}, machines={-(-owned.gpus // 8)}"   (8 GPUs in each of several machines)',
        )
    if unread(owned.inter_node):
        raise UserError(
            f"--own: inter_node={owned.inter_node!r:.60} names no network that is known",
            "inter_node=infiniband   (or: IB HDR, IB NDR, roce, efa, ethernet)",
        )
    if (owned.network_gbit_per_s or 0) > _MOST_ETHERNET_GBIT_PER_S and not owned.inter_node:
        raise UserError(
            f"--own: network_gbit_per_s={owned.network_gbit_per_s:g} does not say which network that is",
            f'--own "{machine}, inter_node=infiniband, network_gbit_per_s={owned.network_gbit_per_s:g}"',
        )


def title(owned: OwnedMachine) -> str:
    """Name of a machine: the user's, or ``2x RTX 4090``."""
    return owned.name or f"{owned.gpus}x {owned.gpu}"


def offer(owned: OwnedMachine, seen: datetime, source: str = "the owner's figures") -> Offer:
    """Offer of one machine, price per hour of use; unknown where none of its costs is known."""
    cost = ownership(owned)
    price = cost.usd_per_hour
    return Offer(
        provider=PROVIDER,
        instance_type=title(owned),
        region=REGION,
        market="owned",
        gpu=owned.gpu,
        gpus_per_node=owned.gpus,
        links=links_of(owned),
        vcpus=owned.vcpus,
        host_memory_bytes=None if owned.memory_gib is None else int(owned.memory_gib * GIB),
        local_disk_bytes=None if owned.disk_gib is None else int(owned.disk_gib * GIB),
        usd_per_hour=None if price is None else price.quantize(Decimal("0.000001")),
        unknown_why=None if price is not None else "nothing of what it costs is known",
        not_included=cost.unknown,
        max_nodes=owned.machines,
        price_seen=seen,
        price_age_months=0,
        source=source,
        origin="own",
        available=True,
        note="assumed: " + "; ".join(cost.assumed) if cost.assumed else "",
    )


def offers(owned: Sequence[OwnedMachine], seen: datetime) -> tuple[Offer, ...]:
    """Offers of all machines, sorted. Raises ``UserError`` where two have one name."""
    made = sorted((offer(each, seen) for each in owned), key=sort_key)
    names = Counter(o.instance_type for o in made)
    for name, n in names.items():
        if n > 1:
            raise UserError(f"--own: {n} machines are called {name!r:.60}", "give each a name: name=left")
    return tuple(made)
