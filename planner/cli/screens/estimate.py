"""The screen of ``plan estimate``: where memory and time go, and what a change would do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner import units
from planner.cli import describe, text
from planner.cli.text import Column, Terminal
from planner.results import Candidate, Estimate, MemoryEstimate, SpeedEstimate
from planner.runs.what_if import Outlook
from planner.trust.terms import terms
from planner.types import Run

_PEAK_AT = {
    "forward": "during the forward pass",
    "loss": "while the loss is computed",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer step",
}


def estimate(
    answer: Estimate,
    headroom: float,
    term: Terminal,
    candidate: Candidate | None = None,
    what_if: Sequence[Outlook] = (),
    confidence: str = "",
) -> str:
    """Draw one estimate; with the candidate it came from, its price too. ``confidence``: a closing line."""
    lines = [*_head(answer, term, candidate)]
    if answer.memory is not None:
        lines += ["", *_memory_table(answer.run, answer.memory, headroom, term)]
    if answer.speed is not None:
        lines += ["", *_time_table(answer.speed, term)]
    lines += ["", *_totals(answer, candidate, term)]
    if what_if:
        lines += ["", *_what_if(answer, what_if, candidate, term)]
    if confidence:
        lines += ["", *text.paragraph(confidence, term)]
    if answer.warnings:
        lines += [*(line for w in answer.warnings for line in text.paragraph(f"Note: {w}", term))]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------- head


def _head(answer: Estimate, term: Terminal, candidate: Candidate | None) -> Iterator[str]:
    run = answer.run
    usable = answer.memory.usable_bytes if answer.memory is not None else None
    has = f"{units.gib(usable)} as torch reports it" if usable is not None else "memory unknown"
    parts = [
        f"{describe.gpus(run)} ({has})",
        f"{units.count(describe.num_params(run.model))} parameters",
        describe.layout(run.layout),
        f"sequence {run.training.seq_len}",
    ]
    if candidate is not None:
        parts.insert(1, f"{describe.offer(candidate)} {candidate.offer.region}")
    yield from text.paragraph(" · ".join(parts), term)
    yield from text.paragraph(describe.model(run.model), term)
    yield from text.paragraph(describe.training(run.training, describe.num_params(run.model)), term)


# ------------------------------------------------------------------------------------- memory


def _memory_table(run: Run, memory: MemoryEstimate, headroom: float, term: Terminal) -> Iterator[str]:
    columns = [Column("PART"), Column("GiB", right=True), Column("SHARE", right=True), Column("FROM", 24)]
    columns.append(Column("BASIS"))
    usable = memory.usable_bytes
    rows = [_part_row(letter, name, run, memory) for letter, name in describe.PART_LETTERS]
    peak = memory.device_bytes
    rows.append(_line("PEAK", peak.mid, usable, _PEAK_AT[memory.peak_at], units.gib_band(peak)))
    if usable is not None:
        line = usable * (1 - headroom)
        fit = "ok" if memory.reserved_bytes.mid <= line else "over"
        origin = f"headroom {units.percent(headroom)}, for reserved memory"
        rows.append(_line("limit", line, usable, origin, fit))
        rows.append(_line("GPU", usable, usable, "what torch can use of it", _fits(memory)))
    yield from text.table(columns, rows, term.width - 1, indent=" ")
    if usable is not None:
        parts = [(letter, getattr(memory.parts_bytes, name)) for letter, name in describe.PART_LETTERS]
        yield ""
        drawn = text.bar(parts, max(usable, peak.mid), usable * (1 - headroom), term.width - 30)
        yield f" {drawn}  {units.percent(peak.mid / usable)} of {units.gib(usable)}"
    yield ""
    yield from text.paragraph(_kinds(memory), term)


def _fits(memory: MemoryEstimate) -> str:
    """Say whether the run fits on the GPU: with its whole band, with its middle, or not."""
    if memory.fits is None:
        return units.UNKNOWN
    return "fits, safe" if memory.safe else "fits, not safe" if memory.fits else "does not fit"


def _part_row(letter: str, name: str, run: Run, memory: MemoryEstimate) -> list[str]:
    size = getattr(memory.parts_bytes, name)
    basis = terms()["memory", name].basis if size else "–"
    return _line(
        f"{letter} {name.replace('_', ' ')}", size, memory.usable_bytes, _from(name, size, run), basis
    )


def _line(name: str, size: float, usable: float | None, origin: str, basis: str) -> list[str]:
    share = units.percent(size / usable, 1) if usable else units.UNKNOWN
    return [name, units.gib_number(size), share, origin, basis]


def _from(name: str, size: float, run: Run) -> str:
    """Say in words what a part of memory comes from."""
    tokens = f"{run.layout.micro_batch} × {run.training.seq_len} tokens"
    if name in ("parameters", "gradients", "optimizer"):
        per_param = size / describe.num_params(run.model)
        shards = _shards(name, run)
        return f"{per_param:.3g} B a parameter{shards}" if size else "none on this GPU"
    if name == "activations":
        layers = run.model.num_layers
        cut = f", recompute {run.layout.recompute}" if run.layout.recompute != "none" else ""
        return f"{layers} layers × {tokens}{cut}"
    if name == "logits":
        return (
            f"{tokens} × {units.whole(run.model.vocab_size)} vocabulary" if size else "not whole at the peak"
        )
    return {
        "gathered": "layers that are whole while they compute" if size else "nothing is gathered",
        "communication": "buffers of NCCL" if size else "one GPU, no communication",
        "context": "CUDA context and libraries",
        "allocator_slack": "rounding and fragments of the caching allocator",
    }[name]


def _shards(name: str, run: Run) -> str:
    stage_needed = {"parameters": 3, "gradients": 2, "optimizer": 1}[name]
    layout = run.layout
    ways = [f"{n} {d}" for n, d in (("tp", layout.tp), ("pp", layout.pp), ("ep", layout.ep)) if d > 1]
    if layout.zero_stage >= stage_needed and layout.dp * layout.cp > 1:
        ways.append(f"in {layout.shard_group or layout.dp * layout.cp} shards")
    return f" ({', '.join(ways)})" if ways else ""


def _kinds(memory: MemoryEstimate) -> str:
    """Name the three figures that tools show for the same peak, and host memory."""
    parts = [
        f"allocated {units.gib_band(memory.allocated_bytes)}",
        f"reserved {units.gib_band(memory.reserved_bytes)}",
        f"device {units.gib_band(memory.device_bytes)}",
        f"while loading {units.gib(memory.load_bytes)}",
        f"host {units.gib(memory.host_bytes)} a node",
    ]
    return " · ".join(parts)


# ------------------------------------------------------------------------------------- time


def _time_table(speed: SpeedEstimate, term: Terminal) -> Iterator[str]:
    columns = [Column("STEP"), Column("TIME", right=True), Column("SHARE", right=True), Column("")]
    step_s = speed.step_s.mid
    rows = []
    for name, value in speed.parts_s:
        note = ""
        if name == "exposed_communication" and speed.limiting_link is not None:
            note = f"limited by {speed.limiting_link}, {units.percent(speed.limiting_link_share)} of the step"
        rows.append([name.replace("_", " "), units.seconds(value), units.percent(value / step_s, 1), note])
    rows.append(["STEP", units.seconds(step_s), "", units.seconds_band(speed.step_s)])
    yield from text.table(columns, rows, term.width - 1, indent=" ")
    rate = units.tokens_per_s(speed.tokens_per_s_per_gpu.mid)
    yield ""
    yield f"{rate} per GPU · MFU {units.percent(speed.mfu, 1)} · HFU {units.percent(speed.hfu, 1)}"


def _totals(answer: Estimate, candidate: Candidate | None, term: Terminal) -> Iterator[str]:
    """Time and cost of the whole run, with the cost lines."""
    if candidate is not None:
        unknown = [line.name for line in candidate.cost_lines if line.usd is None]
        total = units.usd_total(candidate.cost_usd, unknown)
        yield from text.paragraph(f"Whole run: {units.hours_band(candidate.hours)}, {total}", term)
        columns = [Column("COST"), Column("USD", 15), Column("")]
        rows = [(line.name, units.usd_band(line.usd), line.note) for line in candidate.cost_lines]
        yield from text.table(columns, rows, term.width - 1, indent=" ")
    elif answer.whole is not None:
        cost = units.usd_band(answer.whole.cost_usd) if answer.whole.cost_usd else "price unknown"
        gpu_hours = units.gpu_hours(answer.whole.gpu_hours.mid)
        yield f"Whole run: {units.hours_band(answer.whole.hours)}, {gpu_hours} GPU hours, {cost}"
    else:
        yield "Whole run: unknown, --tokens was not given"


# ------------------------------------------------------------------------------------- what if


def _what_if(
    base: Estimate, rows: Sequence[Outlook], candidate: Candidate | None, term: Terminal
) -> Iterator[str]:
    cost_mid_usd = _cost_mid_usd(base, candidate)
    columns = [Column("WHAT IF"), Column("GiB", right=True), Column("TIME", right=True)]
    columns += [Column("COST", right=True)] if cost_mid_usd is not None else []
    columns.append(Column(""))
    cells = []
    for change in rows:
        ratio = _time_ratio(base, change.estimate)
        time = "–" if ratio is None else units.signed_percent(ratio - 1)
        cost = [] if cost_mid_usd is None else [units.usd(None if ratio is None else cost_mid_usd * ratio)]
        cells.append([change.name, _new_memory(change.estimate), time, *cost, _remark(change)])
    yield from text.table(columns, cells, term.width - 1, indent=" ")


def _cost_mid_usd(base: Estimate, candidate: Candidate | None) -> float | None:
    if candidate is not None:
        return candidate.cost_usd.mid
    return base.whole.cost_usd.mid if base.whole is not None and base.whole.cost_usd is not None else None


def _new_memory(new: Estimate) -> str:
    return "–" if new.memory is None else units.gib_number(new.memory.device_bytes.mid)


def _time_ratio(base: Estimate, new: Estimate) -> float | None:
    """Time for the same tokens, over that of the base."""
    if new.speed is None or base.speed is None:
        return None
    ratio = base.speed.tokens_per_s_per_gpu.mid / new.speed.tokens_per_s_per_gpu.mid
    return ratio * base.run.shape.num_gpus / new.run.shape.num_gpus


def _remark(change: Outlook) -> str:
    memory = change.estimate.memory
    fit = "does not fit" if memory is not None and memory.fits is False else ""
    return "; ".join(part for part in (fit, change.note) if part)
