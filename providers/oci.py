"""Live prices of Oracle Cloud: the price list API and the shapes of the cost estimator, no credentials.

Prices: ``items[{partNumber, metricName, currencyCodeLocalizations[{currencyCode, prices[{model, value}]}]}]``
(docs.oracle.com, "Estimating costs": the price list API). Shapes: ``items[{name, hidden, status, gpuQty,
bundleMemoryQty, allowPreemptible, subType{value}, products[{partNumber, qty, type{value}}]}]``, the data file
of the cost estimator, which no documentation describes (form as recorded by github.com/dstackai/gpuhunt). A
GPU shape is billed by its "ocpu" product: per GPU or per OCPU, as the metric says. One price holds in all
commercial regions; which region has a shape is not published. Preemptible capacity costs half
(docs.oracle.com/iaas/Content/Compute/Concepts/preemptible.htm).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from planner.types import Offer
from providers import http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.reading import Collector, Json, Node, Price, UnreadError

SOURCE = "Oracle Cloud price list API"
PREEMPTIBLE_SHARE = Decimal("0.5")
VCPUS_PER_OCPU = 2
_SUFFIX = re.compile(r"\s*\(.*\)\s*$")  # "BM.GPU.GB200.4 (NVL72)"
_GPU_SHAPE = re.compile(r"^(?:BM|VM)\.(GPU\d?)(?:\.([A-Za-z0-9-]+))?\.\d+$")


@dataclass(frozen=True, slots=True)
class Oci:
    """See the module. ``regions``: where offers are listed, ``()`` for those of ``data/regions.csv``."""

    url: str = "https://apexapps.oracle.com/pls/apex/cetools/api/v1/products/"
    shapes_url: str = "https://www.oracle.com/a/ocom/docs/cloudestimator2/data/shapes.json"
    regions: tuple[str, ...] = ()
    provider: str = "oci"
    complete: bool = True

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Asks without credentials."""
        return None

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """Prices, then shapes."""
        with http.session() as using:
            return [
                http.ask(using, self.url, params={"currencyCode": "USD"}),
                http.ask(using, self.shapes_url),
            ]

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of every GPU shape, on demand and preemptible."""
        items = [item for page in raw for item in _items(page)]
        products = {str(i["partNumber"]): i for i in items if isinstance(i, dict) and "partNumber" in i}
        shapes = [i for i in items if not (isinstance(i, dict) and "partNumber" in i)]
        found = Collector(self.provider)
        regions = self.regions or reading.regions_of(self.provider)
        found.each(shapes, lambda shape: _offers(found, shape, products, regions, seen))
        return found.parsed()


ADAPTER = Oci()


def _items(page: bytes) -> list[object]:
    """Rows of an answer."""
    items = http.document(page).get("items")
    if not isinstance(items, list):
        raise AnswerError("no items in the answer")
    return items


def _offers(
    found: Collector,
    shape: object,
    products: Mapping[str, Json],
    regions: Sequence[str],
    seen: datetime,
) -> Iterator[Offer]:
    """Offers of one shape in all regions."""
    if not isinstance(shape, dict):
        raise UnreadError("a shape is not an object")
    name = _SUFFIX.sub("", reading.text(shape, "name"))
    is_gpu = reading.text(shape, "subType", "value") == "gpu"
    if not is_gpu or shape.get("hidden") is True or reading.text(shape, "status") != "ACTIVE":
        return
    product = _product(shape)
    price = _price(product, products, reading.whole(shape, "gpuQty"))
    node = _node(found, name, shape, product)
    if node is None:
        return
    prices = [("on-demand", price)]
    if shape.get("allowPreemptible") is True and price.usd_per_hour is not None:
        prices.append(("spot", Price(price.usd_per_hour * PREEMPTIBLE_SHARE)))
    for market, here in prices:
        for region in regions:
            yield reading.live_offer(
                found.provider,
                name,
                node,
                here,
                region=region,
                market=market,
                seen=seen,
                source=SOURCE,
                note="one price in all regions; which have the shape is not published",
            )


def _product(shape: Json) -> Json:
    """Product that a GPU shape is billed by."""
    of_gpu = [p for p in reading.rows(shape, "products") if reading.text(p, "type", "value") == "ocpu"]
    if len(of_gpu) != 1:
        raise UnreadError(f"{len(of_gpu)} products of type ocpu")
    return of_gpu[0]


def _price(product: Json, products: Mapping[str, Json], gpus: int) -> Price:
    """Price of a node: per GPU or per OCPU, as the metric of the part says."""
    part = reading.text(product, "partNumber")
    listed = products.get(part)
    if listed is None:
        return Price(None, f"no price of part {part}")
    in_usd = [
        row
        for place in reading.rows(listed, "currencyCodeLocalizations")
        if place.get("currencyCode") == "USD"
        for row in reading.rows(place, "prices")
        if row.get("model") == "PAY_AS_YOU_GO"
    ]
    if len(in_usd) != 1:
        raise UnreadError(f"{len(in_usd)} pay-as-you-go prices of {part} in USD")
    metric = reading.text(listed, "metricName").upper()
    if metric == "GPU PER HOUR":
        units = gpus
    elif metric == "OCPU PER HOUR":
        units = reading.whole(product, "qty")
    else:
        raise UnreadError(f"metric {metric!r}")
    return reading.node_price(reading.member(in_usd[0], "value"), gpus=units)


def _node(found: Collector, name: str, shape: Json, product: Json) -> Node | None:
    """Machine of a shape: that of the catalog, else what its name and its row say.

    The memory that a row states of its GPUs is of all of them or of one: it is not looked at.
    """
    known = reading.known_node(found.provider, name)
    if known is not None:
        return known
    count = reading.whole(shape, "gpuQty")
    parts = _GPU_SHAPE.match(name)
    gpu = found.gpu(parts[2] or parts[1] if parts else name)
    if gpu is None or count < 1:
        return None
    ocpus = reading.number(product.get("qty"))
    return reading.new_node(
        gpu,
        count,
        vcpus=int(ocpus * VCPUS_PER_OCPU) if ocpus else None,
        host_memory_bytes=reading.gib_bytes(shape.get("bundleMemoryQty")),
    )
