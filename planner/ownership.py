"""What a machine that one owns costs: purchase, operation, and the hours from which buying beats renting.

With h hours of use a month (of 730), a machine costs

    month(h) = (purchase - resale) / lifetime + hosting + idle x (730 - h) + load x h

USD a month, where ``idle`` and ``load`` are USD an hour of electricity. A rented one costs price x h. Both
are straight lines in h; where they cross is the break-even. What the user left out is assumed where
``data/ownership.csv`` has a value, and said; what nobody can assume is ``None``: named, never summed as 0.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files

from pydantic import Field

from planner.hardware.gpus import gpu
from planner.types import Record

HOURS_A_MONTH = Decimal(730)
MONTHS_A_YEAR = 12


class OwnedMachine(Record):
    """A machine that the user owns, or may buy. Money is of ONE machine; ``None`` = not said.

    ``purchase_usd`` 0: already paid for, only what it takes to run counts.
    ``gpus``: in one machine; ``machines``: how many there are. ``resale_usd``: what it brings at the end.
    ``intra_node``, ``inter_node``: links in words, such as "NVLink bridge" and "IB HDR".
    """

    name: str = ""
    gpu: str
    gpus: int = Field(default=1, ge=1, le=1024)
    machines: int = Field(default=1, ge=1, le=100_000)
    purchase_usd: Decimal | None = Field(default=None, ge=0, le=10**9)
    resale_usd: Decimal | None = Field(default=None, ge=0, le=10**9)
    lifetime_years: Decimal | None = Field(default=None, gt=0, le=50)
    power_load_w: Decimal | None = Field(default=None, gt=0, le=10**6)
    power_idle_w: Decimal | None = Field(default=None, ge=0, le=10**6)
    electricity_usd_per_kwh: Decimal | None = Field(default=None, ge=0, le=10)
    hosting_usd_per_month: Decimal | None = Field(default=None, ge=0, le=10**7)
    hours_used_per_month: Decimal | None = Field(default=None, gt=0, le=HOURS_A_MONTH)
    vcpus: int | None = Field(default=None, ge=1)
    memory_gib: Decimal | None = Field(default=None, gt=0)
    disk_gib: Decimal | None = Field(default=None, gt=0)
    intra_node: str = ""
    inter_node: str = ""
    network_gbit_per_s: float | None = Field(default=None, gt=0)


@dataclass(frozen=True, slots=True)
class Ownership:
    """What one machine costs. ``None`` = not known; ``unknown`` names those parts, ``assumed`` the guesses.

    ``purchase_usd_per_month`` is what the machine loses in value a month of ``lifetime_months``.
    """

    purchase_usd_per_month: Decimal | None
    hosting_usd_per_month: Decimal | None
    idle_usd_per_hour: Decimal | None
    load_usd_per_hour: Decimal
    hours_used_per_month: Decimal
    lifetime_months: Decimal | None
    assumed: tuple[str, ...]
    unknown: tuple[str, ...]

    def month_usd(self, hours: Decimal) -> Decimal:
        """USD of a month with ``hours`` of use: the known parts."""
        idle = (self.idle_usd_per_hour or Decimal(0)) * (HOURS_A_MONTH - hours)
        return self.fixed_usd_per_month + idle + self.load_usd_per_hour * hours

    @property
    def fixed_usd_per_month(self) -> Decimal:
        """USD of a month whatever the use: the known parts."""
        return (self.purchase_usd_per_month or Decimal(0)) + (self.hosting_usd_per_month or Decimal(0))

    @property
    def usd_per_hour(self) -> Decimal | None:
        """USD of an hour of use, at the hours of use that were stated; ``None`` where nothing is known."""
        each = self.month_usd(self.hours_used_per_month) / self.hours_used_per_month
        return each if each > 0 else None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where owning and renting cost the same. Without a purchase price nothing is known: ``is_known``.

    ``hours_per_month``: use above which owning is cheaper; ``None`` = never, even at all hours of a month.
    ``hours_total``: hours of use after which the purchase is paid back, at the stated use a month; ``None`` =
    not within the life of the machine. Parts that are not known would raise both: they are lower bounds then.
    """

    is_known: bool
    hours_per_month: Decimal | None = None
    hours_total: Decimal | None = None


