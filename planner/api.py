"""The public functions: ``suggest`` and ``estimate``. Pure: no network, no clock, no environment.

>>> from planner.api import estimate, suggest
"""

from __future__ import annotations

from collections.abc import Sequence

from planner import answers
from planner.cost.lines import whole_run
from planner.errors import UserError
from planner.hardware.links import warnings_of
from planner.results import Estimate, MemoryEstimate, SkippedProvider, SpeedEstimate, Suggestion
from planner.runs import RunRequest, achieved, outgrown
from planner.runs.completion import Completed, complete
from planner.runs.what_if import Outlook, changes
from planner.search.candidates import work_of_run
from planner.search.question import Question
from planner.search.suggest import suggest as answer
from planner.training import frameworks
from planner.trust import nearness
from planner.trust.features import features
from planner.trust.nearness import Residuals
from planner.types import Goal, LayoutPins, ModelSpec, Offer, Run, TrainingSpec

__all__ = ["estimate", "estimate_each", "suggest", "what_if"]

NO_HEADROOM = 0.0  # "safe" of a run description is the high end of device memory within the usable
NO_PINS = LayoutPins()


def suggest(
    model: ModelSpec,
    training: TrainingSpec,
    goal: Goal,
    offers: Sequence[Offer],
    *,
    pins: LayoutPins = NO_PINS,
    top: int = 5,
    skipped: Sequence[SkippedProvider] = (),
    known: Residuals | None = None,
) -> Suggestion:
    """Which GPUs, how many, laid out how, for how long, at what cost.

    ``offers``: all that are known; the goal picks among them, and a rescue may look beyond the goal. Tokens
    and global batch that ``training`` leaves out follow from documented rules (``training.defaults``). Where
    the optimizer is not set, 8-bit states are tried where memory is short. ``known``: the measured runs that
    bands rest on, with the user's own (``planner.calibration``); by default those that were shipped.

    Raises ``UserError`` for what cannot be asked: unknown names, a pinned layout that this model cannot have.
    """
    return answer(Question(model, training, goal, pins, known or nearness.shipped()), offers, skipped, top)


def estimate(
    requests: Sequence[RunRequest], headroom: float = NO_HEADROOM, known: Residuals | None = None
) -> list[Estimate]:
    """Memory and speed of runs, all at once; parts of a layout that a request leaves out are searched.

    Raises ``UserError`` for the first request that cannot be answered; ``estimate_each`` keeps going.
    """
    found = []
    for each in estimate_each(requests, headroom, known):
        if isinstance(each, UserError):
            raise each
        found.append(each)
    return found


def estimate_each(
    requests: Sequence[RunRequest], headroom: float = NO_HEADROOM, known: Residuals | None = None
) -> list[Estimate | UserError]:
    """Answer each request with an estimate, or with the error that says why there is none."""
    known = known or nearness.shipped()
    completed = [_complete(request, headroom, known) for request in requests]
    runs = [each.run for each in completed if isinstance(each, Completed)]
    estimates = iter(answers.evaluate(runs, known))
    found: list[Estimate | UserError] = []
    for request, each in zip(requests, completed, strict=True):
        if isinstance(each, UserError):
            found.append(each)
        else:
            in_memory, in_time = next(estimates)
            found.append(_estimate(request, each, in_memory, in_time, headroom, known))
    return found


def what_if(run: Run, known: Residuals | None = None) -> tuple[Outlook, ...]:
    """Estimate what the usual changes would do to a run."""
    listed = changes(run)
    estimates = answers.evaluate([change.run for change in listed], known or nearness.shipped())
    return tuple(
        Outlook(
            name=change.name,
            estimate=Estimate(run=change.run, memory=in_memory, speed=in_time),
            note=change.note,
        )
        for change, (in_memory, in_time) in zip(listed, estimates, strict=True)
    )


def _complete(request: RunRequest, headroom: float, known: Residuals) -> Completed | UserError:
    """Make a request whole, or say why it cannot be."""
    try:
        return complete(request, headroom, known)
    except UserError as error:
        return error


def _estimate(
    request: RunRequest,
    completed: Completed,
    in_memory: MemoryEstimate,
    in_time: SpeedEstimate,
    headroom: float,
    known: Residuals,
) -> Estimate:
    """Put the answer for one request together."""
    run = completed.run
    shape, training = run.shape, run.training
    num_gpus = shape.num_gpus
    said = [*completed.said, *outgrown.warnings(run, in_memory, headroom, known)]
    if (unknown := frameworks.warning(training.framework)) is not None:
        said.append(unknown)
    if num_gpus > 1:
        said += warnings_of(shape.links)
    said += nearness.warnings(shape.gpu, known)
    if (corrected := nearness.correction(features(run), known)) is not None:
        said.append(corrected)
    whole = None
    if training.num_tokens is not None:
        step_s, reached = in_time.step_s, _reached(request, run, known)
        if reached is not None:
            step_s = achieved.slowed(step_s, reached)
            said.append(achieved.said(reached))
        whole = whole_run(step_s, work_of_run(run), request.usd_per_gpu_hour)
        said.append("whole: training, checkpoints and work done again; no set-up, probe or billing rules")
    return Estimate.model_construct(
        run=run, memory=in_memory, speed=in_time, whole=whole, warnings=tuple(dict.fromkeys(said))
    )


def _reached(request: RunRequest, run: Run, known: Residuals) -> achieved.Share | None:
    """Share of the predicted speed that runs reach which say as little as this description."""
    if request.named is None or request.layout is not None:
        return None
    known_framework = frameworks.match_id(request.training.framework) is not None
    named = request.named if known_framework else "nothing"
    return achieved.share(named, request.pins, run.model, run.shape, known)
