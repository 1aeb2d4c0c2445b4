"""Live prices of Vultr: ``GET /v2/plans`` and ``GET /v2/plans-metal``, without credentials.

Documented form (vultr.com/api, Plans): ``plans[{id, vcpu_count, ram (MB), disk (GB), hourly_cost,
monthly_cost, type, locations[], gpu_vram_gb, gpu_type}]``, ``plans_metal[{id, cpu_threads, ram, disk,
hourly_cost, locations[]}]``, ``meta.links.next``. ``hourly_cost_preemptible``, ``deploy_ondemand``,
``deploy_preemptible`` and the type ``vdm`` are in answers that clients have recorded (github.com/dstackai/
gpuhunt), not in the documentation. Prices are of the whole machine, by the hour: a month's price is 672 hours
of a metal plan and 730 of others, so it is never divided. Shares of a GPU (``4vram``) are not offers. Metal
plans name their GPUs in the id only, which the documentation advises not to parse: what is odd is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from urllib.parse import urlencode

from planner.hardware.gpus import gpu as gpu_of
from planner.types import Offer
from providers import http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.reading import Collector, Json, Node, Price, UnreadError

SOURCE = "Vultr API, plans"
COUNTS = (1, 2, 4, 8, 16)
_METAL = re.compile(r"^vbm-.+?gb-(?:(\d+)-)?([a-z0-9]+)-gpu$")
_CLOUD = re.compile(r"^vcg-([a-z0-9]+)-\d+c-\d+g-(\d+)vram$")
_GPU_TYPES = ("vcg", "vdm")


@dataclass(frozen=True, slots=True)
class Vultr:
    """See the module."""

    url: str = "https://api.vultr.com/v2"
    provider: str = "vultr"
    complete: bool = True

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Asks without credentials."""
        return None

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """All pages of cloud plans, then of metal plans."""
        with http.session() as using:
            return [
                page
                for first in ("plans?type=all&per_page=500", "plans-metal?per_page=500")
                for page in http.follow(lambda url: http.ask(using, url), f"{self.url}/{first}", _next)
            ]

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of every plan with whole GPUs, on demand and preemptible, in every location."""
        found = Collector(self.provider)
        for page in raw:
            answer = http.document(page)
            plans = answer.get("plans", answer.get("plans_metal"))
            if not isinstance(plans, list):
                raise AnswerError("neither plans nor plans_metal in the answer")
            found.each(plans, lambda plan: _offers(found, plan, seen))
        return found.parsed()


ADAPTER = Vultr()


def _next(here: str, page: Json) -> str | None:
    """Address of the next page: this one with the cursor that it names."""
    meta = page.get("meta")
    links = meta.get("links") if isinstance(meta, dict) else None
    cursor = links.get("next") if isinstance(links, dict) else None
    if not isinstance(cursor, str) or not cursor:
        return None
    return f"{here.partition('&cursor=')[0]}&{urlencode({'cursor': cursor})}"


def _offers(found: Collector, plan: object, seen: datetime) -> Iterator[Offer]:
    """Offers of one plan."""
    if not isinstance(plan, dict):
        raise UnreadError("a plan is not an object")
    name = reading.text(plan, "id")
    metal = _METAL.match(name)
    if metal is None and reading.text(plan, "type") not in _GPU_TYPES:
        return
    node = _node(found, name, plan)
    if node is None:
        return
    locations = reading.member(plan, "locations")
    if not isinstance(locations, list):
        raise UnreadError("locations is not a list")
    places = [p for p in locations if isinstance(p, str) and p]
    for market, price in _prices(plan):
        for place in places or ["any"]:
            yield reading.live_offer(
                found.provider,
                name,
                node,
                price,
                region=place,
                market=market,
                seen=seen,
                source=SOURCE,
                available=bool(places),
                note="" if places else "in no location when seen",
            )


def _prices(plan: Json) -> Iterator[tuple[str, Price]]:
    """Price by market; what a plan cannot be deployed as has none."""
    if plan.get("deploy_ondemand") is not False:
        yield "on-demand", reading.node_price(reading.member(plan, "hourly_cost"))
    if plan.get("deploy_preemptible") is not False and plan.get("hourly_cost_preemptible"):
        yield "spot", reading.node_price(plan["hourly_cost_preemptible"])


def _node(found: Collector, name: str, plan: Json) -> Node | None:
    """Machine of a plan: that of the catalog, else what its fields and its id say."""
    known = reading.known_node(found.provider, name)
    if known is not None:
        return known
    gpu, count = _gpus(found, name, plan)
    if gpu is None or count == 0:
        return None
    threads = plan.get("cpu_threads", plan.get("vcpu_count"))
    vcpus = reading.number(threads)
    return reading.new_node(
        gpu,
        count,
        vcpus=int(vcpus) if vcpus else None,
        host_memory_bytes=reading.gib_bytes(Decimal(reading.whole(plan, "ram")) / 1024),
        local_disk_bytes=reading.gib_bytes(reading.member(plan, "disk")),
        max_nodes=1,
    )


def _gpus(found: Collector, name: str, plan: Json) -> tuple[str | None, int]:
    """GPU id and number of GPUs of a plan; a share of a GPU counts 0."""
    metal = _METAL.match(name)
    if metal is not None:
        stated, in_name = reading.number(plan.get("gpu_count")), int(metal[1] or 1)
        if stated is not None and stated != in_name:
            raise UnreadError(f"{stated} GPUs, but {in_name} in the id")
        return found.gpu(metal[2]), in_name
    cloud = _CLOUD.match(name)
    model = str(plan.get("gpu_type") or (cloud[1] if cloud else name))
    total = reading.number(plan.get("gpu_vram_gb") or (cloud[2] if cloud else None))
    if total is None:
        raise UnreadError("no gpu_vram_gb")
    gpu = found.gpu(model.partition("_")[2].replace("_", " "), model)
    return gpu, 0 if gpu is None else _count(gpu, total)


def _count(gpu: str, total_gb: Decimal) -> int:
    """How many GPUs have so much memory: 0 for a share of one. Raises ``UnreadError`` for an odd number."""
    if not reading.has_memory(gpu, total_gb) and total_gb < gpu_of(gpu).marketing_memory_gb:
        return 0
    fitting = [n for n in COUNTS if reading.has_memory(gpu, total_gb / n)]
    if len(fitting) != 1:
        raise UnreadError(f"{total_gb} GB is no number of {gpu}")
    return fitting[0]
