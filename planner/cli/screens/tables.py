"""The plain tables: ``plan gpus`` and ``plan ls --plans``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from planner import units
from planner.cli import describe, text
from planner.cli.text import Column, Terminal
from planner.results import Plan
from planner.types import Gpu, Offer


def gpus(rows: Sequence[Gpu], cheapest: Mapping[str, Offer], now: datetime, term: Terminal) -> str:
    """Draw the table of GPUs by class, with the cheapest offer of each."""
    columns = [
        Column("GPU"),
        Column("GiB", right=True),
        Column("GB/s", right=True),
        Column("FP32", right=True),
        Column("BF16", right=True),
        Column("FP8", right=True),
        *([Column("LINK"), Column("ECC")] if term.wide else []),
        Column("USD/GPU/h"),
        Column("AGE"),
    ]
    body = [_gpu_cells(g, cheapest.get(g.id), now, term) for g in rows]
    widths = text.fit(columns, body, term.width - 2)
    lines = [text.header(columns, widths, "  ")]
    for name in ("datacenter", "workstation", "consumer"):
        of_class = [cells for g, cells in zip(rows, body, strict=True) if g.gpu_class == name]
        lines += [name] if of_class else []
        lines += [line for cells in of_class for line in text.row(columns, widths, cells, "  ")]
    foot = (
        "GiB as torch reports it (~: estimated). FP32, BF16, FP8: dense TFLOPS with fp32 accumulation; "
        "– where it has none. USD/GPU/h: the cheapest offer in the catalog, any market."
    )
    return "\n".join([*lines, "", *text.paragraph(foot, term)])


def _gpu_cells(gpu: Gpu, offer: Offer | None, now: datetime, term: Terminal) -> list[str]:
    estimated = "~" if gpu.usable_memory_basis == "estimated" else ""
    cells = [
        gpu.id,
        estimated + units.gib_number(gpu.usable_memory_bytes),
        units.whole(gpu.memory_bandwidth_bytes_per_s / 1e9),
        units.tflops(gpu.fp32_flops_per_s),
        units.tflops(gpu.bf16_flops_per_s),
        units.tflops(gpu.fp8_flops_per_s),
    ]
    cells += [_link(gpu), "yes" if gpu.ecc else "no"] if term.wide else []
    return cells + _price_cells(offer, now, term)


def _link(gpu: Gpu) -> str:
    """Name the link between GPUs in one word; ``plan gpus --json`` has it in full."""
    word = re.split(r"[+( ]", gpu.link_kind, maxsplit=1)[0]
    return word.removeprefix("nvlink-")


def _price_cells(offer: Offer | None, now: datetime, term: Terminal) -> list[str]:
    if offer is None or offer.usd_per_hour is None:
        return ["no offer", "–"]
    seen = offer.price_seen
    old = units.age(None if seen is None else (now - seen).total_seconds())
    price = f"{offer.usd_per_hour / offer.gpus_per_node:.2f}"
    market = "" if offer.market == "on-demand" else f" {offer.market}"
    return [f"{price} {offer.provider}{market}" if term.wide else price, text.keep(old)]


def plans(rows: Sequence[Plan], now: datetime, term: Terminal) -> str:
    """Draw the saved plans, newest first."""
    if not rows:
        return "No plans saved."
    columns = [Column("PLAN"), Column("AGE"), *([Column("MODEL")] if term.wide else []), Column("GPUS", 15)]
    columns += [Column("OFFER", 18)] if term.wide else []
    columns += [Column("TIME", 14), Column("COST USD")]
    return "\n".join(text.table(columns, [_plan_cells(p, now, term) for p in rows], term.width))


def _plan_cells(plan: Plan, now: datetime, term: Terminal) -> list[str]:
    c = plan.candidate
    model = [text.keep(units.count(describe.num_params(c.run.model)))] if term.wide else []
    offer = [describe.offer(c)] if term.wide else []
    cost = units.usd_band(c.cost_usd, sign="" if c.cost_is_complete else "≥ ")
    age = text.keep(units.age((now - plan.created).total_seconds()))
    return [
        plan.id,
        age,
        *model,
        describe.gpus(c.run),
        *offer,
        units.hours_band(c.hours),
        cost,
    ]
