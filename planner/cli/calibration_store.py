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
    """What is kept: the lines, their residuals as CSV, and a hash of the estimator that made them.

    ``probed``: lines that probes made. They stay when ``plan calibrate`` reads other runs.
    """

    schema_version: int = 1
    estimator: str
    lines: tuple[str, ...]
    residuals: str
    probed: tuple[str, ...] = ()


def known(options: Options) -> nearness.Residuals | None:
    """Measured runs to rest on: ``None``, the shipped ones, unless the user calibrated and wants that."""
    if options["no_calibration"] or not (store.data_dir() / _FILE).exists():
        return None
    own = load()
    from planner.calibration import known_with

    return known_with(own) if own else None


def load() -> tuple[Residual, ...]:
    """Residuals of the user's runs; none where the file cannot be read, with a warning."""
    stored = _stored()
    if stored is None:
        return ()
    try:
        if stored.estimator == estimator():
            return residuals.from_csv(stored.residuals)
        return _residuals((*stored.lines, *stored.probed))
    except UserError as error:
        _warn(error)
        return ()


def save(lines: tuple[str, ...]) -> None:
    """Keep the user's runs in place of those kept before; what probes measured stays.

    Raises ``UserError`` for a line that is no measured run.
    """
    before = _stored()
    _write(lines, before.probed if before is not None else ())


def add(line: str) -> None:
    """Keep a run that a probe measured beside those that are there.

    Raises ``UserError`` for a line that is no measured run.
    """
    before = _stored()
    lines, probed = (before.lines, before.probed) if before is not None else ((), ())
    _write(lines, (*probed, line))


def _stored() -> Stored | None:
    """What is kept; ``None`` where nothing is, or with a warning where it cannot be read."""
    path = store.data_dir() / _FILE
    if not path.exists():
        return None
    try:
        return Stored.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError) as error:
        _warn(error)
        return None


def _warn(error: Exception) -> None:
    path = store.data_dir() / _FILE
    store.warn(f"calibration left out: {path} cannot be read ({str(error).splitlines()[0]})")


def _write(lines: tuple[str, ...], probed: tuple[str, ...]) -> None:
    rows = residuals.to_csv(_residuals((*lines, *probed)))
    stored = Stored(estimator=estimator(), lines=lines, residuals=rows, probed=probed)
    store.write(store.data_dir() / _FILE, stored.model_dump_json())


def _residuals(lines: tuple[str, ...]) -> tuple[Residual, ...]:
    from planner.calibration import own_figures

    return tuple(figure.residual for figure in own_figures(lines))


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
