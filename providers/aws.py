"""Live prices of AWS: on demand, spot per zone, capacity blocks; without credentials the public price file.

Documented forms (boto3 reference): ``pricing.get_products`` gives JSON texts with ``product.attributes`` and
``terms.OnDemand.*.priceDimensions.*.pricePerUnit.USD``; ``ec2.describe_spot_price_history`` gives
``SpotPriceHistory[{AvailabilityZone, AvailabilityZoneId, InstanceType, SpotPrice, Timestamp}]``;
``describe_capacity_block_offerings`` gives ``UpfrontFee`` for ``InstanceCount`` nodes and hours, from which
the rate follows. GPU and count are those of the catalog; a new type's come from ``describe_instance_types``.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial

from planner.types import Offer
from providers import aws_calls, http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.reading import Collector, Json, Node, Price, UnreadError

PRICE_LIST = "AWS Price List API"
PRICE_FILE = "AWS public price file"
SPOT_HISTORY = "EC2 DescribeSpotPriceHistory"
BLOCK_OFFERINGS = "EC2 DescribeCapacityBlockOfferings"
_BULK_TYPE = re.compile(r'"(?:p|g|gr)\d[a-z0-9-]*\.[a-z0-9]+"')
_GBIT = re.compile(r"(\d+) Gigabit")


@dataclass(frozen=True, slots=True)
class Aws:
    """See the module. ``regions``: where to ask, ``()`` for those of ``data/regions.csv``."""

    bulk_url: str = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/{}/index.csv"
    regions: tuple[str, ...] = ()
    provider: str = "aws"
    complete: bool = False

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Asks the public file where there are no credentials."""
        return None

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """All pages of all regions; the public file of one region where no credentials are found."""
        import boto3  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]

        try:
            session = boto3.session.Session(profile_name=environment.get("AWS_PROFILE") or None)
            credentials = session.get_credentials()
        except BotoCoreError as error:
            raise AnswerError(f"credentials: {type(error).__name__} (aws sso login)") from None
        if credentials is None:
            region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
            return [self.price_file(region or aws_calls.PRICING_REGION)]
        return aws_calls.all_regions(session, self.regions or reading.regions_of(self.provider))

    def price_file(self, region: str) -> bytes:
        """Rows of GPU machines of the public file, which is too large to keep."""
        kept: list[str] = []
        with http.session() as using:
            for line in http.lines(using, self.bulk_url.format(region)):
                if line.startswith('"SKU"') or (kept and '"OnDemand"' in line and _BULK_TYPE.search(line)):
                    kept.append(line)
        return aws_calls.page("file", region, {"lines": kept})

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of all pages; what was refused is noted."""
        found, facts = Collector(self.provider), _Facts(seen)
        for page in sorted(map(_page, raw), key=lambda p: _CALLS.index(p.call)):
            if page.error:
                found.missing.setdefault(page.region, f"{page.call}: {page.error}")
            else:
                rows, read = _READERS[page.call]
                found.each(rows(page.answer), partial(read, found, facts, page.region))
            if page.call == "file":
                found.notes.append(f"no credentials: {PRICE_FILE} of {page.region}, on demand only")
        found.offers.extend(_unlisted(facts))
        return found.parsed()


ADAPTER = Aws()


@dataclass(frozen=True, slots=True)
class _Page:
    """One page of ``fetch``."""

    call: str
    region: str
    answer: Json
    error: str


def _page(raw: bytes) -> _Page:
    """Read one page of ``fetch``. Raises ``AnswerError`` for anything else."""
    try:
        read = json.loads(raw)
    except ValueError:
        raise AnswerError("the answer is not JSON") from None
    if not isinstance(read, dict) or read.get("call") not in _CALLS:
        raise AnswerError("not a page of the AWS calls")
    answer = read.get("answer")
    if not read.get("error") and not isinstance(answer, dict):
        raise AnswerError(f"{read['call']}: no answer in the page")
    return _Page(read["call"], str(read.get("region")), answer or {}, str(read.get("error") or ""))


@dataclass(slots=True)
class _Facts:
    """What the pages say of machines: their nodes, where they are offered, what has a price."""

    seen: datetime
    nodes: dict[str, Node] = field(default_factory=dict)
    offered: set[tuple[str, str]] = field(default_factory=set)
    zones: set[tuple[str, str]] = field(default_factory=set)
    regions: set[str] = field(default_factory=set)
    priced: set[tuple[str, str]] = field(default_factory=set)

    def available(self, name: str, region: str) -> bool | None:
        """Whether a region offers a type; ``None`` where it did not say."""
        return (name, region) in self.offered if region in self.regions else None

    def node(self, found: Collector, name: str) -> Node | None:
        """Machine of a type: of the catalog, or as a page described it."""
        return reading.known_node(found.provider, name) or self.nodes.get(name)

    def offer(self, name: str, node: Node, price: Price, region: str, market: str, source: str) -> Offer:
        """Offer of a type in a region."""
        return reading.live_offer(
            "aws",
            name,
            node,
            price,
            region=region,
            market=market,
            seen=self.seen,
            source=source,
            available=self.available(name, region),
        )


# ---------------------------------------------------------------------------------- machines


def _read_type(found: Collector, facts: _Facts, region: str, row: Json) -> Iterator[Offer]:
    """Note the machine of a new type. Slices of a GPU are no machines for training."""
    name = reading.text(row, "InstanceType")
    if not row.get("GpuInfo") or reading.known_node(found.provider, name):
        return
    cards = reading.rows(row, "GpuInfo", "Gpus")
    if not cards:
        raise UnreadError("no GpuInfo.Gpus")
    count, slices = (
        reading.number(cards[0].get("Count")) or 0,
        reading.number(cards[0].get("GpuPartitionSize")),
    )
    if count is None or count < 1 or (slices is not None and slices < 1):
        return
    memory_gb = Decimal(reading.whole(cards[0], "MemoryInfo", "SizeInMiB")) / 1024
    model = reading.text(cards[0], "Name")
    gpu = found.gpu(f"{model} {memory_gb:.0f}GB", model, memory_gb=memory_gb)
    if gpu is not None:
        facts.nodes[name] = _new_node(gpu, int(count), row)
    yield from ()


def _new_node(gpu: str, count: int, row: Json) -> Node:
    """Machine as ``describe_instance_types`` describes it."""
    network = row.get("NetworkInfo")
    network = network if isinstance(network, dict) else {}
    efa = network.get("EfaInfo")
    adapters = reading.number(efa.get("MaximumEfaInterfaces")) if isinstance(efa, dict) else None
    rate = _GBIT.search(str(network.get("NetworkPerformance", "")))
    memory = reading.number(reading.member(row, "MemoryInfo", "SizeInMiB"))
    storage = row.get("InstanceStorageInfo")
    disk_gb = reading.number(storage.get("TotalSizeInGB")) if isinstance(storage, dict) else None
    return reading.new_node(
        gpu,
        count,
        vcpus=reading.whole(row, "VCpuInfo", "DefaultVCpus"),
        host_memory_bytes=reading.gib_bytes(memory / 1024) if memory else None,
        local_disk_bytes=int(disk_gb) * 10**9 if disk_gb else None,
        inter=f"EFA x{adapters:.0f}" if adapters else "ethernet",
        network_gbit_per_s=float(rate[1]) if rate else None,
    )


def _read_offering(found: Collector, facts: _Facts, region: str, row: Json) -> Iterator[Offer]:
    """Note in which region and zone a type is offered."""
    facts.regions.add(region)
    facts.offered.add((reading.text(row, "InstanceType"), region))
    facts.zones.add((reading.text(row, "InstanceType"), reading.text(row, "Location")))
    yield from ()


# ---------------------------------------------------------------------------------- prices


def _read_product(found: Collector, facts: _Facts, region: str, row: Json) -> Iterator[Offer]:
    """On-demand price of one product, its filters looked at once more: other SKUs cost more, or 0."""
    about = reading.member(row, "product", "attributes")
    if not isinstance(about, dict):
        raise UnreadError("product.attributes is not an object")
    name = reading.text(about, "instanceType")
    node = facts.node(found, name)
    plain = all(reading.text(about, k) == v for k, v in aws_calls.FILTERS.items())
    plain = plain and about.get("marketoption", "OnDemand") == "OnDemand"  # not that of a capacity block
    if node is None or not plain:
        return
    terms = reading.member(row, "terms", "OnDemand")
    dimensions = [d for term in _values(terms) for d in _values(reading.member(term, "priceDimensions"))]
    prices = {reading.text(d, "pricePerUnit", "USD") for d in dimensions if d.get("unit") in ("Hrs", "Hours")}
    if len(prices) != 1:
        raise UnreadError(f"{len(prices)} prices of one product")
    facts.priced.add((name, region))
    yield facts.offer(name, node, reading.node_price(prices.pop()), region, "on-demand", PRICE_LIST)


def _values(found: object) -> list[Json]:
    """Objects of an object. Raises ``UnreadError`` for anything else."""
    if not isinstance(found, dict) or not all(isinstance(v, dict) for v in found.values()):
        raise UnreadError("terms are not objects")
    return list(found.values())


def _read_file_row(found: Collector, facts: _Facts, region: str, row: Json) -> Iterator[Offer]:
    """On-demand price of one row of the public file, with the same filters."""
    name = reading.text(row, "Instance Type")
    node = facts.node(found, name)
    columns = ("Operating System", "Tenancy", "Pre Installed S/W", "CapacityStatus", "License Model")
    plain = all(row.get(c) == v for c, v in zip(columns, aws_calls.FILTERS.values(), strict=True))
    plain = plain and row.get("MarketOption", "OnDemand") == "OnDemand"
    if not plain or row.get("TermType") != "OnDemand":
        return
    if node is None:
        found.names.append(name)
        return
    if (row.get("Currency"), row.get("Unit")) not in (("USD", "Hrs"), ("USD", "Hours")):
        raise UnreadError("a price that is not USD by the hour")
    facts.priced.add((name, region))
    price = reading.node_price(reading.member(row, "PricePerUnit"))
    yield facts.offer(name, node, price, region, "on-demand", PRICE_FILE)


def _read_spot(found: Collector, facts: _Facts, region: str, row: Json) -> Iterator[Offer]:
    """Spot price of a type in a zone. Names of zones differ by account, their ids do not."""
    name = reading.text(row, "InstanceType")
    node = facts.node(found, name)
    if node is None or not str(row.get("ProductDescription", "Linux/UNIX")).startswith("Linux/UNIX"):
        return
    zone = str(row.get("AvailabilityZoneId") or reading.text(row, "AvailabilityZone"))
    price = reading.node_price(reading.member(row, "SpotPrice"))
    offer = facts.offer(name, node, price, region, "spot", SPOT_HISTORY)
    yield offer.model_copy(update={"zone": zone})


def _latest(answer: Json) -> Iterable[Json]:
    """The last row of each type and zone: the history also holds the price before."""
    last: dict[tuple[str, str], Json] = {}
    for row in _objects(answer, "SpotPriceHistory"):
        time = row.get("Timestamp")
        row = row if isinstance(time, str) else {}
        zone = row.get("AvailabilityZoneId") or row.get("AvailabilityZone")
        place = (str(row.get("InstanceType")), str(zone))
        if place not in last or str(time) > str(last[place].get("Timestamp")):
            last[place] = row
    return last.values()


def _read_block(found: Collector, facts: _Facts, region: str, row: Json) -> Iterator[Offer]:
    """Rate of a capacity block: the fee is for all its nodes and hours, and is paid at once."""
    name = reading.text(row, "InstanceType")
    node = facts.node(found, name)
    if node is None:
        return
    if reading.text(row, "CurrencyCode") != "USD":
        raise UnreadError("a fee that is not in USD")
    hours, nodes = reading.whole(row, "CapacityBlockDurationHours"), reading.whole(row, "InstanceCount")
    fee = reading.number(reading.member(row, "UpfrontFee"))
    if hours < 1 or nodes < 1 or fee is None:
        raise UnreadError("no fee for nodes and hours")
    price = reading.node_price((fee / (hours * nodes)).quantize(Decimal("0.000001")))
    offer = facts.offer(name, node, price, region, "capacity-block", BLOCK_OFFERINGS)
    note = f"block of {hours} h from {str(row.get('StartDate', ''))[:16]}, paid in advance"
    zone = reading.text(row, "AvailabilityZone")
    yield offer.model_copy(update={"zone": zone, "min_billing_s": hours * 3600, "note": note})


def _unlisted(facts: _Facts) -> Iterator[Offer]:
    """Types that a region offers and the price list does not price on demand: unknown, not free."""
    for name, region in sorted(facts.offered - facts.priced):
        node = reading.known_node("aws", name) or facts.nodes.get(name)
        if node is not None:
            why = Price(None, "offered here, but the price list has no price on demand")
            yield facts.offer(name, node, why, region, "on-demand", PRICE_LIST)


# ---------------------------------------------------------------------------------- pages to rows


def _list(answer: Json, name: str) -> list[object]:
    """List in an answer. Raises ``AnswerError`` where there is none."""
    found = answer.get(name)
    if not isinstance(found, list):
        raise AnswerError(f"no {name} in the answer")
    return found


def _objects(answer: Json, name: str) -> list[Json]:
    """Objects of a list in an answer; what is no object becomes an empty one, and is counted as unread."""
    return [row if isinstance(row, dict) else {} for row in _list(answer, name)]


def _products(answer: Json) -> Iterable[Json]:
    """Products, each of them a JSON text; one that is not becomes an empty row, and is counted as unread."""
    for text in _list(answer, "PriceList"):
        try:
            read = json.loads(text) if isinstance(text, str) else text
        except ValueError:
            read = {}
        yield read if isinstance(read, dict) else {}


def _file_rows(answer: Json) -> Iterable[Json]:
    """Rows of the public file."""
    return csv.DictReader(str(line) for line in _list(answer, "lines"))


_Rows = Callable[[Json], Iterable[Json]]
_Read = Callable[[Collector, _Facts, str, Json], Iterator[Offer]]
_READERS: dict[str, tuple[_Rows, _Read]] = {
    "types": (lambda answer: _objects(answer, "InstanceTypes"), _read_type),
    "offerings": (lambda answer: _objects(answer, "InstanceTypeOfferings"), _read_offering),
    "products": (_products, _read_product),
    "file": (_file_rows, _read_file_row),
    "spot": (_latest, _read_spot),
    "blocks": (lambda answer: _objects(answer, "CapacityBlockOfferings"), _read_block),
}
_CALLS = tuple(_READERS)  # in this order: machines before prices
