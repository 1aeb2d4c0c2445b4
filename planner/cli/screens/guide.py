"""The screen of ``plan table``."""

from __future__ import annotations

from collections.abc import Iterator

from planner import units
from planner.cli import text
from planner.cli.text import Column, Terminal
from planner.guide.table import Cell, MemoryTable

_WORDS = {"fp32": "FP32", "bf16": "autocast", "bf16-pure": "pure bf16"}
_ASSUMPTIONS = (
    "FP32: weights, gradients and optimizer states of 4 bytes each. autocast: the same states, bf16 only "
    "inside the pass: it saves activations, not states. pure bf16: everything in 16 bit, which changes what "
    "the optimizer can resolve.",
    "NEEDS: memory of the whole device at the peak, 80 % band. LEAST: with every block recomputed. "
    "STATES: once a backward pass is done. +1 SEQ: what one more sequence in the micro-batch adds.",
)


def table(found: MemoryTable, term: Terminal) -> str:
    """Draw the table, what it assumes, and where the rule of thumb errs."""
    a = found.assumed
    head = (
        f"Least memory to train on one GPU: micro-batch {a.micro_batch} × sequence {a.seq_len}, "
        f"{a.optimizer}, no recompute, headroom {units.percent(a.headroom)}; "
        "shapes as --params has them; a range stands for its upper end"
    )
    columns = [
        Column("PRECISION"),
        Column("NEEDS GiB"),
        *([Column("LEAST", right=True)] if term.wide else []),
        Column("STATES", right=True),
        Column("+1 SEQ", right=True),
        Column("GPU CLASS"),
        Column("RULE OF THUMB"),
    ]
    body = [_cells(cell, term) for row in found.rows for cell in row.cells]
    widths = text.fit(columns, body, term.width - 2)
    lines = [*text.paragraph(head, term), "", text.header(columns, widths, "  ")]
    for row in found.rows:
        lines.append(f"{row.range}, at {units.count(row.num_params)}")
        lines += [line for cell in row.cells for line in text.row(columns, widths, _cells(cell, term), "  ")]
    lines.append("")
    for sentence in _ASSUMPTIONS:
        lines += text.paragraph(sentence, term)
    return "\n".join([*lines, "", "Where the rule errs, and why:", *_why(found, term)])


def _cells(cell: Cell, term: Terminal) -> list[str]:
    rule = cell.rule
    return [
        _WORDS[cell.precision],
        units.gib_band(cell.device_bytes).replace(" GiB", ""),
        *([units.gib_number(cell.least_bytes.mid)] if term.wide else []),
        units.gib_number(cell.states_bytes),
        units.gib_number(cell.sequence_bytes),
        _gpu_class(cell, term),
        "no rule" if rule is None else f"{rule.gb}{'+' * rule.open_ended} GB: {rule.says}",
    ]


def _gpu_class(cell: Cell, term: Terminal) -> str:
    """Name the least card; two examples where there is room."""
    found = cell.gpu_class
    if found is None:
        return "more than tried"
    if found.num_gpus > 1:
        return f"{found.num_gpus}× {found.memory_gb} GB, FSDP"
    examples = f": {', '.join(found.examples[:1])}" if term.wide else ""
    return f"{found.memory_gb} GB{examples}"


def _why(found: MemoryTable, term: Terminal) -> Iterator[str]:
    """One sentence for each figure of the rule."""
    for row in found.rows:
        for cell in row.cells:
            if cell.rule is not None:
                name = f"{units.count(row.num_params)} {_WORDS[cell.precision]}"
                rule = f"{cell.rule.gb}{'+' * cell.rule.open_ended} GB"
                said = f"{name}, {rule} {cell.rule.says}: {cell.rule.why}"
                yield from text.paragraph(said, term, indent="  ")
