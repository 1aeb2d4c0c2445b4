"""Changes of the plan that would fit, where memory did not suffice: asked of the planner's own what-if."""

from __future__ import annotations

from planner import answers, api
from planner.probed import Check, ProbeResult
from planner.results import Estimate
from planner.runs import RunRequest, outgrown
from planner.runs.completion import complete
from planner.search.candidates import frameworks_for
from planner.trust import nearness
from planner.trust.nearness import Residuals
from planner.types import LayoutPins, Run
from planner.units import gib, seconds, signed_percent
from planner.verdict.step import fullest, safe_bytes
from planner.verdict.subject import Subject

MOST = 3
_ANOTHER_QUESTION = ("vocab",)  # what-if lines that change what is trained


def needs_more(subject: Subject, part: Estimate, result: ProbeResult) -> float | None:
    """How many times the predicted memory the step really takes; ``None`` where memory was enough.

    Where a rank ran out, that is at least what there is over what was predicted.
    """
    predicted = None if part.memory is None else part.memory.reserved_bytes.mid
    if not predicted:
        return None
    rank = fullest(result.memory)
    ratios = [] if rank is None or rank.reserved_bytes is None else [rank.reserved_bytes / predicted]
    usable = None if part.memory is None else part.memory.usable_bytes
    out = any(failure.kind == "oom" for failure in result.failures)
    if out and usable is not None:
        ratios.append(usable / predicted)
    return max(ratios, default=None)


def advice(
    subject: Subject,
    part: Estimate,
    result: ProbeResult,
    checks: tuple[Check, ...],
    known: Residuals | None = None,
) -> tuple[str, ...]:
    """Changes after which the run fits, reckoned with as much more memory as was measured; fastest first."""
    out = any(failure.kind == "oom" for failure in result.failures)
    over = any("memory" in c.name and c.passed is False and c.measured is not None for c in checks)
    ratio, safe = needs_more(subject, part, result), safe_bytes(subject)
    if not (out or over) or ratio is None or safe is None:
        return ()
    factor = max(ratio, 1.0)
    said = [_words(name, found, subject) for name, found in _changes(subject.run, factor, safe, known)]
    if len(said) < MOST:
        said += _searched(subject, factor, known)
    return tuple(said[:MOST])


def _changes(run: Run, factor: float, safe: float, known: Residuals | None) -> list[tuple[str, Estimate]]:
    """Changes of one thing that fit, the quickest step first."""
    found = [
        (each.name, each.estimate)
        for each in api.what_if(run, known)
        if not each.name.startswith(_ANOTHER_QUESTION)
        and each.estimate.memory is not None
        and each.estimate.memory.reserved_bytes.mid * factor <= safe
        and _can_run(each.estimate.run)
    ]
    return sorted(found, key=lambda pair: pair[1].speed.step_s.mid if pair[1].speed else float("inf"))


def _can_run(run: Run) -> bool:
    """Whether our own step runs it, where our own step was asked for."""
    return run.training.framework != "plan" or frameworks_for(run) is None


def _words(name: str, found: Estimate, subject: Subject) -> str:
    """``recompute full: 21.8 GiB predicted, step +29 %``."""
    assert found.memory is not None
    was, now = subject.predicted.speed, found.speed
    slower = (
        "" if was is None or now is None else f", step {signed_percent(now.step_s.mid / was.step_s.mid - 1)}"
    )
    return f"{name}: {gib(found.memory.reserved_bytes.mid)} predicted{slower}"


def _searched(subject: Subject, factor: float, known: Residuals | None) -> list[str]:
    """The fastest layout on the same machines that fits with so much more memory, as flags."""
    run = subject.run
    headroom = 1.0 - (1.0 - subject.headroom) / factor
    request = RunRequest(
        id=run.id,
        model=run.model,
        training=run.training.model_copy(
            update={"global_batch_tokens": run.training.global_batch_tokens or _batch_tokens(run)}
        ),
        layout=None,
        pins=LayoutPins(),
        gpu=run.shape.gpu,
        num_gpus=run.shape.num_gpus,
        gpus_per_node=run.shape.gpus_per_node,
        interconnect=None,
        shape=run.shape,
    )
    base = known or nearness.shipped()
    layout = complete(request, headroom, base).run.layout
    other = run.model_copy(update={"layout": layout})
    found = answers.evaluate([other], base)[0]
    if (
        layout == run.layout
        or not _can_run(other)
        or found[0].reserved_bytes.mid * factor > (safe_bytes(subject) or 0.0)
    ):
        return []
    return [
        f"{outgrown.flags(layout)}: {gib(found[0].reserved_bytes.mid)}, step {seconds(found[1].step_s.mid)}"
    ]


def _batch_tokens(run: Run) -> int:
    layout = run.layout
    return layout.dp * layout.micro_batch * layout.grad_accum * run.training.seq_len
