"""Live prices of Azure: the public Retail Prices API, no credentials.

Documented form (learn.microsoft.com, Azure Retail Prices): ``Items[{currencyCode, retailPrice,
armRegionName, effectiveStartDate, meterName, productName, skuName, unitOfMeasure, type, armSkuName,
isPrimaryMeterRegion}]``, ``NextPageLink``. One query a region: paging by ``$skip`` drifts over a long list.
GPU and count come from the catalog's machine of that name: a size's name does not say how many GPUs it has
(ND96isr was once listed with 12), so an unknown size is counted, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from planner.types import Offer
from providers import http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.reading import Collector, Json, UnreadError

if TYPE_CHECKING:
    import requests

SOURCE = "Azure Retail Prices API"
AT_ONCE = 4
_FILTER = (
    "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq '{region}'"
    " and contains(armSkuName, 'Standard_N') and contains(productName, 'Windows') eq false"
)
_FULL_PAGES = (100, 1000)
_SKIP = "&$skip="


@dataclass(frozen=True, slots=True)
class Azure:
    """See the module. ``regions``: where to ask, ``()`` for those of ``data/regions.csv``."""

    url: str = "https://prices.azure.com/api/retail/prices"
    regions: tuple[str, ...] = ()
    provider: str = "azure"
    complete: bool = False

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Asks without credentials."""
        return None

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """All pages of all regions, a few regions at once."""
        regions = self.regions or reading.regions_of(self.provider)
        with http.session() as using, ThreadPoolExecutor(AT_ONCE) as several:
            found = [*several.map(lambda region: self._tried(using, region), regions)]
        failed = [error for _, error in found if error is not None]
        if len(failed) == len(found):
            raise failed[0] if failed else AnswerError("no region was asked")
        return [page for pages, _ in found for page in pages]

    def _tried(self, using: requests.Session, region: str) -> tuple[list[bytes], AnswerError | None]:
        """All pages of one region, or one that says why there are none: the others go on."""
        try:
            return self._region(using, region), None
        except AnswerError as error:
            page = {"Items": [], "missing_region": region, "why": str(error)}
            return [json.dumps(page).encode()], error

    def _region(self, using: requests.Session, region: str) -> list[bytes]:
        """All pages of one region."""
        first = f"{self.url}?{urlencode({'$filter': _FILTER.format(region=region)})}"
        return http.follow(lambda url: http.ask(using, url), first, self._next)

    def _next(self, here: str, page: Json) -> str | None:
        """Next page. The link was once left empty on full pages: then count on from where this one began."""
        link = page.get("NextPageLink")
        if isinstance(link, str) and link:
            if urlsplit(link).hostname != urlsplit(self.url).hostname:
                raise AnswerError("the next page is on another host")
            return link
        items = page.get("Items")
        if not isinstance(items, list) or len(items) not in _FULL_PAGES:
            return None
        base, _, begun = here.partition(_SKIP)
        return f"{base}{_SKIP}{int(begun or 0) + len(items)}"

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of Linux machines, on demand and spot."""
        found = Collector(self.provider)
        items: list[Json] = []
        for page in map(http.document, raw):
            listed = page.get("Items")
            if "missing_region" in page:
                found.missing[str(page["missing_region"])] = str(page.get("why"))
            if not isinstance(listed, list):
                raise AnswerError("no Items in the answer")
            items += [i for i in listed if isinstance(i, dict)]
            found.num_unread += sum(not isinstance(i, dict) for i in listed)
        current = _current(items, seen)
        found.each(current, lambda item: _offers(found, item, seen))
        return found.parsed()


ADAPTER = Azure()


def _text(item: Json, name: str) -> str:
    """Text of a field that may be missing."""
    return str(item.get(name) or "")


def _is_offer(item: Json) -> bool:
    """Tell the price of a Linux machine by the hour from all else that the service lists under its name."""
    product, meter = _text(item, "productName"), f"{_text(item, 'meterName')} {_text(item, 'skuName')}"
    return (
        _text(item, "type") in ("Consumption", "")  # a row that lacks it is not read, in _offers
        and not product.endswith(" Win")
        and not any(w in product for w in ("Windows", "Cloud Services", "CloudServices", "Dedicated"))
        and "Low Priority" not in meter
    )


def _current(items: Sequence[Json], seen: datetime) -> list[Json]:
    """Of rows that mean the same, the one in force: begun by ``seen``, of a primary meter, the last begun.

    A price of the future is listed beside that of today.
    """
    kept: dict[tuple[str, ...], tuple[tuple[bool, str], Json]] = {}
    now = seen.strftime("%Y-%m-%dT%H:%M:%SZ")
    for item in items:
        begun = _text(item, "effectiveStartDate")
        if not _is_offer(item) or begun > now:
            continue
        names = tuple(_text(item, n) for n in ("armSkuName", "armRegionName", "meterName", "currencyCode"))
        order = (bool(item.get("isPrimaryMeterRegion", True)), begun)
        if names not in kept or kept[names][0] < order:
            kept[names] = (order, item)
    return [item for _, item in kept.values()]


def _offers(found: Collector, item: Json, seen: datetime) -> Iterator[Offer]:
    """Offer of one row."""
    size = reading.text(item, "armSkuName")
    region = reading.text(item, "armRegionName").lower()
    if reading.text(item, "type") != "Consumption" or not reading.text(item, "productName"):
        raise UnreadError("not a price by consumption")
    if reading.text(item, "currencyCode") != "USD":
        raise UnreadError("a price that is not in USD")
    if reading.text(item, "unitOfMeasure") != "1 Hour":
        raise UnreadError("a price that is not by the hour")
    node = reading.known_node(found.provider, size)
    if node is None:
        found.names.append(size)
        return
    spot = "Spot" in f"{reading.text(item, 'meterName')} {_text(item, 'skuName')}"
    yield reading.live_offer(
        found.provider,
        size,
        node,
        reading.node_price(reading.member(item, "retailPrice")),
        region=region,
        market="spot" if spot else "on-demand",
        seen=seen,
        source=SOURCE,
    )
