"""One result from what ranks handed in, whole or in part. No Ray and no torch: plain records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from .measure import RankSteps, joined
from .place import Place
from .results import Depth, Failure, MeasuredSteps, ProbeResult, RankHardware, RankMemory

Parts = Mapping[str, Mapping[int, Any]]
T = TypeVar("T")


def result_of(
    parts: Parts,
    failures: Iterable[Failure],
    *,
    whole: tuple[int, int],
    started: str,
    phase_s: Mapping[str, float],
    wall_s: float,
    versions: Mapping[str, str],
) -> ProbeResult:
    """Build the result; what no rank handed in stays empty. ``whole``: layers of the model, and ranks."""
    num_layers, num_ranks = whole
    depths = _depths(parts)
    main = depths[-1] if depths else num_layers
    swept = _first(parts, "collectives")
    place = cast(Place | None, _first(parts, "place"))
    return ProbeResult(
        started=started,
        wall_s=wall_s,
        phase_s=dict(phase_s),
        versions=dict(versions),
        num_nodes=place.num_nodes if place else 1,
        num_ranks=num_ranks,
        num_layers=main,
        num_params=_first(parts, f"params {main}"),
        hardware=tuple(cast(list[RankHardware], _by_rank(parts, "hardware"))),
        collectives=swept.timings if swept else (),
        skipped=swept.skipped if swept else (),
        pairs=_first(parts, "pairs") or (),
        memory=_memory(parts, main),
        steps=_steps(parts, main, num_ranks),
        depths=_cut(parts, depths, num_layers, num_ranks),
        precision=_first(parts, "precision"),
        failures=tuple(failures),
    )


def _by_rank(parts: Parts, name: str) -> list[Any]:
    """Part of every rank that handed it in, in order of ranks."""
    told = parts.get(name, {})
    return [told[rank] for rank in sorted(told)]


def _first(parts: Parts, name: str) -> Any:  # noqa: ANN401 - parts differ in kind
    """Part of the first rank that handed it in."""
    told = _by_rank(parts, name)
    return told[0] if told else None


def _depths(parts: Parts) -> tuple[int, ...]:
    """Numbers of layers that were to be run."""
    return tuple(_first(parts, "depths") or ())


def _memory(parts: Parts, layers: int) -> tuple[RankMemory, ...]:
    return tuple(_by_rank(parts, f"memory {layers}"))


def _steps(parts: Parts, layers: int, num_ranks: int) -> MeasuredSteps | None:
    """Steps of a depth, where every rank has timed them."""
    told = cast(list[RankSteps], _by_rank(parts, f"steps {layers}"))
    if len(told) != num_ranks:
        return None
    alone = [each for each in _by_rank(parts, "layer alone") if each is not None]
    return replace(joined(told), layer_s_by_rank=tuple(alone) if len(alone) == num_ranks else ())


def _cut(parts: Parts, depths: tuple[int, ...], whole: int, num_ranks: int) -> tuple[Depth, ...]:
    """Each depth that was run with fewer layers than the model has."""
    cut = (Depth(num_layers=n, memory=_memory(parts, n), steps=_steps(parts, n, num_ranks)) for n in depths)
    return tuple(each for each in cut if each.num_layers < whole and (each.memory or each.steps))
