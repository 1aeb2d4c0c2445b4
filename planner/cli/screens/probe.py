"""The screens of a probe: what was measured, and the verdict line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from planner import units
from planner.cli import text
from planner.cli.probe.documents import CollectiveDocument, ProbeDocument
from planner.cli.text import Column, Terminal
from planner.probed import PHASES, Check, ProbeVerdict, RankMemory, Repriced
from planner.verdict.words import OPERATIONS

_SCOPES = {"node": " in a node", "between-nodes": " between nodes", "all": ""}
_MOST_RANKS = 8
_MOST_SIZES = 3
_WORTH_SAYING = ("no prediction", "nobody states", "extrapolated")  # of checks that did not fail
_NOTHING = "–"


def probe(document: ProbeDocument, saved: str | None, term: Terminal) -> str:
    """Draw one probe."""
    lines = [*_head(document, term)]
    if document.collectives:
        lines += ["", *_all_reduce(document, term), *_others(document, term), *_skipped(document, term)]
    if document.memory:
        lines += ["", *_memory(document, term)]
    if document.steps.seconds:
        lines += ["", *_steps(document, term)]
    verdict = ProbeVerdict(
        verdict="pass" if document.verdict == "pass" else "fail",
        checks=document.checks,
        repriced=document.repriced,
        likely_cause=document.likely_cause,
        advice=document.advice,
    )
    lines += ["", *checks(verdict.checks, term), "", *conclusion(verdict, term)]
    left_out = [phase for phase in PHASES if phase not in document.phases]
    if left_out:
        lines.append(f" Not looked at: {', '.join(left_out)} (--only).")
    if saved is not None:
        lines.append(f" saved: {saved}")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------- the verdict


def checks(found: Sequence[Check], term: Terminal) -> list[str]:
    """Draw the checks: predicted, measured, limit, verdict; below, why each failed."""
    columns = [Column("CHECK"), Column("PREDICTED", 12), Column("MEASURED", right=True)]
    columns += [Column("LIMIT", right=True), Column("VERDICT")]
    rows = [_check_row(check) for check in found]
    lines = text.table(columns, rows, term.width, indent=" ")
    lines = [_painted(line, term) for line in lines]
    for check in found:
        if check.passed is False and check.why:
            lines += text.paragraph(f"{check.name}: {check.why}", term, indent=" ")
    shown = [c.why for c in found if c.passed is not False and c.measured is not None]
    for note in dict.fromkeys(why for why in shown if why.startswith(_WORTH_SAYING)):
        lines += text.paragraph(f"Note: {note}", term, indent=" ")
    return lines


def _painted(line: str, term: Terminal) -> str:
    """Colour the last word, where it is a verdict."""
    head, _, last = line.rpartition(" ")
    style = {"pass": "pass", "FAIL": "fail"}.get(last)
    return line if style is None else f"{head} {text.paint(last, style, term)}"


def _check_row(check: Check) -> list[str]:
    one, band = _printers(check.unit)
    low_is_bad = check.unit == "bytes/s"
    limit = _NOTHING if check.limit is None else f"{_sign(check, low_is_bad)} {one(check.limit)}"
    if check.name == "loss falls" and check.limit is not None:
        limit = f"< {one(check.limit)}"
    said = {True: "pass", False: "FAIL", None: _NOTHING}[check.passed]
    predicted = _NOTHING if check.predicted is None else band(check)
    return [check.name, predicted, "unknown" if check.measured is None else one(check.measured), limit, said]


def _sign(check: Check, low_is_bad: bool) -> str:
    if check.name in ("parameters", "ranks", "hardware readings"):
        return "="
    return "≥" if low_is_bad else "≤"


def _printers(unit: str) -> tuple[Callable[[float], str], Callable[[Check], str]]:
    """How figures of a unit are printed: one value, and the predicted band of a check."""
    one: Callable[[float], str] = {
        "bytes": units.gib,
        "bytes/s": units.gb_per_s,
        "s": units.seconds,
        "count": units.whole,
        "USD": units.usd,
        "h": units.hours,
        "share": lambda share: units.percent(share, 2),
    }.get(unit, units.ratio)
    bands = {"bytes": units.gib_band, "s": units.seconds_band, "USD": units.usd_band, "h": units.hours_band}
    banded = bands.get(unit)

    def band(check: Check) -> str:
        assert check.predicted is not None
        return banded(check.predicted) if banded else one(check.predicted.mid)

    return one, band


def conclusion(verdict: ProbeVerdict, term: Terminal) -> list[str]:
    """Draw the verdict in a sentence, what the run takes at the measured speed, the cause, and what fits."""
    judged = [c for c in verdict.checks if c.passed is not None]
    passed = sum(c.passed is True for c in judged)
    word = text.paint(verdict.verdict, verdict.verdict, term)
    lines = [f" Verdict: {word} ({passed} of {len(judged)})."]
    if verdict.repriced is not None:
        lines += text.paragraph(_repriced(verdict.repriced), term, indent=" ")
    if verdict.likely_cause:
        lines += text.paragraph(f"Likely: {verdict.likely_cause}.", term, indent=" ")
    if verdict.advice:
        lines.append(" Would fit, with as much more memory as was measured:")
        lines += [line for each in verdict.advice for line in text.paragraph(each, term, indent="   ")]
    return lines


def _repriced(found: Repriced) -> str:
    """``At the measured speed the run takes 91 h (88–95) and costs $953 (920–990): $47 under budget.``"""
    said = f"At the measured speed the run takes {units.hours_band(found.hours)}"
    if found.cost_usd is None:
        return f"{said}; its cost is unknown."
    said += f" and costs {units.usd_band(found.cost_usd)}"
    if found.budget_usd is None:
        return f"{said}."
    left = float(found.budget_usd) - found.cost_usd.mid
    return f"{said}: {units.usd(abs(left))} {'under' if left >= 0 else 'over'} the budget."


# ------------------------------------------------------------------------------------- what was measured


def _head(document: ProbeDocument, term: Terminal) -> list[str]:
    """``# Ray 2.60.0 · torch 2.13.0 · 1 node × 2 workers · gloo · AMD EPYC …``"""
    versions = [f"{name} {value}" for name, value in sorted(document.versions.items())]
    hardware = document.hardware
    nodes = f"{document.num_nodes} node{'s' * (document.num_nodes != 1)}"
    workers = "workers" if document.run.shape.gpu == "CPU" else "GPUs"
    per_node = document.num_ranks / max(1, document.num_nodes)
    each = units.whole(per_node) if per_node == int(per_node) else f"{units.ratio(per_node)} on average"
    parts = [*versions, f"{nodes} × {each} {workers}"]
    parts += list(dict.fromkeys(h.device for h in hardware))
    parts += [f"driver {d}" for d in dict.fromkeys(h.driver for h in hardware) if d]
    parts += [t for t in dict.fromkeys(h.transport for h in hardware) if t]
    lines = text.paragraph("# " + " · ".join(parts), term)
    model = document.run.model
    if document.num_layers != model.num_layers:
        said = f"# {document.num_layers} of {model.num_layers} layers of {model.name} ran (--scale)"
        lines += text.paragraph(f"{said}: every figure below is of those, unless it says otherwise", term)
    return lines


