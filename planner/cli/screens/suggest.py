"""The screens of ``plan suggest``: ranked choices, or what would make something fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from planner import units
from planner.cli import describe, text
from planner.cli.text import Column, Terminal
from planner.results import Candidate, MemoryParts, OnDemand, Rejection, Suggestion
from planner.types import Band

OLD_PRICE_S = 30 * 86400.0
NEXT_OF_NONE = "next: plan gpus    plan suggest … --json"
_BAR_WIDTH = {True: 44, False: 30}


def suggestion(answer: Suggestion, now: datetime, term: Terminal) -> str:
    """Draw the whole answer: head, choices or nearest misses, losers, next commands."""
    fits = any(c.verdict != "over" for c in answer.candidates)
    lines = [*_head(answer, now, term), ""]
    lines += _choices(answer, now, term) if fits else _nothing_fits(answer, now, term)
    lines += ["", *_rejections(answer.rejections, term)] if answer.rejections else []
    lines += _skipped(answer, term)
    lines += _how(answer, term)
    lines += [*_bands(answer.candidates, term), "", *_next(answer, term)] if fits else ["", NEXT_OF_NONE]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------- head


def _head(answer: Suggestion, now: datetime, term: Terminal) -> Iterator[str]:
    params = describe.num_params(answer.model)
    yield from text.paragraph(f"{describe.model(answer.model)}   (--spec to change)", term)
    yield from text.paragraph(describe.training(answer.training, params), term)
    yield from text.paragraph(_bounds(answer), term)
    warning = _old_prices(answer.candidates, now)
    if warning:
        yield from (text.paint(line, "warning", term) for line in text.paragraph(warning, term))


def _bounds(answer: Suggestion) -> str:
    """Say what bounds the search: budget, deadline, headroom, stage."""
    goal = answer.goal
    parts = [
        f"Budget {units.usd(goal.budget_usd)} in all" if goal.budget_usd is not None else "No budget given"
    ]
    if goal.deadline_s is not None:
        parts.append(f"deadline {units.duration(goal.deadline_s)}")
    parts.append(f"headroom {units.percent(goal.headroom)} of GPU memory")
    parts.append(f"at most {units.counted(goal.max_gpus, 'GPU')}")
    if goal.market != "any":
        parts.append(f"{goal.market} only")
    parts.append(f"{goal.stage} stage")
    parts.append(units.counted(answer.num_offers, "offer"))
    return " · ".join(parts)


def _old_prices(candidates: Sequence[Candidate], now: datetime) -> str | None:
    """One warning for all prices shown that are older than 30 days, or of unknown age."""
    ages = [price_age_s(c, now) for c in candidates]
    old = [a for a in ages if a is not None and a > OLD_PRICE_S]
    undated = sum(a is None for a in ages)
    parts = [f"{len(old)} older than 30 days (the oldest {units.age(max(old))})"] if old else []
    parts += [f"{undated} of unknown age"] if undated else []
    shown = units.counted(len(ages), "price")
    said = f"Warning: of the {shown} shown, {' and '.join(parts)}: look them up before you pay."
    return said if parts else None


def price_age_s(candidate: Candidate, now: datetime) -> float | None:
    """Seconds since the price was seen; ``None`` where nobody said when."""
    seen = candidate.offer.price_seen
    return None if seen is None else (now - seen).total_seconds()


# ------------------------------------------------------------------------------------- choices


def _choices(answer: Suggestion, now: datetime, term: Terminal) -> Iterator[str]:
    yield from _rows(answer.candidates, now, term)
    yield from text.paragraph(_order(answer), term, "    ", "")
    yield from text.paragraph(_on_demand(answer.on_demand), term, "    ", "") if answer.on_demand else ()
    yield ""
    for candidate in answer.candidates:
        yield _memory_bar(candidate, answer.goal.headroom, term)
    yield from text.paragraph(
        bar_legend([c.memory.parts_bytes for c in answer.candidates]), term, "     ", ""
    )


def _order(answer: Suggestion) -> str:
    """Say by what the choices are ranked, and how many more fit."""
    keys = (
        "time, then the upper end of cost"
        if answer.goal.sort == "time"
        else "the upper end of cost, then time"
    )
    owned = answer.goal.sort == "time" and all(c.offer.market == "owned" for c in answer.candidates)
    why = ": machines of your own cost the same idle, but for their power" if owned else ""
    ranked = f"Ranked by verdict, then {keys}{why} (--sort)."
    if answer.num_fitting <= len(answer.candidates):
        return ranked
    return f"{ranked} Shown {len(answer.candidates)} of {units.whole(answer.num_fitting)} that fit (--top)."


def _on_demand(beside: Sequence[OnDemand]) -> str:
    """Say what each spot choice would cost on machines that are not taken away."""
    said = [
        text.keep(
            f"#{each.rank} {units.usd_band(each.cost_usd)}"
            if each.cost_usd
            else f"#{each.rank} no price listed"
        )
        for each in beside
    ]
    return f"All of these are spot. The same machines on demand: {', '.join(said)}."


_FIRST = (
    Column(" #", right=True),
    Column("VERDICT"),
    Column("GPUS", 15),
    Column("TIME"),
    Column("COST USD"),
    Column("PEAK GiB"),
    Column("tok/s"),
    Column("AGE"),
)
_SECOND = (Column("OFFER", 18), Column("REGION"), Column("LAYOUT", 18), Column("LINK, SHARE"))
_DROPPED = ("REGION", "tok/s")  # at 80 columns
_INDENT = " " * 12  # where GPUS stands


def _rows(candidates: Sequence[Candidate], now: datetime, term: Terminal) -> Iterator[str]:
    """Two aligned lines a choice: what decides, then where and how."""
    first, first_cells = _shown(_FIRST, [_first_cells(c, now) for c in candidates], term)
    second, second_cells = _shown(_SECOND, [_second_cells(c) for c in candidates], term)
    widths = text.fit(first, first_cells, term.width)
    more = text.fit(second, second_cells, term.width - len(_INDENT))
    yield text.header(first, widths)
    yield text.header(second, more, _INDENT)
    for c, cells, further in zip(candidates, first_cells, second_cells, strict=True):
        yield from _painted(text.row(first, widths, cells), c, term)
        yield from text.row(second, more, further, _INDENT)
        yield from _why(c, term)


def _shown(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], term: Terminal
) -> tuple[list[Column], list[list[str]]]:
    """Leave out what 80 columns have no room for."""
    kept = [i for i, c in enumerate(columns) if term.wide or c.title not in _DROPPED]
    return [columns[i] for i in kept], [[cells[i] for i in kept] for cells in rows]


def _first_cells(c: Candidate, now: datetime) -> tuple[str, ...]:
    tokens_per_s = c.speed.tokens_per_s_per_gpu.mid * c.run.shape.num_gpus
    return (
        str(c.rank),
        c.verdict,
        describe.gpus(c.run),
        units.hours_band(c.hours),
        units.usd_band(c.cost_usd, sign="" if c.cost_is_complete else "≥ "),
        _of_gpu(c),
        units.count(tokens_per_s),
        units.age(price_age_s(c, now)),
    )


def _second_cells(c: Candidate) -> tuple[str, ...]:
    region = c.offer.region or units.UNKNOWN
    return (describe.offer(c), region, describe.layout(c.run.layout), describe.limiting_link(c))


def _why(c: Candidate, term: Terminal) -> list[str]:
    """Say what keeps a choice from being ``ok``."""
    return (
        text.paragraph(f"{c.verdict}: {c.why}", term, indent=_INDENT) if c.why and c.verdict != "ok" else []
    )


def _painted(lines: list[str], c: Candidate, term: Terminal) -> list[str]:
    """Colour the verdict in the first line of a row."""
    return [lines[0].replace(f" {c.verdict} ", f" {text.paint(c.verdict, c.verdict, term)} ", 1), *lines[1:]]


def _of_gpu(c: Candidate) -> str:
    """Peak on the device of what the GPU has: ``39.0/79.1``."""
    return f"{_short_gib(c.memory.device_bytes.mid)}/{_short_gib(c.memory.usable_bytes)}"


def _short_gib(value_bytes: float | None) -> str:
    """Write GiB in at most four characters."""
    if value_bytes is None:
        return "?"
    value = value_bytes / units.GIB
    return f"{value:.{1 if value < 99.95 else 0}f}"


# ------------------------------------------------------------------------------------- memory bars


def _memory_bar(c: Candidate, headroom: float, term: Terminal) -> str:
    usable = c.memory.usable_bytes
    peak = units.gib_band(c.memory.device_bytes)
    if usable is None:
        return f"{c.rank:>2}  {peak}, memory of the GPU unknown"
    parts = [(letter, getattr(c.memory.parts_bytes, name)) for letter, name in describe.PART_LETTERS]
    drawn = text.bar(parts, usable, usable * (1 - headroom), _BAR_WIDTH[term.wide])
    of = f" of {units.gib(usable)}" if term.wide else ""
    return f"{c.rank:>2}  {drawn}  {peak}{of}  {units.percent(c.memory.device_bytes.mid / usable)}"


def bar_legend(shown: Sequence[MemoryParts]) -> str:
    """Explain the letters of the memory bars; a part that none of them has is left out."""
    used = [
        (letter, name) for letter, name in describe.PART_LETTERS if any(getattr(p, name) > 0 for p in shown)
    ]
    words = [text.keep(f"{letter} {name.replace('_', ' ')}") for letter, name in used]
    return "  ".join([*words, text.keep(". free"), text.keep("| headroom line")])


# ------------------------------------------------------------------------------------- nothing fits


def _nothing_fits(answer: Suggestion, now: datetime, term: Terminal) -> Iterator[str]:
    yield from text.paragraph(text.paint(_verdict_sentence(answer), "bold", term), term)
    if answer.candidates:
        yield ""
        yield from _misses(answer, now, term)
    yield ""
    if not answer.rescues:
        yield "No single change makes it fit: what was asked is too far from what can be rented."
        return
    yield "What would make it fit:"
    for rescue in answer.rescues:
        yield from text.paragraph(rescue, term, indent="  ")


def _verdict_sentence(answer: Suggestion) -> str:
    goal = answer.goal
    within = [units.usd(goal.budget_usd)] if goal.budget_usd is not None else []
    within += (
        [f"{'in ' if within else ''}{units.duration(goal.deadline_s)}"] if goal.deadline_s is not None else []
    )
    said = f"Nothing fits {' '.join(within)}." if within else "Nothing fits."
    in_memory = [c for c in answer.candidates if c.memory.safe]
    if not in_memory:
        return f"{said} No layout fits in the memory of the GPUs that were considered."
    if goal.budget_usd is None:
        fastest = min(in_memory, key=lambda c: c.hours.mid)
        return f"{said} The fastest layout that fits in memory takes {units.hours_band(fastest.hours)}."
    cheapest = min(in_memory, key=lambda c: c.cost_usd.mid)
    takes = f" and takes {units.hours_band(cheapest.hours)}" if goal.deadline_s is not None else ""
    at_least = "" if cheapest.cost_is_complete else "at least "
    price = f"{at_least}{units.usd_band(cheapest.cost_usd)}"
    return f"{said} The cheapest layout that fits in memory costs {price}{takes}."


def _misses(answer: Suggestion, now: datetime, term: Terminal) -> Iterator[str]:
    budget = answer.goal.budget_usd
    columns = [Column(" #", right=True), Column("GPUS", 15), Column("TIME"), Column("COST USD", 13)]
    columns[1:1] = [Column("OVER BY")] if budget is not None else []
    columns += [Column(f"{units.usd(budget)} BUYS", 14)] if budget is not None else []
    rows = []
    for c in answer.candidates:
        cells = [
            str(c.rank),
            describe.gpus(c.run),
            units.hours_band(c.hours),
            units.usd_band(c.cost_usd, sign="" if c.cost_is_complete else "≥ "),
        ]
        cells[1:1] = [_over_by(c, answer)] if budget is not None else []
        cells += [_buys(c, answer)] if budget is not None else []
        rows.append(cells)
    widths = text.fit(columns, rows, term.width - 1)
    yield text.header(columns, widths, " ")
    for c, cells in zip(answer.candidates, rows, strict=True):
        yield from text.row(columns, widths, cells, " ")
        words = [describe.offer(c), c.why or "over", f"price {_how_old(c, now)}"]
        yield from text.paragraph(" · ".join(words), term, indent="     ")


def _how_old(c: Candidate, now: datetime) -> str:
    age_s = price_age_s(c, now)
    return "of unknown age" if age_s is None else f"{units.age(age_s)} old"


def _over_by(c: Candidate, answer: Suggestion) -> str:
    """Dollars over the budget; a dash where something else is over."""
    over = c.cost_usd.mid - float(answer.goal.budget_usd or 0)
    return units.usd(over) if over > 0 else "–"


def _buys(c: Candidate, answer: Suggestion) -> str:
    """Say how far the budget goes with this candidate."""
    tokens, budget = answer.training.num_tokens, answer.goal.budget_usd
    if tokens is None or budget is None or c.cost_usd.mid <= 0:
        return units.UNKNOWN
    bought = tokens * min(1.0, float(budget) / c.cost_usd.mid)
    return f"{units.count(bought)} tokens, {bought / describe.num_params(answer.model):.2g} a param"


# ------------------------------------------------------------------------------------- the rest


def _rejections(rejections: Sequence[Rejection], term: Terminal) -> Iterator[str]:
    total = sum(r.count for r in rejections)
    yield f"Did not make it: {units.counted(total, 'candidate')}"
    for r in rejections:
        lead = f"  {r.reason:<12}{units.whole(r.count):>8}   "
        fits = f"{r.rescue_verdict or 'fits'} with: {r.rescue}"
        one_line = f"{lead}{r.nearest}   {fits}"
        if r.rescue and len(one_line) <= term.width:
            yield one_line
            continue
        yield from text.paragraph(f"{lead}{r.nearest}", term, hang=" " * len(lead))
        if r.rescue:
            yield from text.paragraph(fits, term, indent=" " * len(lead))


def _skipped(answer: Suggestion, term: Terminal) -> Iterator[str]:
    for s in answer.skipped_providers:
        yield from text.paragraph(f"Skipped: {s.provider}, {s.reason}", term)


def _how(answer: Suggestion, term: Terminal) -> Iterator[str]:
    """Say what was assumed, and how many layouts of each family were tried."""
    if answer.assumptions:
        yield from text.paragraph(f"Assumed: {'; '.join(answer.assumptions)}.", term)
    tried = [text.keep(f"{name} {units.whole(n)}") for name, n in answer.layouts_by_family.items() if n]
    families = f": {', '.join(tried)}" if tried else ""
    yield from text.paragraph(f"Tried {units.counted(answer.num_layouts, 'layout')}{families}.", term)


def _bands(candidates: Sequence[Candidate], term: Terminal) -> Iterator[str]:
    """Say how wide the error bands are, and what was noticed about each choice."""
    first = candidates[0]
    memory, time = _spread(first.memory.device_bytes), _spread(first.hours)
    said = f"Error bands hold eight runs in ten. For #{first.rank}: memory {memory}, time {time}."
    yield from text.paragraph(said, term)
    noted: dict[str, list[str]] = {}
    for c in candidates:
        for warning in c.warnings:
            noted.setdefault(warning, []).append(f"#{c.rank}")
    for warning, ranks in noted.items():
        yield from text.paragraph(f"{', '.join(ranks)}: {warning}", term)


def _spread(band: Band) -> str:
    """Say how far the ends of a band lie from its middle."""
    if band.mid <= 0:
        return units.UNKNOWN
    low, high = units.signed_percent(band.low / band.mid - 1), units.signed_percent(band.high / band.mid - 1)
    return text.keep(f"{low} … {high}")


def _next(answer: Suggestion, term: Terminal) -> list[str]:
    """Name the commands that go on from here; for machines of one's own, those that start them."""
    first, more = answer.candidates[0], "plan suggest … --json"
    if first.offer.market != "owned":
        return [f"next: plan estimate {first.rank}    plan ls --plans    {more}"]
    here = "--provider local   (this machine)" if first.num_nodes == 1 else ""
    ways = [here, "--hosts ADDRESS,…   (over SSH)", "--provider kuberay   (Kubernetes)"]
    return [
        f"next: plan estimate {first.rank}    {more}",
        *(f"      plan launch {first.rank} {way}" for way in ways if way),
    ]