@lru_cache(maxsize=1)
def defaults() -> dict[str, Decimal]:
    """Return what is assumed where the user says nothing, from ``data/ownership.csv``."""
    text = files("planner").joinpath("data/ownership.csv").read_text(encoding="utf-8")
    return {r["name"]: Decimal(r["value"]) for r in csv.DictReader(text.splitlines())}


def ownership(machine: OwnedMachine) -> Ownership:
    """What ``machine`` costs, with every assumption. Raises ``UserError`` for an unknown GPU."""
    assumed: list[str] = []
    kwh = _or(machine.electricity_usd_per_kwh, "electricity_usd_per_kwh", "electricity {} USD/kWh", assumed)
    hours = _or(machine.hours_used_per_month, "hours_used_per_month", "{} h of use a month", assumed)
    load_w = machine.power_load_w
    if load_w is None:
        load_w = _load_w(machine, assumed)
    months = lost = None
    if machine.purchase_usd is not None:
        said = assumed if machine.purchase_usd else []  # of what is paid for, life and resale change nothing
        years = _or(machine.lifetime_years, "lifetime_years", "a life of {} years", said)
        months = years * MONTHS_A_YEAR
        if machine.resale_usd is None:
            said.append("no resale value")
        lost = (machine.purchase_usd - (machine.resale_usd or Decimal(0))) / months
    idle_w = machine.power_idle_w if hours < HOURS_A_MONTH else Decimal(0)
    parts = (
        ("purchase price", lost),
        ("power when idle", idle_w),
        ("hosting", machine.hosting_usd_per_month),
    )
    return Ownership(
        purchase_usd_per_month=lost,
        hosting_usd_per_month=machine.hosting_usd_per_month,
        idle_usd_per_hour=None if idle_w is None else idle_w / 1000 * kwh,
        load_usd_per_hour=load_w / 1000 * kwh,
        hours_used_per_month=hours,
        lifetime_months=months,
        assumed=tuple(assumed),
        unknown=tuple(name for name, value in parts if value is None),
    )


def _or(value: Decimal | None, name: str, words: str, assumed: list[str]) -> Decimal:
    """``value``, or the default, which is then said."""
    if value is not None:
        return value
    assumed.append(words.format(defaults()[name]))
    return defaults()[name]


def _load_w(machine: OwnedMachine, assumed: list[str]) -> Decimal:
    """Watts under load from the design power of the GPUs."""
    card = gpu(machine.gpu)
    factor = "power_factor_datacenter" if card.gpu_class == "datacenter" else "power_factor_other"
    watts = Decimal(card.tdp_w) * machine.gpus * defaults()[factor]
    assumed.append(
        f"{watts.normalize():f} W under load ({machine.gpus} × {card.tdp_w} W × {defaults()[factor]})"
    )
    return watts


def break_even(machine: OwnedMachine, cost: Ownership, rent_usd_per_hour: Decimal) -> BreakEven:
    """Where owning ``machine`` costs as much as renting one for ``rent_usd_per_hour``."""
    if machine.purchase_usd is None or cost.lifetime_months is None:
        return BreakEven(is_known=False)
    idle = cost.idle_usd_per_hour or Decimal(0)
    gain = rent_usd_per_hour - cost.load_usd_per_hour + idle
    monthly = None
    if gain > 0:
        crossing = (cost.fixed_usd_per_month + idle * HOURS_A_MONTH) / gain
        monthly = crossing if crossing <= HOURS_A_MONTH else None
    lost = machine.purchase_usd - (machine.resale_usd or Decimal(0))
    used = cost.hours_used_per_month
    running = (cost.month_usd(used) - (cost.purchase_usd_per_month or Decimal(0))) / used
    paid = lost / (rent_usd_per_hour - running) if rent_usd_per_hour > running else None
    in_life = paid is not None and paid <= used * cost.lifetime_months
    return BreakEven(True, monthly, paid if in_life else None)