def _all_reduce(document: ProbeDocument, term: Terminal) -> Iterator[str]:
    """AllReduce by size: a few of the sweep, the plan's own, the largest; for each kind of group."""
    swept = [c for c in document.collectives if c.op == "all_reduce"]
    for scope in dict.fromkeys(c.scope for c in swept):
        rows = _few([c for c in swept if c.scope == scope])
        title = f"ALLREDUCE{_SCOPES[scope].upper()}"
        yield from _collectives(title, [(_size(c), c) for c in rows], term)
    correct = all(c.correct for c in document.collectives)
    yield " all values correct" if correct else text.paint(" wrong values, see below", "fail", term)


def _few(timings: Sequence[CollectiveDocument]) -> list[CollectiveDocument]:
    """Sizes that are worth a line: the plan's own, and some of the sweep up to the largest."""
    swept = sorted((t for t in timings if not t.purpose), key=lambda t: t.bytes)
    step = max(1, (len(swept) - 1) // (_MOST_SIZES - 1))
    chosen = swept[::-1][::step][:_MOST_SIZES]
    return sorted([*chosen, *(t for t in timings if t.purpose)], key=lambda t: t.bytes)


def _size(timing: CollectiveDocument) -> str:
    purpose = f" ({timing.purpose})" if timing.purpose else ""
    return units.buffer_size(timing.bytes) + purpose


def _others(document: ProbeDocument, term: Terminal) -> Iterator[str]:
    """The other collectives, at their largest size over all ranks and at the plan's own."""
    others = [c for c in document.collectives if c.op != "all_reduce"]
    largest = {c.op: c for c in sorted(others, key=lambda c: c.bytes) if not c.purpose and c.scope == "all"}
    rows = [*largest.values(), *(c for c in others if c.purpose)]
    if rows:
        yield from ["", *_collectives("OTHERS", [(f"{OPERATIONS[c.op]} {_size(c)}", c) for c in rows], term)]


def _skipped(document: ProbeDocument, term: Terminal) -> Iterator[str]:
    """What was not timed, by reason."""
    ops: dict[str, dict[str, None]] = {}
    for each in document.skipped:
        ops.setdefault(each.why, {})[OPERATIONS[each.op]] = None
    for why, named in ops.items():
        yield from text.paragraph(f"Not timed: {', '.join(named)}: {why}", term, indent=" ")


def _collectives(title: str, rows: Sequence[tuple[str, CollectiveDocument]], term: Terminal) -> list[str]:
    columns = [Column(title)]
    columns += [Column(name, right=True) for name in ("TIME", "ALGBW", "BUSBW", "EXPECTED", "OF IT")]
    return text.table(columns, [[name, *_bandwidths(c)] for name, c in rows], term.width, indent=" ")


def _bandwidths(timing: CollectiveDocument) -> list[str]:
    expected = timing.expected_busbw_bytes_per_s
    share = None if expected is None else timing.busbw_bytes_per_s / expected
    return [
        units.seconds(timing.time_s),
        units.gb_per_s(timing.algbw_bytes_per_s),
        units.gb_per_s(timing.busbw_bytes_per_s),
        _NOTHING if expected is None else units.gb_per_s(expected),
        _NOTHING if share is None else units.percent(share),
    ]


def _memory(document: ProbeDocument, term: Terminal) -> list[str]:
    """Peak memory of each rank against the prediction; of many ranks the fullest ones."""
    check = next((c for c in document.checks if c.name == "peak memory reserved"), None)
    predicted = None if check is None or check.predicted is None else check.predicted.mid
    limit = None if check is None else check.limit
    ranks = sorted(document.memory, key=lambda r: -(r.reserved_bytes or 0.0))
    shown = sorted(ranks[:_MOST_RANKS], key=lambda r: r.rank)
    columns = [Column("MEMORY PER RANK")]
    columns += [Column(n, right=True) for n in ("ALLOCATED", "RESERVED", "PREDICTED", "LIMIT")]
    columns.append(Column(""))
    rows = [_memory_row(r, predicted, limit, r is ranks[0] and len(ranks) > 1) for r in shown]
    lines = text.table(columns, rows, term.width, indent=" ")
    if len(ranks) > len(shown):
        lines.append(f" the fullest {len(shown)} of {len(ranks)} ranks")
    return lines


def _memory_row(rank: RankMemory, predicted: float | None, limit: float | None, highest: bool) -> list[str]:
    off = "" if predicted is None or rank.reserved_bytes is None else rank.reserved_bytes / predicted - 1
    return [
        f"rank {rank.rank}",
        _NOTHING if rank.allocated_bytes is None else units.gib(rank.allocated_bytes),
        units.gib(rank.reserved_bytes),
        f"{units.gib(predicted)} ({units.signed_percent(off)})" if isinstance(off, float) else _NOTHING,
        _NOTHING if limit is None else units.gib(limit),
        "highest" if highest else "",
    ]


def _steps(document: ProbeDocument, term: Terminal) -> list[str]:
    """``STEP  median 4.05 s  p95 4.11 s  64.7 k tok/s  MFU 28.6 %  slowest rank 3 (1.03)``"""
    steps = document.steps
    ordered = sorted(steps.seconds)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    middle = median(ordered)
    parts = [f"median {units.seconds(middle)}", f"p95 {units.seconds(p95)}"]
    parts.append(units.tokens_per_s(steps.tokens_per_s))
    parts.append("MFU unknown" if steps.mfu is None else f"MFU {units.percent(steps.mfu, 1)}")
    if steps.loader_s is not None:
        parts.append(f"loader {units.percent(steps.loader_s / middle, 1)}")
    slowest = next((c for c in document.checks if c.name.startswith("slowest rank")), None)
    if slowest is not None:
        parts.append(f"slowest {slowest.why} ({units.ratio(slowest.measured)})")
    parts.append(f"loss {units.ratio(document.loss[0])} → {units.ratio(document.loss[-1])}")
    return text.paragraph("STEP  " + " · ".join(text.keep(p) for p in parts), term, indent=" ", hang="      ")
