"""What a probe is held against: the run that was planned, and the prediction for the part of it that ran."""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property

from planner import answers
from planner.model.count import count_params
from planner.probed import PHASES, ProbePhase, ProbeResult
from planner.results import Estimate, Plan
from planner.trust.nearness import Residuals
from planner.types import ModelSpec, Offer, Record, Run
from planner.verdict import cpu

HEADROOM = 0.2


class Subject(Record):
    """A planned run as it was shown. ``offer`` and ``budget_usd``: to price what is measured.

    ``phases``: what was asked for; others are not judged. ``own_loop``: the user's loop ran in place of the
    plan's step, so that nothing is known of its parameters. ``check_precision``: its loss was to be compared
    with that of fp32.
    """

    predicted: Estimate
    headroom: float = HEADROOM
    budget_usd: Decimal | None = None
    deadline_s: float | None = None
    offer: Offer | None = None
    phases: tuple[ProbePhase, ...] = PHASES
    own_loop: bool = False
    check_precision: bool = False

    @property
    def run(self) -> Run:
        """The whole run."""
        return self.predicted.run

    @property
    def on_cpu(self) -> bool:
        """Whether no GPU was planned."""
        return self.run.shape.gpu == cpu.CPU

    @cached_property
    def num_ranks(self) -> int:
        """Ranks that were planned."""
        return self.run.shape.num_gpus


def of_plan(
    plan: Plan, budget_usd: Decimal | None = None, headroom: float = HEADROOM, *, on_cpu: bool = False
) -> Subject:
    """Take a saved plan with the figures that were shown; ``on_cpu``: its ranks are CPU workers over gloo."""
    candidate = plan.candidate
    if on_cpu:
        ranks = candidate.run.shape.num_gpus
        here = candidate.run.model_copy(update={"shape": cpu.shape(ranks)})
        return Subject(predicted=cpu.estimate(here), headroom=headroom, budget_usd=budget_usd)
    predicted = Estimate(run=candidate.run, memory=candidate.memory, speed=candidate.speed)
    return Subject(predicted=predicted, headroom=headroom, budget_usd=budget_usd, offer=candidate.offer)


def cut_model(model: ModelSpec, num_layers: int) -> ModelSpec:
    """The model with fewer layers; layers with a sliding window keep their share."""
    if num_layers == model.num_layers:
        return model
    local = model.local_layers
    kept = None if local is None else round(local * num_layers / model.num_layers)
    return model.model_copy(update={"num_layers": num_layers, "local_layers": kept})


def cut_run(run: Run, num_layers: int, tokens_per_step: int | None = None) -> Run:
    """The run with the layers, and the micro-batches of a step, that a probe ran."""
    layout, training = run.layout, run.training
    micro_step = layout.dp * layout.micro_batch * training.seq_len
    if tokens_per_step is not None and tokens_per_step >= micro_step and tokens_per_step % micro_step == 0:
        layout = layout.model_copy(update={"grad_accum": tokens_per_step // micro_step})
    frozen = min(training.frozen_layers, num_layers)
    return run.model_copy(
        update={
            "model": cut_model(run.model, num_layers),
            "layout": layout,
            "training": training.model_copy(update={"frozen_layers": frozen}),
        }
    )


def predicted_part(subject: Subject, result: ProbeResult, known: Residuals | None = None) -> Estimate:
    """Prediction for what ran: as shown where that is the whole run, reckoned again where it is less."""
    tokens = None if result.steps is None or subject.own_loop else result.steps.tokens_per_step
    part = cut_run(subject.run, min(result.num_layers, subject.run.model.num_layers), tokens)
    if part == subject.run:
        return subject.predicted
    return estimate(part, known)


def estimate(run: Run, known: Residuals | None = None) -> Estimate:
    """Memory and speed of a run; of one on CPUs memory alone."""
    if run.shape.gpu == cpu.CPU:
        return cpu.estimate(run, known)
    in_memory, in_time = answers.evaluate([run], known)[0]
    return Estimate(run=run, memory=in_memory, speed=in_time)


def num_params(run: Run, num_layers: int) -> int:
    """Parameters of the model with that many layers."""
    return round(count_params(cut_model(run.model, num_layers)).total)
