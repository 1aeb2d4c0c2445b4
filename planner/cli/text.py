"""Plain text for a terminal: aligned columns, wrapping, and colour that only repeats what words say."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDE = 100
NARROW = 80
GAP = "  "
_ALTERNATIVES = re.compile(r";\s+|\s{3,}|\n")  # a command, and what it is for or another one
_JOINED = "\u00a0"  # textwrap does not break here
_CODES = {"ok": "32", "pass": "32", "tight": "33", "over": "31", "fail": "31", "bold": "1", "warning": "33"}


@dataclass(frozen=True, slots=True)
class Terminal:
    """How wide to draw, and whether colour is welcome."""

    width: int = WIDE
    color: bool = False

    @property
    def wide(self) -> bool:
        """Room for the columns that go first (REGION, tok/s)."""
        return self.width >= WIDE


def terminal() -> Terminal:
    """Look at stdout: never wider than 100 columns, colour only on a terminal without ``NO_COLOR``."""
    is_terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size((WIDE, 24)).columns
    color = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Terminal(width=max(NARROW, min(WIDE, columns)), color=color)


def paint(text: str, style: str, term: Terminal) -> str:
    """Colour ``text`` where the terminal takes it; the text itself stays as it is."""
    code = _CODES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if term.color and code else text


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its title, the least width it may shrink to, and which side its cells lean to."""

    title: str
    least: int = 0
    right: bool = False


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Give each column the width its cells want; where that is too much, the widest gives way first.

    No column gets narrower than its longest word, unless nothing else helps.
    """
    texts = [[c.title, *(cells[i] for cells in rows)] for i, c in enumerate(columns)]
    wanted = [max(map(len, cells)) for cells in texts]
    words = [max(len(word) for cell in cells for word in [cells[0], *cell.split(" ")]) for cells in texts]
    widths = _shrink(wanted, [max(w, c.least) for w, c in zip(words, columns, strict=True)], width)
    return _shrink(
        widths, [min(w, max(4, len(c.title))) for w, c in zip(widths, columns, strict=True)], width
    )


def _shrink(widths: Sequence[int], least: Sequence[int], total: int) -> list[int]:
    """Take from the column with most to give until the sum fits, or none has anything to give."""
    shrunk = list(widths)
    while sum(shrunk) + len(GAP) * (len(shrunk) - 1) > total:
        room = [w - low for w, low in zip(shrunk, least, strict=True)]
        if max(room) <= 0:
            break
        shrunk[room.index(max(room))] -= 1
    return shrunk


def row(
    columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str], indent: str = ""
) -> list[str]:
    """Lay cells out in columns; a cell that is too long continues on further lines."""
    wrapped = [_wrap(cell, width) for width, cell in zip(widths, cells, strict=True)]
    lines = []
    for i in range(max(map(len, wrapped), default=0)):
        here = [cell[i] if i < len(cell) else "" for cell in wrapped]
        padded = [
            t.rjust(w) if c.right else t.ljust(w) for c, w, t in zip(columns, widths, here, strict=True)
        ]
        lines.append((indent + GAP.join(padded)).rstrip())
    return lines


def header(columns: Sequence[Column], widths: Sequence[int], indent: str = "") -> str:
    """Lay out the titles of the columns."""
    return row(columns, widths, [c.title for c in columns], indent)[0]


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, indent: str = ""
) -> list[str]:
    """Lay out titles and rows within ``width``."""
    widths = fit(columns, rows, width - len(indent))
    body = [line for cells in rows for line in row(columns, widths, cells, indent)]
    return [header(columns, widths, indent), *body]


def paragraph(text: str, term: Terminal, indent: str = "", hang: str = "  ") -> list[str]:
    """Wrap a sentence to the terminal; following lines hang under the first."""
    lines = textwrap.wrap(
        text,
        term.width,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_JOINED, " ") for line in lines]


def complaint(message: str, hint: str) -> str:
    """Write an error and what to do, as stderr shows it; a command to paste is never broken."""
    said = paragraph(f"error: {' '.join(message.split())}", terminal(), hang="")
    return "\n".join([*said, "", *hinted(hint)]) + "\n"


def hinted(hint: str) -> list[str]:
    """Lines of a hint: where it is too long, each of its alternatives on a line of its own, unbroken."""
    whole = f"hint: {' '.join(hint.split())}"
    if len(whole) <= terminal().width:
        return [whole]
    parts = [" ".join(part.split()) for part in _ALTERNATIVES.split(hint)]
    return [f"{'hint: ' if i == 0 else '      '}{part}" for i, part in enumerate(p for p in parts if p)]


def bar(parts: Sequence[tuple[str, float]], total: float, mark: float | None, width: int) -> str:
    """Draw ``[PPGGOOAAAA....|...]``: one letter per share of ``total``, ``|`` where the headroom line is."""
    cells: list[str] = []
    reached = 0.0
    for letter, size in parts:
        reached += size
        cells += letter * (min(width, round(reached / total * width)) - len(cells))
    cells += "." * (width - len(cells))
    if mark is not None and 0 < mark < total:
        cells[min(width - 1, round(mark / total * width))] = "|"
    return f"[{''.join(cells)}]"


def keep(words: str) -> str:
    """Join words so that no line breaks between them; ``paragraph`` and ``row`` print plain spaces."""
    return words.replace(" ", _JOINED)


def _wrap(cell: str, width: int) -> list[str]:
    """Break a cell at blanks; inside a word only where it is longer than a line, at hyphens first."""
    if len(cell) <= width:
        return [cell.replace(_JOINED, " ")]
    too_long = max(map(len, cell.split(" "))) > width
    lines = textwrap.wrap(cell, width, break_on_hyphens=too_long)
    return [line.replace(_JOINED, " ") for line in lines] or [""]
