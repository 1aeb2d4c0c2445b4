"""Live prices of Vast.ai, a marketplace: ``POST /api/v0/bundles/``, API key.

Documented form (docs.vast.ai, search offers): ``offers[{id, gpu_name, num_gpus, gpu_ram (MB of one GPU),
cpu_cores_effective, cpu_ram (MB), disk_space, dph_base, min_bid, storage_cost, geolocation, verification,
reliability2, bw_nvlink, pcie_bw}]``. The documents show ``offers`` as one object, clients get a list: both
work. Prices are of the machine, disk apart. An offer lives for minutes, so what is kept is the cheapest
verified machine of a GPU, count and country; A100 of 40 and of 80 GB share a name, memory tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from planner.types import Offer
from providers import http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.names import gpu_id
from providers.reading import Collector, Json, Node, UnreadError

KEY = "VAST_API_KEY"
SOURCE = "Vast.ai API, search offers"
COUNTS = (1, 2, 4, 8)
LIMIT = 1000
_SIZES_GB = (8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 141, 180, 192, 288)


@dataclass(frozen=True, slots=True)
class Vast:
    """See the module."""

    url: str = "https://console.vast.ai/api/v0/bundles/"
    provider: str = "vast"
    complete: bool = True

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Needs an API key."""
        missing = Unavailable(f"no credentials ({KEY})", f"export {KEY}=…   (cloud.vast.ai, API keys)")
        return None if environment.get(KEY) else missing

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """One search for each number of GPUs."""
        headers = {"Authorization": f"Bearer {environment[KEY]}"}
        with http.session() as using:
            return [http.ask(using, self.url, headers=headers, body=search(n)) for n in COUNTS]

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Cheapest offer of each GPU, count and country, on demand and by bid."""
        found = Collector(self.provider)
        for page in raw:
            offers = http.document(page).get("offers")
            if isinstance(offers, dict):
                offers = [offers]
            if not isinstance(offers, list):
                raise AnswerError("no offers in the answer")
            found.each(offers, lambda entry: _offers(found, entry, seen))
        return found.parsed()


ADAPTER = Vast()


def search(num_gpus: int) -> dict[str, object]:
    """Search for verified machines that can be rented now, cheapest first."""
    return {
        "verified": {"eq": True},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "num_gpus": {"eq": num_gpus},
        "type": "on-demand",
        "order": [["dph_base", "asc"]],
        "limit": LIMIT,
    }


def _offers(found: Collector, entry: object, seen: datetime) -> Iterator[Offer]:
    """Offers of one machine."""
    if not isinstance(entry, dict):
        raise UnreadError("an offer is not an object")
    if entry.get("verification", "verified") != "verified":
        return
    name, n = reading.text(entry, "gpu_name"), reading.whole(entry, "num_gpus")
    if n < 1:
        raise UnreadError("an offer without GPUs")
    full_name, memory_gb = _full_name(name, entry)
    gpu = found.gpu(full_name, memory_gb=memory_gb)
    if gpu is None:
        return
    node = _node(gpu, n, entry)
    prices = [("on-demand", reading.member(entry, "dph_base"))]
    if entry.get("min_bid") is not None:
        prices.append(("spot", entry["min_bid"]))
    for market, price in prices:
        yield reading.live_offer(
            found.provider,
            f"{n}x-{full_name.replace(' ', '_')}",
            node,
            reading.node_price(price),
            region=_country(entry),
            market=market,
            seen=seen,
            source=SOURCE,
            available=True,
            note=f"cheapest verified machine when seen (offer {reading.whole(entry, 'id')}), disk apart",
        )


def _full_name(name: str, entry: Json) -> tuple[str, Decimal]:
    """Name of a GPU, with its memory where the name alone fits several or another; and the memory in GB."""
    memory_gb = Decimal(reading.whole(entry, "gpu_ram")) / 1024
    nearest = min(_SIZES_GB, key=lambda size: abs(size - memory_gb))
    known = gpu_id("vast", name)
    if known is not None and reading.has_memory(known, memory_gb):
        return name, memory_gb
    return f"{name} {nearest}GB", memory_gb


def _country(entry: Json) -> str:
    """Country code at the end of "Falkenstein, DE"; ``any`` where the place is not said."""
    place = entry.get("geolocation")
    return place.rsplit(",", 1)[-1].strip() or "any" if isinstance(place, str) else "any"


def _node(gpu: str, n: int, entry: Json) -> Node:
    """Machine of an offer. Its share of vCPUs is stated, RAM is of the whole offer, both may be missing."""
    cores, ram, disk = (
        reading.number(entry.get(k)) for k in ("cpu_cores_effective", "cpu_ram", "disk_space")
    )
    nvlink = reading.number(entry.get("bw_nvlink"))
    return reading.new_node(
        gpu,
        n,
        vcpus=int(cores) if cores and cores >= 1 else None,
        host_memory_bytes=reading.gib_bytes(ram / Decimal(1024)) if ram else None,
        local_disk_bytes=reading.gib_bytes(disk),
        intra="NVLink" if nvlink else "",
        max_nodes=1,
    )
