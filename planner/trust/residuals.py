"""Residuals of measured runs: how far predicted figures were off, with the features that say what was near.

``data/residuals.csv`` has one row for each measured figure: the logarithm of measured over predicted, as
shipped and with the fitted constants refitted on the other sources, and what kind of run it was.
``tests/accuracy/make_residuals.py`` writes it. ``source`` is a label: rows of one source are not independent
of each other. It is never compared with anything about the run that is asked for.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal, get_args

from planner.errors import UserError
from planner.trust.features import LAYOUT, NUMBERS, WORDS, Features

Quantity = Literal["allocated", "reserved", "device", "step"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
HEAD = ("quantity", "source", *WORDS, *LAYOUT, *NUMBERS, "log_ratio", "left_out")
OWN = "yours"  # the source of rows that a user measured


@dataclass(frozen=True, slots=True)
class Residual:
    """One measured figure against the predicted one. ``log_ratio`` > 0: more was measured than predicted.

    ``left_out``: the same with the fitted constants refitted without the run's source; ``None`` where nobody
    did that.
    """

    quantity: Quantity
    source: str
    features: Features
    log_ratio: float
    left_out: float | None = None


@lru_cache(maxsize=1)
def shipped_rows() -> tuple[Residual, ...]:
    """Rows of ``data/residuals.csv``."""
    text = files("planner").joinpath("data/residuals.csv").read_text(encoding="utf-8")
    return from_csv(text)


def to_csv(rows: Iterable[Residual]) -> str:
    """Text of a residual file."""
    lines = [",".join(HEAD)]
    for row in rows:
        values = [getattr(row.features, name) for name in (*WORDS, *LAYOUT, *NUMBERS)]
        ratios = f"{row.log_ratio:.4f}", "" if row.left_out is None else f"{row.left_out:.4f}"
        lines.append(",".join((row.quantity, row.source, *map(_cell, values), *ratios)))
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def from_csv(text: str) -> tuple[Residual, ...]:
    """Rows of a residual file. Raises ``UserError`` for a file that is not one."""
    reader = csv.reader(text.splitlines())
    if tuple(next(reader, ())) != HEAD:
        raise UserError("not a file of residuals: its first line is another", "plan calibrate FILE.jsonl")
    return tuple(_row(cells) for cells in reader)


def _row(cells: Sequence[str]) -> Residual:
    """One row; an unknown quantity or a cell that is no number makes the file unreadable."""
    if len(cells) != len(HEAD) or cells[0] not in QUANTITIES:
        raise _unreadable(cells)
    try:
        zero, recompute, tp, pp, cp, ep, offload, moe = map(int, cells[6:14])
        params, gpus, nodes, seq_len, micro_tokens, log_ratio = map(float, cells[14:20])
        left_out = float(cells[20]) if cells[20] else None
    except ValueError:
        raise _unreadable(cells) from None
    words = cells[2], cells[3], cells[4], cells[5]
    layout = zero, recompute, tp, pp, cp, ep, offload, moe
    features = Features(*words, *layout, params, gpus, nodes, seq_len, micro_tokens)
    return Residual(QUANTITIES[QUANTITIES.index(cells[0])], cells[1], features, log_ratio, left_out)


def _unreadable(cells: Sequence[str]) -> UserError:
    return UserError(f"not a row of residuals: {','.join(cells)[:80]!r}", "plan calibrate FILE.jsonl")
