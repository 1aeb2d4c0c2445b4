"""Flags that would save a loser. None is printed that was not tried: the search is run again with it.

A rescue is appended to the command line, where the last value of a flag wins. ``apply_flags`` does the same
to a ``Question``, so that a test can run every printed rescue.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from planner import units
from planner.errors import UserError
from planner.hardware.gpus import matching_ids
from planner.layouts import layout_of
from planner.model.shapes import shape_for
from planner.records import build
from planner.search import verdicts
from planner.search.question import Outcome, Question, outcome
from planner.search.verdicts import REASONS
from planner.types import Goal, LayoutPins, LoraSpec, Offer, TrainingSpec

MOST_TIMES_OVER = 20.0  # nobody who asks for $100 is helped by a choice of $5,000
SHAPE_RULE = "shape rule of --params"
PIN_FLAGS = {
    "--dp": "dp", "--tp": "tp", "--pp": "pp", "--cp": "cp", "--ep": "ep", "--etp": "etp",
    "--zero": "zero_stage", "--shard-group": "shard_group", "--interleave": "interleave",
    "--micro-batch": "micro_batch",
    "--grad-accum": "grad_accum", "--recompute": "recompute", "--offload": "offload",
}  # fmt: skip
_WORDS = ("recompute", "offload")
_LISTS = {"--provider": "providers", "--region": "regions", "--gpu": "gpus"}
_CHOICES = {"--market": "market", "--stage": "stage"}


# ---------------------------------------------------------------------------------- applying


def apply_flags(question: Question, flags: str) -> Question:
    """Apply flags as ``plan suggest`` reads them at the end of the question's own.

    Raises ``UserError`` for a flag that no rescue prints, or a value that it cannot have.
    """
    words = shlex.split(flags)
    while words:
        flag = words.pop(0)
        if flag == "--allow-slow-link":
            question = _changed(question, "goal", {"allow_slow_link": True})
        elif not words:
            raise UserError(f"{flag} needs a value")
        else:
            question = _applied(question, flag, words.pop(0))
    return question


def _applied(question: Question, flag: str, value: str) -> Question:
    """Apply one flag with a value."""
    if flag == "--params":
        model = shape_for(units.parse_count(value, flag))
        return Question(model, question.training, question.goal, question.pins, question.known)
    if flag in PIN_FLAGS:
        field = PIN_FLAGS[flag]
        return _changed(question, "pins", {field: value if field in _WORDS else int(value)})
    goal = _goal_change(flag, value)
    if goal is not None:
        return _changed(question, "goal", goal)
    return _changed(question, "training", _training_change(question.training, flag, value))


def _goal_change(flag: str, value: str) -> dict[str, Any] | None:
    """Fields of the goal that a flag sets, ``None`` where it is not about the goal."""
    if flag == "--budget":
        return {"budget_usd": units.parse_usd(value, flag)}
    if flag == "--deadline":
        return {"deadline_s": units.parse_duration(value, flag)}
    if flag == "--headroom":
        return {"headroom": units.parse_fraction(value, flag)}
    if flag == "--max-gpus":
        return {"max_gpus": units.parse_int(value, flag)}
    if flag in _LISTS:
        names = () if value == "any" else tuple(value.split(","))
        return {_LISTS[flag]: tuple(sorted(matching_ids(names))) if flag == "--gpu" else names}
    return {_CHOICES[flag]: value} if flag in _CHOICES else None


def _training_change(training: TrainingSpec, flag: str, value: str) -> dict[str, Any]:
    """Fields of the training that a flag sets."""
    if flag == "--tokens":
        return {"num_tokens": units.parse_count(value, flag)}
    if flag == "--seq-len":
        return {"seq_len": units.parse_int(value, flag)}
    if flag == "--global-batch":
        return {"global_batch_tokens": units.parse_int(value, flag)}
    if flag == "--method":
        quant = {"base_bits": 4, "quant": "nf4"} if value == "qlora" else {}
        lora = (training.lora or LoraSpec()).model_copy(update=quant)
        return {"method": value, "lora": lora if value in ("lora", "qlora") else None}
    if flag in ("--precision", "--optimizer"):
        return {flag.removeprefix("--"): value}
    raise UserError(f"{flag} is not a flag that a rescue prints")


def _changed(question: Question, part: str, update: dict[str, Any]) -> Question:
    """Replace fields of one part of a question, validated; what was set before stays set."""
    training, goal, pins = question.training, question.goal, question.pins
    if part == "training":
        set_before = {name: getattr(training, name) for name in training.model_fields_set}
        training = build(TrainingSpec, {**set_before, **update}, "training")
    elif part == "goal":
        goal = build(Goal, {**goal.model_dump(), **update}, "goal")
    else:
        pins = build(LayoutPins, {**pins.model_dump(), **update}, "layout")
    return Question(question.model, training, goal, pins, question.known)


# ---------------------------------------------------------------------------------- finding


def saving(
    question: Question,
    flags: Iterable[str],
    offers: Sequence[Offer],
    num_nodes: int | None,
    *,
    raise_limits: bool = True,
) -> tuple[str, Outcome] | None:
    """Find the first of ``flags`` that saves something on these offers, with what it leads to.

    With ``raise_limits``, where flags lead to a row that only budget or deadline still break, what they would
    have to be is added.
    """
    for each in flags:
        found = _tried(question, each, offers, num_nodes)
        if found is not None and found.fits:
            return each, found
        more = _limits_needed(found) if found is not None and raise_limits else ""
        if more:
            both = f"{each} {more}".strip()
            found = _tried(question, both, offers, num_nodes)
            if found is not None and found.fits:
                return both, found
    return None


def _tried(question: Question, flags: str, offers: Sequence[Offer], num_nodes: int | None) -> Outcome | None:
    """Run the search with flags; ``None`` where they cannot be asked of this model."""
    try:
        return outcome(apply_flags(question, flags), offers, num_nodes)
    except UserError:
        return None


def _limits_needed(of: Outcome) -> str:
    """Say which budget and deadline the cheapest row needs, where nothing else breaks it."""
    costs, goal = of.judged.cost, of.question.goal
    rows = [int(r) for r in of.best if REASONS[of.judged.reason[r]] in ("budget", "deadline")]
    if not rows:
        return ""
    row = min(rows, key=lambda r: (float(costs.usd.high[r]), r))
    if verdicts.times_over(costs.usd.high[row], costs.hours.high[row], goal) > MOST_TIMES_OVER:
        return ""
    said = []
    if goal.budget_usd is not None and costs.usd.high[row] > float(goal.budget_usd):
        said.append(f"--budget {budget_flag(float(costs.usd.high[row]))}")
    if goal.deadline_s is not None and costs.hours.high[row] * 3600.0 > goal.deadline_s:
        said.append(f"--deadline {deadline_flag(float(costs.hours.high[row]))}")
    return " ".join(said)


def budget_flag(usd: float) -> str:
    """Round money up to two digits that people would type: 219.3 -> 220."""
    step = Decimal(10) ** max(-1, math.floor(math.log10(max(usd, 0.1))) - 1)
    rounded = math.ceil(Decimal(usd) / step) * step
    return f"{rounded.normalize():f}"


def deadline_flag(hours: float) -> str:
    """Round time up to whole hours, from three days on to whole days."""
    return f"{math.ceil(hours)}h" if hours <= 72 else f"{math.ceil(hours / 24)}d"


def count_flag(value: float) -> str:
    """Round a count down to two digits with a suffix: 6.47e9 -> 6.4B."""
    for scale, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= scale:
            digits = 10.0 ** (1 - math.floor(math.log10(value / scale)))
            return f"{math.floor(value / scale * digits) / digits:g}{suffix}"
    return str(math.floor(value))


def memory_flags(question: Question, num_gpus: int, offer: Offer) -> Iterator[str]:
    """List flags that make a run smaller on a GPU, the mildest first."""
    yield from _freed_pins(question, [offer], num_gpus // offer.gpus_per_node)
    training = question.training
    if (
        training.optimizer == "adamw"
        and not question.free_optimizer
        and training.method in ("pretrain", "full")
    ):
        yield "--optimizer adamw-8bit"
    if training.method == "full":
        yield "--method lora"
    if training.method in ("full", "lora"):
        yield "--method qlora"
    if training.precision == "bf16" and training.method == "pretrain":
        yield "--precision bf16-pure"
    if training.seq_len > 1024:
        yield f"--seq-len {training.seq_len // 2}"


def _freed_pins(question: Question, offers: Sequence[Offer], num_nodes: int) -> Iterator[str]:
    """Replace what the user pinned of the layout by what the search finds without."""
    pinned = {name: v for name, v in question.pins.model_dump().items() if v is not None}
    if not pinned:
        return
    free = outcome(
        Question(question.model, question.training, question.goal, LayoutPins(), question.known),
        offers,
        num_nodes,
    )
    if not len(free.best):
        return
    layout = layout_of(free.found.picks.table, int(free.judged.pick[free.best[0]]))
    words = []
    for flag, field in PIN_FLAGS.items():
        if field in pinned and getattr(layout, field) not in (pinned[field], None):
            words.append(f"{flag} {getattr(layout, field)}")
    if words:
        yield " ".join(words)
