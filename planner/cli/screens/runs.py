"""The table of ``plan estimate --runs``: one row a line."""

from __future__ import annotations

from collections.abc import Sequence

from planner import units
from planner.cli import text
from planner.cli.json_output import EstimateDocument
from planner.cli.text import Column, Terminal


def runs(answers: Sequence[EstimateDocument], term: Terminal) -> str:
    """Draw one row for each run; what could not be answered says why."""
    columns = [
        Column("RUN", 16),
        Column("GPUS", 15),
        Column("DEVICE GiB"),
        *([Column("OF", right=True)] if term.wide else []),
        Column("FITS"),
        Column("STEP", 10),
        *([Column("tok/s/GPU", right=True)] if term.wide else []),
    ]
    answered = [a for a in answers if a.error is None]
    cells = [_cells(a, term) for a in answered]
    widths = text.fit(columns, cells, term.width)
    lines = [text.header(columns, widths)]
    rows = iter(cells)
    for answer in answers:
        if answer.error is None:
            lines += text.row(columns, widths, next(rows))
        else:
            lines += text.paragraph(f"{answer.id}: error: {answer.error}", term)
    return "\n".join(lines)


def _cells(answer: EstimateDocument, term: Terminal) -> list[str]:
    shape, memory, speed = answer.shape, answer.memory, answer.speed
    gpus = units.UNKNOWN if shape is None else text.keep(f"{shape.num_gpus}× {shape.gpu}")
    usable = None if memory is None or memory.usable_gib is None else memory.usable_gib * units.GIB
    device = units.UNKNOWN if memory is None else units.gib_band_number(memory.device_gib)
    cells = [answer.id, gpus, device]
    cells += [units.gib_number(usable)] if term.wide else []
    cells += [_fits(answer), units.seconds_band(None if speed is None else speed.step_s)]
    return cells + (
        [units.count(None if speed is None else speed.tokens_per_s_per_gpu.mid)] if term.wide else []
    )


def _fits(answer: EstimateDocument) -> str:
    """Say whether the run fits: ``safe`` where the high end does too."""
    memory = answer.memory
    if memory is None or memory.fits is None:
        return units.UNKNOWN
    return "safe" if memory.safe else "tight" if memory.fits else "no"
