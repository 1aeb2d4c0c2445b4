"""The user's own price list: negotiated discounts, reserved capacity, a private or regional cloud.

A CSV file with a header, or a YAML file: a list of rows, or ``{rates: {EUR: 1.08}, rows: [...]}``. A row is a
price (``price_per_hour`` of a machine, or ``price_per_gpu_hour``) or a discount (``discount_factor`` that the
prices of ``provider``, and of its type, region and market where they are stated, are multiplied by; the most
particular counts). Prices in another currency need a stated rate: ``usd_per_unit`` of the row, or ``rates``.
A machine of the catalog needs no GPU. A row that cannot be read refuses the whole list, with its line and
field: no list is half read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

from pydantic import Field

from planner.errors import UserError, did_you_mean
from planner.hardware.gpus import gpu
from planner.records import build, check_keys
from planner.types import Market, Offer, Record
from providers.base import key, sort_key
from providers.catalog import GIB, provider_rules
from providers.reading import Node, known_node, known_types, new_node

EXAMPLE = "provider,instance_type,market,price_per_hour   (see the README, 'Your own prices')"
_OF_DISCOUNTS = ("provider", "instance_type", "region", "market", "discount_factor", "note")
_TEXTS = (
    "provider",
    "instance_type",
    "region",
    "zone",
    "gpu",
    "currency",
    "price_date",
    "intra_node",
    "inter_node",
    "not_included",
    "note",
)


class PriceRow(Record):
    """A row of a price list. ``price_per_hour`` is of one machine. ``not_included``: words between ``|``."""

    provider: str = Field(min_length=1)
    instance_type: str = ""
    region: str = ""
    zone: str = ""
    market: Market | None = None
    gpu: str = ""
    gpus: int | None = Field(default=None, ge=1, le=1024)
    price_per_hour: Decimal | None = Field(default=None, gt=0, le=10**6)
    price_per_gpu_hour: Decimal | None = Field(default=None, gt=0, le=10**5)
    discount_factor: Decimal | None = Field(default=None, gt=0, le=10)
    currency: str = "USD"
    usd_per_unit: Decimal | None = Field(default=None, gt=0, le=10**6)
    price_date: str = ""
    vcpus: int | None = Field(default=None, ge=1)
    memory_gib: Decimal | None = Field(default=None, gt=0)
    disk_gib: Decimal | None = Field(default=None, gt=0)
    intra_node: str = ""
    inter_node: str = ""
    network_gbit_per_s: float | None = Field(default=None, gt=0)
    max_nodes: int | None = Field(default=None, ge=1)
    min_billing_s: int | None = Field(default=None, ge=0)
    billing_increment_s: int | None = Field(default=None, ge=1)
    not_included: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Discount:
    """What prices are multiplied by. Empty fields mean all. ``where``: file and line."""

    provider: str
    instance_type: str
    region: str
    market: str
    factor: Decimal
    where: str

    def covers(self, offer: Offer) -> bool:
        """Whether it speaks of this offer."""
        return (
            self.provider == offer.provider
            and self.instance_type in ("", offer.instance_type)
            and self.region in ("", offer.region)
            and self.market in ("", offer.market)
        )

    @property
    def particular(self) -> int:
        """How many fields it states: the most particular discount counts."""
        return sum(bool(f) for f in (self.instance_type, self.region, self.market))


@dataclass(frozen=True, slots=True)
class PriceList:
    """A price list that was read whole: its offers, sorted, and its discounts."""

    offers: tuple[Offer, ...]
    discounts: tuple[Discount, ...]


@dataclass(frozen=True, slots=True)
class _Raw:
    """Values of a row as they stand in the file, and where."""

    where: str
    values: Mapping[str, object]


def read(path: str) -> PriceList:
    """Read a price list. A row without ``price_date`` is as old as the file. Raises ``UserError``."""
    place = Path(path.replace("\0", "?")).expanduser()
    try:
        text = place.read_text(encoding="utf-8-sig")
        seen = datetime.fromtimestamp(place.stat().st_mtime, tz=UTC)
    except FileNotFoundError:
        raise UserError(f"--price-list: no such file: {path}", "check the path") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8
        raise UserError(f"--price-list: cannot read {path!r:.200} ({error})", "a CSV or YAML file") from None
    return parse(text, place.name, seen)


def parse(text: str, name: str, seen: datetime) -> PriceList:
    """Read the text of the file ``name``: YAML by its ending, else CSV. Pure. Raises ``UserError``."""
    is_yaml = name.lower().endswith((".yaml", ".yml"))
    raw, rates = _yaml_rows(text, name) if is_yaml else (_csv_rows(text, name), {})
    if not raw:
        raise UserError(f"{name}: no row", EXAMPLE)
    offers: dict[tuple[str, ...], tuple[str, Offer]] = {}
    discounts: dict[tuple[str, ...], Discount] = {}
    for each in raw:
        row = build(PriceRow, {k: str(v) if k in _TEXTS else v for k, v in each.values.items()}, each.where)
        if row.discount_factor is not None:
            found = _discount(row, each)
            at = (found.provider, found.instance_type, found.region, found.market)
            _only_once(each.where, discounts[at].where if at in discounts else None)
            discounts[at] = found
        else:
            offer = _offer(row, each.where, rates, seen)
            _only_once(each.where, offers[key(offer)][0] if key(offer) in offers else None)
            offers[key(offer)] = (each.where, offer)
    listed = sorted((o for _, o in offers.values()), key=sort_key)
    return PriceList(tuple(listed), tuple(discounts.values()))


def applied(listed: PriceList, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """``offers`` with the discounts, and the offers of the list over those of the same key. Sorted.

    Raises ``UserError`` for a discount that no offer has anything to do with.
    """
    own = {key(o) for o in listed.offers}
    used: set[str] = set()
    done = [_discounted(o, listed.discounts, used) for o in offers if key(o) not in own]
    for each in listed.discounts:
        if each.where not in used and not any(each.covers(o) for o in offers):
            near = did_you_mean(each.provider, {o.provider for o in offers})
            raise UserError(f"{each.where}: the discount is of no offer{near}", "plan prices   lists them")
    return tuple(sorted([*done, *listed.offers], key=sort_key))


def _discounted(offer: Offer, discounts: Sequence[Discount], used: set[str]) -> Offer:
    """``offer`` at its most particular discount, if any."""
    fitting = [d for d in discounts if d.covers(offer)]
    if not fitting:
        return offer
    best = max(fitting, key=lambda d: d.particular)
    used.add(best.where)
    if offer.usd_per_hour is None:
        return offer
    note = f"× {best.factor} ({best.where})"
    return offer.model_copy(
        update={
            "usd_per_hour": offer.usd_per_hour * best.factor,
            "note": f"{offer.note}; {note}" if offer.note else note,
        }
    )


# ---------------------------------------------------------------------------------- rows


def _csv_rows(text: str, name: str) -> list[_Raw]:
    """Rows of a CSV file; empty cells are not said. Commas or semicolons; ``#`` begins a comment line."""
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    reader = csv.reader(io.StringIO(text), delimiter=";" if ";" in first and "," not in first else ",")
    head: list[str] = []
    rows = []
    try:
        for cells in reader:
            where = f"{name} line {reader.line_num}"
            if not any(c.strip() for c in cells) or cells[0].lstrip().startswith("#"):
                continue
            if not head:
                head = [c.strip() for c in cells]
                check_keys(dict.fromkeys(head), PriceRow.model_fields, where)
                continue
            if len(cells) > len(head):
                raise UserError(f"{where}: {len(cells)} cells, the header has {len(head)}", EXAMPLE)
            values = {h: c.strip() for h, c in zip(head, cells, strict=False) if c.strip()}
            rows.append(_Raw(where, values))
    except csv.Error as error:
        raise UserError(f"{name} line {reader.line_num}: not CSV ({error})", EXAMPLE) from None
    return rows


