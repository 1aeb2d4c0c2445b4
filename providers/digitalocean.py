"""Live prices of DigitalOcean: ``GET /v2/sizes``, bearer token.

Documented form (docs.digitalocean.com/reference/api, Sizes): ``sizes[{slug, memory (MiB), vcpus,
price_hourly, regions[], available, gpu_info{count, model, vram{amount, unit}},
disk_info[{type, size{amount, unit}}]}]`` and ``links.pages.next``. The price is of the whole Droplet and
``vram`` of all its GPUs. No spot. A size without regions is sold out: one offer that is not available.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from urllib.parse import urlsplit

from planner.types import Offer
from providers import http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.reading import Collector, Json, Node, UnreadError

KEYS = ("DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_TOKEN")
SOURCE = "DigitalOcean API, sizes"
PER_PAGE = 200  # the most that the API gives
_GIB = {"gib": Decimal(1), "tib": Decimal(1024), "mib": 1 / Decimal(1024)}


@dataclass(frozen=True, slots=True)
class DigitalOcean:
    """See the module."""

    url: str = "https://api.digitalocean.com/v2/sizes"
    provider: str = "digitalocean"
    complete: bool = True

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Needs a token that may read sizes."""
        missing = Unavailable(
            f"no credentials ({KEYS[0]})",
            f"export {KEYS[0]}=…   (cloud.digitalocean.com, API, tokens: sizes:read, regions:read)",
        )
        return None if any(environment.get(k) for k in KEYS) else missing

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """All pages. The token is only sent to the host that we asked first."""
        token = next(environment[k] for k in KEYS if environment.get(k))
        headers = {"Authorization": f"Bearer {token}"}
        with http.session() as using:
            get = partial(http.ask, using, headers=headers)
            return http.follow(get, f"{self.url}?per_page={PER_PAGE}", self._next)

    def _next(self, here: str, page: Json) -> str | None:
        """Address of the next page."""
        links = page.get("links")
        pages = links.get("pages") if isinstance(links, dict) else None
        link = pages.get("next") if isinstance(pages, dict) else None
        if not isinstance(link, str) or not link:
            return None
        if urlsplit(link).netloc != urlsplit(self.url).netloc:
            raise AnswerError("the next page is on another host")
        return link

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of every size with GPUs, in every region that has it."""
        found = Collector(self.provider)
        for page in raw:
            sizes = http.document(page).get("sizes")
            if not isinstance(sizes, list):
                raise AnswerError("no sizes in the answer")
            found.each(sizes, lambda entry: _offers(found, entry, seen))
        return found.parsed()


ADAPTER = DigitalOcean()


def _offers(found: Collector, entry: object, seen: datetime) -> Iterator[Offer]:
    """Offers of one size."""
    if not isinstance(entry, dict):
        raise UnreadError("a size is not an object")
    name = reading.text(entry, "slug")
    if not entry.get("gpu_info"):
        if name.startswith("gpu-"):
            raise UnreadError("a GPU size without gpu_info")
        return
    price = reading.node_price(reading.member(entry, "price_hourly"))
    regions = reading.member(entry, "regions")
    if not isinstance(regions, list):
        raise UnreadError("regions is not a list")
    node = _node(found, name, entry)
    if node is None:
        return
    for region in regions or ["any"]:
        yield reading.live_offer(
            found.provider,
            name,
            node,
            price,
            region=str(region),
            market="on-demand",
            seen=seen,
            source=SOURCE,
            available=bool(regions) and entry.get("available") is not False,
            note="" if regions else "sold out in every region when seen",
        )


def _node(found: Collector, name: str, entry: Json) -> Node | None:
    """Machine of a size: that of the catalog, else what the answer says."""
    known = reading.known_node(found.provider, name)
    if known is not None:
        return known
    count = reading.whole(entry, "gpu_info", "count")
    if count < 1:
        raise UnreadError("a GPU size without GPUs")
    model = reading.text(entry, "gpu_info", "model")
    vram = _gib(reading.member(entry, "gpu_info", "vram"))
    bare = model.partition("_")[2].replace("_", " ")
    gpu = found.gpu(bare, model, memory_gb=None if vram is None else vram / count)
    if gpu is None:
        return None
    disks = [_gib(d.get("size")) for d in reading.rows(entry, "disk_info")]
    return reading.new_node(
        gpu,
        count,
        vcpus=reading.whole(entry, "vcpus"),
        host_memory_bytes=reading.gib_bytes(Decimal(reading.whole(entry, "memory")) / 1024),
        local_disk_bytes=reading.gib_bytes(None if None in disks else sum(d for d in disks if d)),
        max_nodes=1,
    )


def _gib(size: object) -> Decimal | None:
    """GiB of ``{amount, unit}``; ``None`` where it does not say."""
    if not isinstance(size, dict):
        return None
    amount, unit = reading.number(size.get("amount")), str(size.get("unit", "")).lower()
    return amount * _GIB[unit] if amount is not None and unit in _GIB else None
