"""The user's measured runs on disk, and the residuals made of them, which the next commands rest on.

``calibration.json`` in the user's data directory. The lines are kept as they were given: where the estimator
has changed since, their residuals are made anew.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

from pydantic import ValidationError

from planner.cli import store
from planner.cli.request import Options
from planner.errors import UserError
from planner.trust import nearness, residuals
from planner.trust.residuals import Residual
from planner.types import Record

_FILE = "calibration.json"


class Stored(Record):
    """What is kept: the lines, their residuals as CSV, and a hash of the estimator that made them."""

    schema_version: int = 1
    estimator: str
    lines: tuple[str, ...]
    residuals: str


def known(options: Options) -> nearness.Residuals | None:
    """Measured runs to rest on: ``None``, the shipped ones, unless the user calibrated and wants that."""
    if options["no_calibration"] or not (store.data_dir() / _FILE).exists():
        return None
    own = load()
    from planner.calibration import known_with

    return known_with(own) if own else None


def load() -> tuple[Residual, ...]:
    """Residuals of the user's runs; none where the file cannot be read, with a warning."""
    path = store.data_dir() / _FILE
    try:
        stored = Stored.model_validate_json(path.read_text(encoding="utf-8"))
        if stored.estimator == estimator():
            return residuals.from_csv(stored.residuals)
        from planner.calibration import own_figures

        return tuple(figure.residual for figure in own_figures(stored.lines))
    except (OSError, ValidationError, UnicodeDecodeError, UserError) as error:
        store.warn(f"calibration left out: {path} cannot be read ({str(error).splitlines()[0]})")
        return ()


def save(lines: tuple[str, ...], rows: tuple[Residual, ...]) -> None:
    """Keep the user's runs in place of those kept before."""
    stored = Stored(estimator=estimator(), lines=lines, residuals=residuals.to_csv(rows))
    store.write(store.data_dir() / _FILE, stored.model_dump_json())


def remove() -> bool:
    """Forget the user's runs; false where there were none."""
    path = store.data_dir() / _FILE
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def estimator() -> str:
    """Hash of the shipped residuals: another one means that the formulas changed."""
    text = files("planner").joinpath("data/residuals.csv").read_text(encoding="utf-8")
    return hashlib.sha256(text.encode()).hexdigest()[:16]