def _yaml_rows(text: str, name: str) -> tuple[list[_Raw], dict[str, Decimal]]:
    """Rows of a YAML file with their lines, and the rates that it states."""
    import yaml  # only where a file is read

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())[:160]
        raise UserError(f"{name}: not YAML ({said})", EXAMPLE) from None
    rates: dict[str, Decimal] = {}
    if isinstance(content, dict) and isinstance(node, yaml.MappingNode):
        check_keys(content, ("rates", "rows"), name)
        rates = _rates(content.get("rates") or {}, name)
        content = content.get("rows")
        node = next((value for k, value in node.value if k.value == "rows"), None)
    if not isinstance(content, list) or not isinstance(node, yaml.SequenceNode):
        raise UserError(f"{name}: not a list of rows", "rows: [{provider: aws, discount_factor: 0.85}]")
    lines = [each.start_mark.line + 1 for each in node.value]
    rows = []
    for line, values in zip(lines, content, strict=True):
        if not isinstance(values, dict):
            raise UserError(f"{name} line {line}: a row is not a mapping of fields", EXAMPLE)
        rows.append(_Raw(f"{name} line {line}", {k: v for k, v in values.items() if v not in (None, "")}))
    return rows, rates


def _rates(values: object, name: str) -> dict[str, Decimal]:
    """USD per unit of each currency."""
    if not isinstance(values, dict):
        raise UserError(f"{name}: rates is not a mapping", "rates: {EUR: 1.08}")
    rates = {}
    for currency, value in values.items():
        row = build(PriceRow, {"provider": "any", "usd_per_unit": value}, f"{name}: rate of {currency!s:.20}")
        if row.usd_per_unit is not None:
            rates[str(currency).upper()] = row.usd_per_unit
    return rates


