"""Live prices of RunPod: the GraphQL API. A key (``RUNPOD_API_KEY``) is sent where there is one.

Documented form (docs.runpod.io, GraphQL ``gpuTypes``): ``data.gpuTypes[{id, displayName, memoryInGb,
securePrice, communityPrice, maxGpuCountSecureCloud, maxGpuCountCommunityCloud,
lowestPrice(input){minimumBidPrice, uninterruptablePrice, minVcpu, minMemory, stockStatus}}]``. Every price is
of ONE GPU, bids too: a pod costs that times its GPUs. Secure and community machines are two markets; a bid
that equals the price on demand is no spot market.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from planner.types import Offer
from providers import http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.reading import Collector, Json, Node, UnreadError

KEY = "RUNPOD_API_KEY"
SOURCE = "RunPod GraphQL API, gpuTypes"
COUNTS = (1, 2, 4, 8)
_LOWEST = "lowestPrice(input: {{gpuCount: {n}, secureCloud: {secure}}}) {{ {fields} }}"
_FIELDS = "minimumBidPrice uninterruptablePrice minVcpu minMemory stockStatus"
LINK = "private network of 100 Mbit/s between pods"


def query() -> str:
    """Ask for all GPU types, the lowest price of each count in both clouds."""
    lowest = " ".join(
        f"{cloud}{n}: " + _LOWEST.format(n=n, secure=secure, fields=_FIELDS)
        for cloud, secure in (("secure", "true"), ("community", "false"))
        for n in COUNTS
    )
    return (
        "query GpuTypes { gpuTypes { id displayName memoryInGb securePrice communityPrice "
        f"maxGpuCountSecureCloud maxGpuCountCommunityCloud {lowest} }} }}"
    )


@dataclass(frozen=True, slots=True)
class Runpod:
    """See the module."""

    url: str = "https://api.runpod.io/graphql"
    provider: str = "runpod"
    complete: bool = True

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Asks with or without a key."""
        return None

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """One answer."""
        key = environment.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with http.session() as using:
            return [http.ask(using, self.url, headers=headers, body={"query": query()})]

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of pods of 1, 2, 4 and 8 GPUs: secure, community and spot."""
        found = Collector(self.provider)
        for page in raw:
            data = http.document(page).get("data")
            types = data.get("gpuTypes") if isinstance(data, dict) else None
            if not isinstance(types, list):
                raise AnswerError("no data.gpuTypes in the answer")
            found.each(types, lambda entry: _offers(found, entry, seen))
        return found.parsed()


ADAPTER = Runpod()


def _offers(found: Collector, entry: object, seen: datetime) -> Iterator[Offer]:
    """All offers of one GPU type."""
    if not isinstance(entry, dict):
        raise UnreadError("a GPU type is not an object")
    name = reading.text(entry, "id")
    if name.lower() == "unknown":
        return
    gpu = found.gpu(name, memory_gb=reading.number(reading.member(entry, "memoryInGb")))
    if gpu is None:
        return
    for cloud, market in (("secure", "on-demand"), ("community", "community")):
        most = reading.number(reading.member(entry, f"maxGpuCount{cloud.capitalize()}Cloud")) or 0
        for n in (n for n in COUNTS if n <= most):
            lowest = entry.get(f"{cloud}{n}")
            yield from _pod(
                found, entry, (name, gpu, n), cloud, market, lowest if isinstance(lowest, dict) else {}, seen
            )


def _pod(
    found: Collector,
    entry: Json,
    what: tuple[str, str, int],
    cloud: str,
    market: str,
    lowest: Json,
    seen: datetime,
) -> Iterator[Offer]:
    """Offers of a pod of ``what`` = (GPU string, GPU id, GPUs) in one cloud; of secure machines also spot."""
    name, gpu, n = what
    listed = entry.get(f"{cloud}Price")
    instance, stock = f"{n}x {name}", lowest.get("stockStatus")
    prices = [(market, listed)]
    if cloud == "secure" and lowest.get("minimumBidPrice") is not None:
        prices.append(("spot", lowest["minimumBidPrice"]))
    for here, per_gpu in prices:
        yield reading.live_offer(
            found.provider,
            instance,
            _node(found.provider, instance, gpu, n, lowest),
            reading.node_price(per_gpu, gpus=n),
            region="any",
            market=here,
            seen=seen,
            source=SOURCE,
            available=bool(stock),
            note=f"listed per GPU; stock {str(stock).lower() if stock else 'none'} when seen",
        )


def _node(provider: str, instance: str, gpu: str, n: int, lowest: Json) -> Node:
    """Machine of a pod: that of the catalog, else what the answer says of its smallest host."""
    known = reading.known_node(provider, instance)
    if known is not None:
        return known
    vcpus, memory = reading.number(lowest.get("minVcpu")), lowest.get("minMemory")
    return reading.new_node(
        gpu,
        n,
        vcpus=int(vcpus) if vcpus else None,
        host_memory_bytes=reading.gib_bytes(memory),
        inter=LINK,
        max_nodes=1,
    )
