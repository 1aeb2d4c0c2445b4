"""The user's own measured runs as residuals beside the shipped ones: what ``plan calibrate`` reckons. Pure.

A line is a run description with ``measured``: ``peak_memory_gib`` with its ``memory_kind``, and
``tokens_per_s_per_gpu`` or ``step_time_s``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from planner import api
from planner.errors import UserError
from planner.results import Estimate
from planner.runs import line_id, parse_line
from planner.trust import accuracy, nearness, residuals
from planner.trust.features import features
from planner.trust.residuals import OWN, Quantity, Residual
from planner.types import MemoryKind, Record

GIB = 2**30
MEMORY_KINDS: tuple[MemoryKind, ...] = ("allocated", "reserved", "device")
_HINT = '"measured": {"tokens_per_s_per_gpu": 5100, "peak_memory_gib": 61.5, "memory_kind": "reserved"}'
MOST_OFF = 20.0  # measured over predicted, or the other way round: more is a wrong unit, not a slow machine


@dataclass(frozen=True, slots=True)
class OwnFigure:
    """One figure that the user measured: the name of its line, and the residual."""

    id: str
    residual: Residual


class Calibrated(Record):
    """One measured figure: error before, error as it is corrected, and as the user's other runs correct it.

    Errors are predicted / measured − 1, of bytes or of tokens a second. ``left_out`` is the honest one.
    """

    id: str
    quantity: Quantity
    before: float
    after: float
    left_out: float


class Calibration(Record):
    """What calibrating found: each figure, and the median |error| of all before and after."""

    figures: tuple[Calibrated, ...]

    def median_error(self, which: str) -> float:
        """Median |error| of all figures: ``before``, ``after`` or ``left_out``."""
        return float(median(abs(getattr(figure, which)) for figure in self.figures))


def own_figures(lines: Sequence[str]) -> tuple[OwnFigure, ...]:
    """Figures of measured runs, one run a line. Raises ``UserError`` with the number of the line at fault."""
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise UserError("no measured runs", "one JSON object a line: a run description with " + _HINT)
    found: list[OwnFigure] = []
    for number, line in numbered:
        name = line_id(line)
        try:
            found += [
                OwnFigure(f"line {number}" if name is None else str(name)[:60], row) for row in _rows(line)
            ]
        except UserError as error:
            raise UserError(f"line {number}: {error}", error.hint) from None
    return tuple(found)


def _rows(line: str) -> list[Residual]:
    """Residuals of one line: one for each figure that was measured."""
    request = parse_line(line)
    estimate = api.estimate([request], known=nearness.none())[0]
    measured = json.loads(line).get("measured")
    if not isinstance(measured, Mapping):
        raise UserError("nothing was measured in this run", _HINT)
    found = [*_memory(measured, estimate), *_time(measured, estimate)]
    if not found:
        raise UserError("measured holds neither peak memory nor a speed", _HINT)
    kind = features(estimate.run)
    for quantity, ratio in found:
        if not 1 / MOST_OFF < ratio < MOST_OFF:
            raise UserError(
                f"{quantity} measured is {ratio:.3g} times what is predicted", "check the unit and the run"
            )
    return [Residual(quantity, OWN, kind, math.log(ratio)) for quantity, ratio in found]


def _memory(measured: Mapping[str, object], estimate: Estimate) -> list[tuple[Quantity, float]]:
    """Measured over predicted peak memory."""
    peak = _positive(measured, "peak_memory_gib")
    if peak is None or estimate.memory is None:
        return []
    kind = measured.get("memory_kind") or "reserved"
    if kind not in MEMORY_KINDS:
        raise UserError(
            f"memory_kind is {kind!r:.60}, not one of {', '.join(MEMORY_KINDS)}", '"memory_kind": "reserved"'
        )
    bands = {
        "allocated": estimate.memory.allocated_bytes,
        "reserved": estimate.memory.reserved_bytes,
        "device": estimate.memory.device_bytes,
    }
    which = MEMORY_KINDS[MEMORY_KINDS.index(kind)]
    return [(which, peak * GIB / bands[which].mid)]


def _time(measured: Mapping[str, object], estimate: Estimate) -> list[tuple[Quantity, float]]:
    """Measured over predicted seconds of a step."""
    if estimate.speed is None:
        return []
    rate, step_s = _positive(measured, "tokens_per_s_per_gpu"), _positive(measured, "step_time_s")
    if rate is not None:
        return [("step", estimate.speed.tokens_per_s_per_gpu.mid / rate)]
    return [] if step_s is None else [("step", step_s / estimate.speed.step_s.mid)]


def _positive(measured: Mapping[str, object], name: str) -> float | None:
    """Number above zero, or ``None`` where nothing is said."""
    value = measured.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UserError(f"measured.{name} is {value!r:.60}, not a number above zero", _HINT)
    return float(value)


def known_with(own: Sequence[Residual]) -> nearness.Residuals:
    """The shipped residuals with the user's own on top."""
    return nearness.residuals([*residuals.shipped_rows(), *own]) if own else nearness.shipped()


def calibration(figures: Sequence[OwnFigure]) -> Calibration:
    """Errors of the user's figures before and after; ``left_out``: corrected by the others alone."""
    own = [figure.residual for figure in figures]
    known = known_with(own)
    found = []
    for i, (figure, row) in enumerate(zip(figures, own, strict=True)):
        others = known_with([*own[:i], *own[i + 1 :]])
        found.append(
            Calibrated(
                id=figure.id,
                quantity=row.quantity,
                before=accuracy.error(row),
                after=_corrected(row, known),
                left_out=_corrected(row, others),
            )
        )
    return Calibration(figures=tuple(found))


def _corrected(row: Residual, known: nearness.Residuals) -> float:
    """Error of a figure after correction."""
    middle = float(nearness.spreads(row.quantity, [row.features], known).middle[0])
    left = Residual(row.quantity, row.source, row.features, row.log_ratio - math.log(middle))
    return accuracy.error(left)