def _only_once(where: str, before: str | None) -> None:
    """Refuse a second row of the same key."""
    if before is not None:
        raise UserError(f"{where}: the same offer or discount as {before}", "keep one of them")


def _discount(row: PriceRow, raw: _Raw) -> Discount:
    """Discount of a row. Raises ``UserError`` for fields that a discount does not have."""
    for name in raw.values:
        if name not in _OF_DISCOUNTS:
            raise UserError(
                f"{raw.where}: {name} does not go with discount_factor",
                f"a discount has {', '.join(_OF_DISCOUNTS)}",
            )
    factor = row.discount_factor or Decimal(1)
    return Discount(row.provider.lower(), row.instance_type, row.region, row.market or "", factor, raw.where)


def _offer(row: PriceRow, where: str, rates: Mapping[str, Decimal], seen: datetime) -> Offer:
    """Offer of a row."""
    provider = row.provider.lower()
    rules = provider_rules().get(provider)
    node = _node(row, provider, where)
    unsaid = rules.not_included if rules else ()
    return Offer(
        provider=provider,
        instance_type=row.instance_type or f"{node.gpus_per_node}x {node.gpu}",
        region=row.region or "any",
        zone=row.zone or None,
        market=row.market or "on-demand",
        gpu=node.gpu,
        gpus_per_node=node.gpus_per_node,
        links=node.links,
        vcpus=row.vcpus or node.vcpus,
        host_memory_bytes=_gib(row.memory_gib) or node.host_memory_bytes,
        local_disk_bytes=_gib(row.disk_gib) or node.local_disk_bytes,
        usd_per_hour=_usd_per_hour(row, node.gpus_per_node, where, rates),
        min_billing_s=_first(row.min_billing_s, rules.min_billing_s if rules else None),
        billing_increment_s=_first(row.billing_increment_s, rules.billing_increment_s if rules else None),
        not_included=tuple(p.strip() for p in row.not_included.split("|")) if row.not_included else unsaid,
        max_nodes=_first(row.max_nodes, node.max_nodes),
        price_seen=_seen(row, where) or seen,
        source=where,
        origin="own",
        note=row.note,
    )


def _first(stated: int | None, known: int | None) -> int | None:
    return known if stated is None else stated


def _gib(value: Decimal | None) -> int | None:
    return None if value is None else int(value * GIB)


def _seen(row: PriceRow, where: str) -> datetime | None:
    """Day of the price, if it is stated."""
    if not row.price_date:
        return None
    try:
        day = date.fromisoformat(row.price_date)
    except ValueError:
        raise UserError(
            f"{where}: price_date is {row.price_date!r:.40}, not a day", "price_date 2026-11-30"
        ) from None
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _usd_per_hour(row: PriceRow, gpus: int, where: str, rates: Mapping[str, Decimal]) -> Decimal:
    """Price of a machine in USD. Raises ``UserError`` where it is not stated once, or its rate is not."""
    stated = [p for p in (row.price_per_hour, row.price_per_gpu_hour) if p is not None]
    if len(stated) != 1:
        problem = "both stated" if stated else "missing"
        raise UserError(f"{where}: price_per_hour and price_per_gpu_hour: {problem}", "state one of them")
    currency = row.currency.upper()
    rate = row.usd_per_unit or (Decimal(1) if currency == "USD" else rates.get(currency))
    if rate is None:
        raise UserError(f"{where}: currency is {currency:.20} without a rate", "usd_per_unit 1.08")
    if currency == "USD" and rate != 1:
        raise UserError(f"{where}: usd_per_unit is {rate}, but currency is USD", "currency EUR")
    price = stated[0] * (gpus if row.price_per_hour is None else 1) * rate
    return price.quantize(Decimal("0.000001")).normalize() + 0


def _node(row: PriceRow, provider: str, where: str) -> Node:
    """Machine of a row: that of the catalog where no GPU is stated."""
    known = known_node(provider, row.instance_type) if row.instance_type else None
    if not row.gpu and row.gpus is None and known is not None:
        for name in ("intra_node", "inter_node", "network_gbit_per_s"):
            if getattr(row, name):
                raise UserError(f"{where}: {name} goes with gpu and gpus", f"gpu {known.gpu}")
        return known
    if not row.gpu:
        types = known_types(provider)
        near = did_you_mean(row.instance_type, types) if row.instance_type else ""
        raise UserError(f"{where}: gpu is missing, and the catalog has no such machine{near}", "gpu, gpus")
    if row.gpus is None:
        raise UserError(f"{where}: gpus is missing: how many GPUs a machine has", "gpus 8")
    try:
        card = gpu(row.gpu)
    except UserError as error:
        raise UserError(f"{where}: gpu: {error}", "plan gpus   lists the names") from None
    return new_node(
        card.id,
        row.gpus,
        intra=row.intra_node,
        inter=row.inter_node or "ethernet",
        network_gbit_per_s=row.network_gbit_per_s,
        max_nodes=row.max_nodes,
    )
