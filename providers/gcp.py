"""Live prices of Google Cloud: the Cloud Billing Catalog API, with an API key.

Documented form (cloud.google.com/billing/v1/how-tos/catalog-api): ``skus[{skuId, description,
category{resourceFamily, resourceGroup, usageType}, serviceRegions[], pricingInfo[{effectiveTime,
pricingExpression{usageUnit, tieredRates[{startUsageAmount, unitPrice{currencyCode, units, nanos}}]}}]}]``,
``nextPageToken``. No machine has a price of its own: a node is cores + GiB of RAM + GPUs + local SSD, each
by its own SKU, found by the description (``data/gcp_parts.csv``). Of two SKUs of a region the one of fewer
regions counts, whatever their order. Flex-start (DWS) and calendar mode are other products.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache, partial
from importlib.resources import files
from urllib.parse import urlencode

from planner.types import Offer
from providers import http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.catalog import GIB
from providers.reading import Collector, Json, Node, Price, UnreadError

KEY = "GCP_API_KEY"
SOURCE = "Google Cloud Billing Catalog API"
LOCAL_SSD = "ssd backed local storage"
HOURS_A_MONTH = Decimal(730)  # that Google bills a month's price by
_OTHER = re.compile(
    r"reserved|sole tenancy|custom|premium|suspended|\bdws\b|calendar mode|commitment|virtual workstation",
    re.I,
)
_PART = re.compile(
    r"^(?:spot preemptible )?(.+?)(?: attached to spot preemptible vms?)?(?: running)?(?: in .+)?$", re.I
)


@dataclass(frozen=True, slots=True)
class Family:
    """Which SKUs make a node of a family of machines: beginnings of their descriptions, in lower case."""

    name: str
    core: str
    ram: str
    gpus: tuple[str, ...]
    local_ssd_gib_per_gpu: int
    spot_only: tuple[str, ...]


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """Rows of ``data/gcp_parts.csv``."""
    text = files("providers").joinpath("data/gcp_parts.csv").read_text(encoding="utf-8")
    return tuple(
        Family(
            name=r["family"],
            core=r["core"].lower(),
            ram=r["ram"].lower(),
            gpus=tuple(r["gpu"].lower().split("|")),
            local_ssd_gib_per_gpu=int(r["local_ssd_gib_per_gpu"]),
            spot_only=tuple(t for t in r["spot_only"].split("|") if t),
        )
        for r in csv.DictReader(text.splitlines())
    )


@lru_cache(maxsize=1)
def _parts() -> frozenset[str]:
    """Names of all SKUs that are looked at."""
    return frozenset({LOCAL_SSD, *(p for f in families() for p in (f.core, f.ram, *f.gpus) if p)})


PartKey = tuple[str, str, bool]  # part, region, spot


@dataclass(frozen=True, slots=True)
class Gcp:
    """See the module."""

    url: str = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
    provider: str = "gcp"
    complete: bool = False

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Needs an API key of a project in which the Cloud Billing API is enabled."""
        missing = Unavailable(
            f"no credentials ({KEY})", f"export {KEY}=…   (console.cloud.google.com, APIs and services)"
        )
        return None if environment.get(KEY) else missing

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """All pages of 5,000 SKUs. The key goes in a header, so that no URL holds it."""
        headers = {"X-Goog-Api-Key": environment[KEY]}
        first = f"{self.url}?{urlencode({'currencyCode': 'USD', 'pageSize': '5000'})}"

        def following(here: str, page: Json) -> str | None:
            token = page.get("nextPageToken")
            return f"{first}&{urlencode({'pageToken': str(token)})}" if token else None

        with http.session() as using:
            return http.follow(lambda url: http.ask(using, url, headers=headers), first, following)

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of the catalog's machines in every region that has their GPU's SKU."""
        found = Collector(self.provider)
        prices: dict[PartKey, tuple[int, Decimal]] = {}
        for page in raw:
            skus = http.document(page).get("skus")
            if not isinstance(skus, list):
                raise AnswerError("no skus in the answer")
            found.each(skus, partial(_add, found, prices))
        for name in reading.known_types(self.provider):
            found.offers.extend(_machine(name, prices, seen))
        return found.parsed()


ADAPTER = Gcp()


def _add(found: Collector, prices: dict[PartKey, tuple[int, Decimal]], sku: object) -> tuple[()]:
    """Note the price of one SKU, if it is of a part that some machine has. Gives no offer by itself."""
    if not isinstance(sku, dict):
        raise UnreadError("a SKU is not an object")
    description = reading.text(sku, "description")
    usage = reading.text(sku, "category", "usageType")
    name = _PART.match(description)
    part = name[1].lower() if name else ""
    if _OTHER.search(description) or usage not in ("OnDemand", "Preemptible"):
        return ()
    if part not in _parts():
        if sku["category"].get("resourceGroup") == "GPU":
            found.gpu(re.sub(r" GPU$", "", part, flags=re.I))
        return ()
    regions = reading.member(sku, "serviceRegions")
    if not isinstance(regions, list):
        raise UnreadError("serviceRegions is not a list")
    price = _price(sku)
    spot = usage == "Preemptible" or "spot preemptible" in description.lower()  # some say OnDemand: a slip
    for region in regions:
        have = prices.get((part, str(region), spot))
        if have is None or len(regions) < have[0]:
            prices[part, str(region), spot] = (len(regions), price)
    return ()


def _price(sku: Json) -> Decimal:
    """USD a unit and hour, of the pricing that is in force (the last of the timeline)."""
    infos = reading.rows(sku, "pricingInfo")
    if not infos:
        raise UnreadError("no pricingInfo")
    rates = reading.rows(infos[-1], "pricingExpression", "tieredRates")
    if len(rates) != 1:
        raise UnreadError(f"{len(rates)} price tiers")
    if reading.text(rates[0], "unitPrice", "currencyCode") != "USD":
        raise UnreadError("a price that is not in USD")
    units = reading.number(reading.member(rates[0], "unitPrice", "units"))
    nanos = reading.number(reading.member(rates[0], "unitPrice", "nanos"))
    if units is None or nanos is None:
        raise UnreadError("unitPrice is not a number")
    unit = reading.text(infos[-1], "pricingExpression", "usageUnit")
    if unit not in ("h", "GiBy.h", "GiBy.mo"):
        raise UnreadError(f"unit {unit!r}")
    price = units + nanos / Decimal(10**9)
    return price / HOURS_A_MONTH if unit.endswith("mo") else price


def _machine(name: str, prices: Mapping[PartKey, tuple[int, Decimal]], seen: datetime) -> Iterator[Offer]:
    """Offers of one machine, on demand and spot, in every region."""
    family = next((f for f in families() if name.startswith(f"{f.name}-")), None)
    node = reading.known_node("gcp", name)
    if family is None or node is None:
        return
    places = sorted({(region, spot) for part, region, spot in prices if part in family.gpus})
    for region, spot in places:
        if name in family.spot_only and not spot:
            continue
        yield reading.live_offer(
            "gcp",
            name,
            node,
            _sum(family, node, region, spot, prices),
            region=region,
            market="spot" if spot else "on-demand",
            seen=seen,
            source=SOURCE,
        )


def _sum(
    family: Family, node: Node, region: str, spot: bool, prices: Mapping[PartKey, tuple[int, Decimal]]
) -> Price:
    """Price of a node: unknown, naming the part, where one of its parts has no price."""
    gpu = next(g for g in family.gpus if (g, region, spot) in prices)
    quantities = [
        (family.core, Decimal(node.vcpus or 0)),
        (family.ram, Decimal(node.host_memory_bytes or 0) / GIB),
        (gpu, Decimal(node.gpus_per_node)),
        (LOCAL_SSD, Decimal(family.local_ssd_gib_per_gpu * node.gpus_per_node)),
    ]
    total = Decimal(0)
    for part, quantity in quantities:
        if not part or (part == LOCAL_SSD and not quantity):
            continue
        found = prices.get((part, region, spot))
        if found is None or found[1] <= 0 or not quantity:
            return Price(None, f"no price of {part!r} in {region}")
        total += quantity * found[1]
    return reading.node_price(total.quantize(Decimal("0.000001")))
