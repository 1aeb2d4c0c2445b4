"""What a page of ``plan explain`` is made of: sentences, tables of figures with units, formulas with sources.

Sentences stand in ``data/guide.toml``; figures are numbers here, and screens print them through
``planner.units``. A figure that is not known is ``None``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Literal

from planner.results import Estimate
from planner.types import Gpu, Offer, Record

Unit = Literal[
    "bytes", "bytes/s", "s", "h", "share", "change", "usd", "usd/h", "tokens/s", "FLOPs/s", "count"
]
Columns = tuple[tuple[str, Unit], ...]  # title and unit


class Column(Record):
    """A column of figures."""

    title: str
    unit: Unit


class Line(Record):
    """A row of figures: what it is about, one figure a column, and a remark."""

    label: str
    figures: tuple[float | None, ...]
    note: str = ""


class Grid(Record):
    """A table of figures. ``title``: of the column of labels; ``of``: which run or machine they are of."""

    title: str
    of: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]


class Formula(Record):
    """How a figure is made, and who says so."""

    text: str
    source: str


class Text(Record):
    """The words of a topic, with braces where a figure goes."""

    about: str
    title: str
    text: tuple[str, ...]
    advice: tuple[str, ...]
    formulas: tuple[Formula, ...]


class Page(Record):
    """One topic: what it is, figures of the user's own run, formulas, and what to do about it."""

    topic: str
    title: str
    text: tuple[str, ...]
    grids: tuple[Grid, ...]
    formulas: tuple[Formula, ...]
    advice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """What the figures of a page are computed for: a run, its GPU, and the offers that are known.

    ``headroom``: share of GPU memory that an ``ok`` choice leaves free.
    """

    answer: Estimate
    gpu: Gpu
    offers: Sequence[Offer] = ()
    headroom: float = 0.2


@lru_cache(maxsize=1)
def texts() -> dict[str, Text]:
    """Words of every topic, in the order in which they are listed."""
    content = files("planner").joinpath("data/guide.toml").read_text(encoding="utf-8")
    return {topic: Text.model_validate(words) for topic, words in tomllib.loads(content).items()}


def grid(title: str, of: str, columns: Columns, lines: Sequence[Line]) -> Grid:
    """Put a table together."""
    made = tuple(Column(title=name, unit=unit) for name, unit in columns)
    return Grid(title=title, of=of, columns=made, lines=tuple(lines))


def page(
    topic: str,
    grids: Sequence[Grid],
    figures: Mapping[str, str] | None = None,
    formulas: Sequence[Formula] = (),
) -> Page:
    """Put a page together; ``figures`` go into the braces of its words."""
    words, values = texts()[topic], dict(figures or {})
    return Page(
        topic=topic,
        title=words.title,
        text=tuple(sentence.format_map(values) for sentence in words.text),
        grids=tuple(grids),
        formulas=(*words.formulas, *formulas),
        advice=tuple(sentence.format_map(values) for sentence in words.advice),
    )
