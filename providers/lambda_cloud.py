"""Live prices of Lambda: ``GET /api/v1/instance-types``, bearer key.

Documented form: ``data.{name}.instance_type{name, description, gpu_description, price_cents_per_hour,
specs{vcpus, memory_gib, storage_gib, gpus}}`` and ``data.{name}.regions_with_capacity_available[{name}]``
(Lambda Cloud API, OpenAPI 1.10.0). One price holds in all regions; no spot. A type that no region has free
is one offer with region ``any``, not available.
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

KEY = "LAMBDA_API_KEY"
SOURCE = "Lambda Cloud API, instance-types"
_MODEL = re.compile(r"^\s*(?:\d+\s*x\s*)?([\w ]+?)\s*\((\d+)\s*GB\s*(\w*)\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Lambda:
    """See the module."""

    url: str = "https://cloud.lambda.ai/api/v1/instance-types"
    provider: str = "lambda"
    complete: bool = True

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Needs an API key."""
        missing = Unavailable(f"no credentials ({KEY})", f"export {KEY}=…   (cloud.lambda.ai, API keys)")
        return None if environment.get(KEY) else missing

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """One page."""
        headers = {"Authorization": f"Bearer {environment[KEY]}"}
        with http.session() as using:
            return [http.ask(using, self.url, headers=headers)]

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of every type in every region that has capacity."""
        found = Collector(self.provider)
        for page in raw:
            types = http.document(page).get("data")
            if not isinstance(types, dict):
                raise AnswerError("no data in the answer")
            found.each(types.items(), lambda item: _offers(found, *item, seen))
        return found.parsed()


ADAPTER = Lambda()


def _offers(found: Collector, name: str, entry: object, seen: datetime) -> Iterator[Offer]:
    """Offers of one type."""
    if not isinstance(entry, dict):
        raise UnreadError(f"{name} is not an object")
    about = reading.member(entry, "instance_type")
    if not isinstance(about, dict):
        raise UnreadError("instance_type is not an object")
    if reading.whole(about, "specs", "gpus") < 1:
        return
    node = _node(found, name, about)
    if node is None:
        return
    price = _price(about)
    free = [reading.text(r, "name") for r in reading.rows(entry, "regions_with_capacity_available")]
    for region in free or ["any"]:
        yield reading.live_offer(
            found.provider,
            name,
            node,
            price,
            region=region,
            market="on-demand",
            seen=seen,
            source=SOURCE,
            available=bool(free),
            note="" if free else "sold out in every region when seen",
        )


def _price(about: Json) -> Price:
    """Whole cents an hour, of the whole node."""
    cents = reading.number(reading.member(about, "price_cents_per_hour"))
    return reading.node_price(None if cents is None else cents / Decimal(100))


def _node(found: Collector, name: str, about: Json) -> Node | None:
    """Machine of a type: that of the catalog, else what the description says ("8x B200 (180 GB SXM6)")."""
    known = reading.known_node(found.provider, name)
    if known is not None:
        return known
    said = str(about.get("gpu_description") or about.get("description") or name)
    model = _MODEL.match(said)
    if model is None:
        gpu = found.gpu(said)
    else:
        names = (f"{model[1]} {model[3]} {model[2]}GB", f"{model[1]} {model[2]}GB", model[1])
        gpu = found.gpu(*names, memory_gb=Decimal(model[2]))
    if gpu is None:
        return None
    return reading.new_node(
        gpu,
        reading.whole(about, "specs", "gpus"),
        vcpus=reading.whole(about, "specs", "vcpus"),
        host_memory_bytes=reading.gib_bytes(reading.member(about, "specs", "memory_gib")),
        local_disk_bytes=reading.gib_bytes(reading.member(about, "specs", "storage_gib")),
        max_nodes=1,
    )
