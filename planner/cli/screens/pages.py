"""The screens of ``plan explain``: the list of topics, and a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from planner import units
from planner.cli import text
from planner.cli.text import Column, Terminal
from planner.guide.pages import Grid, Line, Page, Unit

_PRINTED: dict[Unit, Callable[[float], str]] = {
    "bytes": lambda value: units.gib(value).replace("-", "−"),
    "bytes/s": units.gb_per_s,
    "s": units.seconds,
    "h": units.hours,
    "share": units.percent,
    "change": units.signed_percent,
    "usd": units.usd,
    "usd/h": units.usd_per_hour,
    "tokens/s": units.tokens_per_s,
    "FLOPs/s": lambda value: f"{units.tflops(value)} TFLOPS",
    "count": lambda value: "< 0.001" if 0 < value < 0.001 else units.count(value),
}
_LEAST_NOTE = 24


def topics(found: Sequence[tuple[str, str]], term: Terminal) -> str:
    """Draw the list of topics."""
    rows = [list(row) for row in found]
    lines = text.table([Column("TOPIC"), Column("ABOUT")], rows, term.width - 1, indent=" ")
    return "\n".join([*lines, "", "next: plan explain memory --params 7B --gpu H100-SXM5-80GB --gpus 8"])


def page(found: Page, example: str, term: Terminal) -> str:
    """Draw a page. ``example``: the options that stand for what the user did not say."""
    lines = [text.paint(found.title, "bold", term), ""]
    for sentence in found.text:
        lines += text.paragraph(sentence, term, hang="")
    for each in found.grids:
        lines += ["", *_grid(each, term)]
    lines += ["", "What to do:"]
    for sentence in found.advice:
        lines += text.paragraph(sentence, term, indent="  ", hang="")
    lines += ["", "Formulas:"]
    for formula in found.formulas:
        lines += text.paragraph(formula.text, term, indent="  ")
        lines += text.paragraph(f"source: {formula.source}", term, indent="      ")
    if example:
        lines += ["", *text.paragraph(f"Figures are of an example: {example} (give your own)", term)]
    return "\n".join(lines)


def _grid(found: Grid, term: Terminal) -> Iterator[str]:
    """Draw a table, and the remarks of its rows beside it, or below where there is no room."""
    rows = [_cells(found, line) for line in found.lines]
    columns = [Column(found.title, 12), *(Column(c.title, right=True) for c in found.columns)]
    notes = {line.label: line.note for line in found.lines if line.note}
    yield from text.paragraph(found.of, term)
    if not rows:
        yield " no figures"
        return
    titles = [c.title for c in columns]
    wanted = sum(max(map(len, cells)) + len(text.GAP) for cells in zip(titles, *rows, strict=True))
    beside = bool(notes) and wanted + _LEAST_NOTE < term.width
    if beside:
        columns.append(Column("", _LEAST_NOTE))
        rows = [[*cells, line.note] for cells, line in zip(rows, found.lines, strict=True)]
    yield from text.table(columns, rows, term.width - 1, indent=" ")
    for label, note in notes.items() if not beside else ():
        yield from text.paragraph(f"{label}: {note}", term, indent="   ")


def _cells(found: Grid, line: Line) -> list[str]:
    pairs = zip(found.columns, line.figures, strict=True)
    return [line.label, *(units.UNKNOWN if v is None else _PRINTED[c.unit](v) for c, v in pairs)]
