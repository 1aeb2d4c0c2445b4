"""Live prices of Acme: ``GET /v1/machines``, bearer key.

A made-up provider: copy this file to ``providers/<name>.py`` and change what differs. The docstring says
which form of answer is read, and where it is documented.

Documented form: ``machines[{name, gpu, gpu_count, gpu_memory_gb, vcpus, memory_gib, usd_per_gpu_hour,
spot_usd_per_gpu_hour, regions[]}]`` and ``next``. Prices are of ONE GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from urllib.parse import urlencode

from planner.types import Offer
from providers import http, reading
from providers.base import AnswerError, Parsed, Unavailable
from providers.reading import Collector, Json, Node, UnreadError

KEY = "ACME_API_KEY"
SOURCE = "Acme API, machines"


@dataclass(frozen=True, slots=True)
class Acme:
    """See the module. ``complete``: what an answer leaves out is not sold any more."""

    url: str = "https://api.acme.example/v1/machines"
    provider: str = "acme"
    complete: bool = True

    def unavailable(self, environment: Mapping[str, str]) -> Unavailable | None:
        """Say what is missing, and what to type. A provider that needs no key returns ``None``."""
        missing = Unavailable(f"no credentials ({KEY})", f"export {KEY}=…   (acme.example, API keys)")
        return None if environment.get(KEY) else missing

    def fetch(self, environment: Mapping[str, str]) -> Sequence[bytes]:
        """Network, and nothing else: every page as it came. The key goes into a header, never into a URL."""
        headers = {"Authorization": f"Bearer {environment[KEY]}"}

        def following(here: str, page: Json) -> str | None:
            token = page.get("next")
            return f"{self.url}?{urlencode({'page': str(token)})}" if token else None

        with http.session() as using:
            return http.follow(partial(http.ask, using, headers=headers), self.url, following)

    def parse(self, raw: Sequence[bytes], seen: datetime) -> Parsed:
        """Read the pages: no network, no clock. The collector counts what it cannot read."""
        found = Collector(self.provider)
        for page in raw:
            machines = http.document(page).get("machines")
            if not isinstance(machines, list):
                raise AnswerError("no machines in the answer")
            found.each(machines, lambda machine: _offers(found, machine, seen))
        return found.parsed()


ADAPTER = Acme()  # this name makes the module an adapter


def _offers(found: Collector, machine: object, seen: datetime) -> Iterator[Offer]:
    """Offers of one machine: raise ``UnreadError`` for a row of another form, return for one to leave out."""
    if not isinstance(machine, dict):
        raise UnreadError("a machine is not an object")
    name, count = reading.text(machine, "name"), reading.whole(machine, "gpu_count")
    if count < 1:
        return
    prices = {"on-demand": reading.member(machine, "usd_per_gpu_hour")}
    if machine.get("spot_usd_per_gpu_hour") is not None:  # never the price on demand in its place
        prices["spot"] = machine["spot_usd_per_gpu_hour"]
    regions = reading.member(machine, "regions")
    if not isinstance(regions, list):
        raise UnreadError("regions is not a list")
    node = _node(found, name, count, machine)
    if node is None:
        return
    for market, per_gpu in prices.items():
        for region in regions or ["any"]:
            yield reading.live_offer(
                found.provider,
                name,
                node,
                reading.node_price(per_gpu, gpus=count),  # the one place where per GPU becomes per node
                region=str(region),
                market=market,
                seen=seen,
                source=SOURCE,
                available=bool(regions),
                note="" if regions else "sold out in every region when seen",
            )


def _node(found: Collector, name: str, count: int, machine: Json) -> Node | None:
    """Machine of the catalog by its name, else what the row says; ``None`` for a GPU that we do not know.

    Memory of a GPU is only compared with that of our table: cards of one name with less memory exist.
    """
    known = reading.known_node(found.provider, name)
    if known is not None:
        return known
    memory = reading.number(reading.member(machine, "gpu_memory_gb"))
    gpu = found.gpu(reading.text(machine, "gpu"), memory_gb=memory)
    if gpu is None:
        return None
    return reading.new_node(
        gpu,
        count,
        vcpus=reading.whole(machine, "vcpus"),
        host_memory_bytes=reading.gib_bytes(reading.member(machine, "memory_gib")),
        max_nodes=1,  # no network that a training could use is stated
    )
