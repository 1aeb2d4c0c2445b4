"""What the files of all libraries need to know of a run."""

from __future__ import annotations

from collections.abc import Iterable

from planner.training.formats import numerics_of
from planner.training.frameworks import match
from planner.types import Numerics, Run


def numerics(run: Run) -> Numerics:
    """Number format of states and compute, as the plan was reckoned with."""
    training = run.training
    return numerics_of(training, match(training.framework).memory, sharded=run.layout.zero_stage == 3)


def shard_group(run: Run) -> int:
    """Ranks that ZeRO shards over."""
    return run.layout.shard_group or run.layout.dp * run.layout.cp


def sequences(run: Run) -> int:
    """Sequences of a global batch."""
    layout = run.layout
    return layout.dp * layout.micro_batch * layout.grad_accum


def named(reasons: Iterable[tuple[bool, str]]) -> list[str]:
    """Words of the reasons that hold."""
    return [words for holds, words in reasons if holds]
