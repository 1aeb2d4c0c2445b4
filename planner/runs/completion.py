"""Runs of which parts are missing: the layout that ``suggest`` would choose, given degrees kept."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from planner.checks import check_training
from planner.errors import UserError
from planner.hardware import gpus
from planner.layouts import BatchRule, layout_of
from planner.legality import check_layout, degrees_reason
from planner.model import check_model
from planner.model.count import count_params
from planner.runs import RunRequest, shape_of
from planner.search import search
from planner.search.state import OK, Found
from planner.training import frameworks
from planner.training.defaults import TOKENS_PER_PARAMETER, default_batch_tokens
from planner.trust.nearness import Residuals
from planner.types import Layout, LayoutPins, Run, Shape, TrainingSpec

# Share by which nine of ten memory estimates are not further off than (tests/accuracy/NOTES.md).
MEMORY_IS_OFF_BY = 0.15


@dataclass(frozen=True, slots=True)
class Completed:
    """A whole run, and in sentences what was chosen for it."""

    run: Run
    said: tuple[str, ...]


def complete(request: RunRequest, headroom: float, known: Residuals) -> Completed:
    """Make a request whole.

    Raises ``UserError`` for a layout that cannot run, or a GPU that cannot compute in the precision.
    """
    check_model(request.model)
    check_training(request.model, request.training)
    request = _with_habits(request)
    shape = shape_of(request)
    card = gpus.gpu(shape.gpu)
    if request.layout is not None:
        check_layout(
            request.model, request.training, request.layout, card, shape.gpus_per_node, shape.num_nodes
        )
        return Completed(_run(request, request.layout, shape, request.training), request.assumed)
    reason = gpus.supports(card, request.training.precision)
    if reason:
        raise UserError(f"{request.model.name} on {card.id}: {reason}", "--precision fp16")
    training, batch, said = _batch(request)
    layout, how = _searched(request, training, batch, shape, headroom, known)
    return Completed(_run(request, layout, shape, training), (*request.assumed, *said, how))


def _with_habits(request: RunRequest) -> RunRequest:
    """Fill in what the framework does by itself about the layout, where the run does not say."""
    habits = frameworks.match(request.training.framework).layout
    pins, said = request.pins, []
    found: dict[str, int] = {}
    if pins.sequence_parallel is None and not habits.sequence_parallel and pins.tp not in (None, 1):
        found["sequence_parallel"] = False
        said.append("no sequence parallelism, as the framework does by default")
    ep, tp, ranks = pins.ep or 1, pins.tp or 1, (pins.dp or 1) * (pins.cp or 1)
    if pins.etp is None and habits.expert_tensor_parallel and ep > 1 and tp > 1 and ranks % ep == 0:
        found["etp"] = tp
        said.append(f"experts split over {tp} tensor-parallel ranks too, as the framework does by default")
    count = math.gcd(pins.pp or 1, pins.micro_batch or 1)
    if habits.pipeline_splits_batch and pins.grad_accum == 1 and count > 1:
        found |= {"micro_batch": (pins.micro_batch or 1) // count, "grad_accum": count}
        said.append(f"batch of a rank cut into {count} micro-batches, as the framework's pipeline does")
    if not found:
        return request
    layout = request.layout.model_copy(update=found) if request.layout is not None else None
    return request.model_copy(
        update={
            "pins": pins.model_copy(update=found),
            "layout": layout,
            "assumed": (*request.assumed, *said),
        }
    )


def _run(request: RunRequest, layout: Layout, shape: Shape, training: TrainingSpec) -> Run:
    """Put a run together."""
    return Run.model_construct(
        id=request.id or "run", model=request.model, training=training, layout=layout, shape=shape
    )


def _batch(request: RunRequest) -> tuple[TrainingSpec, BatchRule, tuple[str, ...]]:
    """Find the global batch: as asked, else as pinned, else by the default rule."""
    training, pins = request.training, request.pins
    asked = training.global_batch_tokens
    if asked is not None:
        return training, BatchRule(max(1, round(asked / training.seq_len)), exact=True), ()
    if pins.micro_batch is not None and pins.grad_accum is not None:
        return training, BatchRule(pins.micro_batch * pins.grad_accum, exact=False), ()
    pretrain = training.method == "pretrain"
    usual = TOKENS_PER_PARAMETER * count_params(request.model).total if pretrain else math.inf
    batch = default_batch_tokens(request.model, pretrain, training.seq_len, training.num_tokens or usual)
    split = (pins.tp or 1) * (pins.pp or 1) * (pins.cp or 1)
    ranks = pins.dp or max(1, request.num_gpus // split)
    # every rank has something to do, also where a fine-tuning of few tokens would take a smaller batch
    sequences = max(batch // training.seq_len, ranks * (pins.micro_batch or 1) * (pins.grad_accum or 1))
    said = f"global batch not given: {sequences} sequences assumed"
    return training, BatchRule(sequences, exact=False), (said,)


def _searched(
    request: RunRequest,
    training: TrainingSpec,
    batch: BatchRule,
    shape: Shape,
    headroom: float,
    known: Residuals,
) -> tuple[Layout, str]:
    """Search the parts of the layout that are missing; say which kind of layout was found.

    A framework that recomputes by a habit of its own is taken at it, where that fits; nothing is offloaded
    then that the run does not say is.
    """
    habit = frameworks.match(training.framework).layout.recompute
    if request.pins.recompute is None and habit is not None:
        pins = request.pins.model_copy(update={"recompute": habit, **_not_offloaded(request.pins)})
        found = _search(request, training, batch, pins, shape, headroom, known)
        if (layout := _nearly_fitting(found, shape)) is not None:
            return layout, f"recompute {habit}, the framework's habit, and the fastest layout with it"
    found = _search(request, training, batch, request.pins, shape, headroom, known)
    picks = found.picks
    if len(picks.shape):
        best = int(np.argmin(picks.grade))
        safe = picks.grade[best] == OK
        words = "the fastest safe layout" if safe else "no layout is safe: the fastest that fits"
        return layout_of(picks.table, best), f"{words} was chosen for what the run leaves open"
    if np.isfinite(found.misses.device_bytes[0]):
        return layout_of(found.misses.table, 0), "no layout fits: the one that needs least memory was chosen"
    raise _impossible(request, batch, shape)


def _nearly_fitting(found: Found, shape: Shape) -> Layout | None:
    """Best layout of a search, or the one that misses by no more than memory estimates are off: runs that
    somebody describes mostly ran.
    """
    if len(found.picks.shape):
        return layout_of(found.picks.table, int(np.argmin(found.picks.grade)))
    most = gpus.gpu(shape.gpu).usable_memory_bytes * (1 + MEMORY_IS_OFF_BY)
    if found.misses.device_bytes[0] <= most:
        return layout_of(found.misses.table, 0)
    return None


def _not_offloaded(pins: LayoutPins) -> dict[str, object]:
    """Pins of a run that keeps on its GPUs what it does not say is elsewhere."""
    plain: dict[str, object] = {"offload": "none", "activation_offload": False}
    return {name: value for name, value in plain.items() if getattr(pins, name) is None}


def _search(
    request: RunRequest,
    training: TrainingSpec,
    batch: BatchRule,
    pins: LayoutPins,
    shape: Shape,
    headroom: float,
    known: Residuals,
) -> Found:
    """Search one machine, every link allowed."""
    return search.search(
        request.model,
        training,
        batch,
        pins,
        [shape],
        headroom,
        free_optimizer=False,
        allow_slow_link=True,
        known=known,
    )


def _impossible(request: RunRequest, batch: BatchRule, shape: Shape) -> UserError:
    """Say why the degrees that are given leave no legal layout."""
    pins = request.pins
    num_gpus = shape.num_gpus
    given = {k: v for k, v in pins.model_dump().items() if v is not None and k in Layout.model_fields}
    tp, pp, cp = pins.tp or 1, pins.pp or 1, pins.cp or 1
    layout = Layout().model_copy(update={**given, "dp": pins.dp or max(1, num_gpus // (tp * pp * cp))})
    reason = degrees_reason(request.model, request.training, layout, pins.grad_accum)
    hint = "leave a degree out"
    if reason is None:
        reason = f"no legal layout on {num_gpus} GPUs makes a global batch of {batch.sequences} sequences"
        each = layout.dp * (pins.micro_batch or 1) * (pins.grad_accum or 1)
        hint = f"a global batch of a multiple of {each} sequences"
    return UserError(f"{reason} ({request.model.name} on {num_gpus}x {shape.gpu})", hint)
