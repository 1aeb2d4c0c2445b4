"""Live prices of Verda (formerly DataCrunch): ``/v1/instance-types`` and ``/v1/instance-availability``.

Documented form (api.verda.com/v1/docs, OpenAPI 3.1.0; the same in its Python SDK 1.25.0): a list of
``{instance_type, model, price_per_hour, spot_price, currency, cpu{number_of_cores}, gpu{description,
number_of_gpus}, memory{size_in_gigabytes}, gpu_memory{size_in_gigabytes}}``, prices as text, of the whole
machine; and a list of ``{location_code, availabilities[instance_type]}``, one for each market. One price
holds in all locations. Where a spot price is missing there is no spot offer: never the price on demand.
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

CLIENT_ID, CLIENT_SECRET = "VERDA_CLIENT_ID", "VERDA_CLIENT_SECRET"
SOURCE = "Verda API, instance-types"
MARKETS = ("on-demand", "spot")
_COUNT = re.compile(r"^\s*\d+\s*x\s+", re.IGNORECASE)
_MEMORY = re.compile(r"\s+\d+\s*GB$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Verda:
    """See the module."""

    url: str = "https://api.verda.com/v1"
    provider: str = "verda"
    complete: bool = True

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Needs a client id and secret."""
        missing = [k for k in (CLIENT_ID, CLIENT_SECRET) if not environment.get(k)]
        if not missing:
            return None
        exports = " && ".join(f"export {k}=…" for k in missing)
        hint = f"{exports}   (console.verda.com, Keys, Cloud API Credentials)"
        return Unavailable(f"no credentials ({', '.join(missing)})", hint)

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """Types, then what is free on demand, then what is free as spot."""
        secrets = {"client_id": environment[CLIENT_ID], "client_secret": environment[CLIENT_SECRET]}
        try:
            with http.session() as using:
                body = {"grant_type": "client_credentials", **secrets}
                answer = http.document(http.ask(using, f"{self.url}/oauth2/token", body=body))
                token = answer.get("access_token")
                if not isinstance(token, str) or not token:
                    raise AnswerError("no access_token in the answer")
                asked = (
                    ("instance-types", {"currency": "usd"}),
                    ("instance-availability", {"isSpot": "false"}),
                    ("instance-availability", {"isSpot": "true"}),
                )
                headers = {"Authorization": f"Bearer {token}"}
                return [
                    http.ask(using, f"{self.url}/{path}", params=params, headers=headers)
                    for path, params in asked
                ]
        except AnswerError as error:
            raise AnswerError(http.clean(str(error), list(secrets.values()))) from None

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Offers of every type in every location that has it free; the first availability is on demand."""
        pages = [_rows(page) for page in raw]
        types = [row for page in pages if _is_types(page) for row in page]
        free = [_free(page) for page in pages if not _is_types(page)]
        if types and len(free) != len(MARKETS):
            raise AnswerError(f"{len(free)} availabilities in the answer, not one for each market")
        found = Collector(self.provider)
        where = dict(zip(MARKETS, free, strict=False))
        found.each(types, lambda entry: _offers(found, entry, where, seen))
        return found.parsed()


ADAPTER = Verda()


def _rows(page: bytes) -> list[object]:
    """Rows of an answer."""
    read = http.load(page)
    if not isinstance(read, list):
        raise AnswerError("the answer is not a list")
    return read


def _is_types(page: Sequence[object]) -> bool:
    """Tell the types from what is free where: a list of which may be empty."""
    return bool(page) and not (isinstance(page[0], dict) and "location_code" in page[0])


def _free(page: Sequence[object]) -> dict[str, list[str]]:
    """Locations by the type that is free there."""
    where: dict[str, list[str]] = {}
    for entry in page:
        location = entry.get("location_code") if isinstance(entry, dict) else None
        types = entry.get("availabilities") if isinstance(entry, dict) else None
        if not isinstance(location, str) or not isinstance(types, list):
            raise AnswerError("an availability is not of the documented form")
        for name in types:
            where.setdefault(str(name), []).append(location)
    return where


def _offers(
    found: Collector, entry: object, free: Mapping[str, Mapping[str, Sequence[str]]], seen: datetime
) -> Iterator[Offer]:
    """Offers of one type, on demand and spot."""
    if not isinstance(entry, dict):
        raise UnreadError("a type is not an object")
    name = reading.text(entry, "instance_type")
    if reading.whole(entry, "gpu", "number_of_gpus") < 1:
        return
    if reading.text(entry, "currency").lower() != "usd":
        raise UnreadError("a price that is not in USD")
    prices = {"on-demand": reading.node_price(reading.member(entry, "price_per_hour"))}
    if entry.get("spot_price") not in (None, ""):
        prices["spot"] = reading.node_price(entry["spot_price"])
    node = _node(found, name, entry)
    if node is None:
        return
    for market, price in prices.items():
        yield from _places(found, name, node, price, market, free[market].get(name, ()), seen)


def _places(
    found: Collector,
    name: str,
    node: Node,
    price: Price,
    market: str,
    places: Sequence[str],
    seen: datetime,
) -> Iterator[Offer]:
    """Offers of one price; a type that is free nowhere is one offer that is not available."""
    for place in places or ("any",):
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
            note="" if places else "free in no location when seen",
        )


def _node(found: Collector, name: str, entry: Json) -> Node | None:
    """Machine of a type: that of the catalog, else what the description says ("2x RTX A6000 48GB")."""
    known = reading.known_node(found.provider, name)
    if known is not None:
        return known
    count = reading.whole(entry, "gpu", "number_of_gpus")
    memory = reading.number(reading.member(entry, "gpu_memory", "size_in_gigabytes"))
    said = _COUNT.sub("", reading.text(entry, "gpu", "description"))
    gpu = found.gpu(said, _MEMORY.sub("", said), memory_gb=memory / Decimal(count) if memory else None)
    if gpu is None:
        return None
    return reading.new_node(
        gpu,
        count,
        vcpus=reading.whole(entry, "cpu", "number_of_cores"),
        host_memory_bytes=reading.gib_bytes(reading.member(entry, "memory", "size_in_gigabytes")),
        max_nodes=1,
    )
