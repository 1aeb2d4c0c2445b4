"""A user's own training loop in place of the plan's step: ``--entrypoint module:function``.

The function is called once on every rank, with a ``LoopContext``, inside an initialized process group. It
builds its own model and data, and after every optimizer step it says so::

    def train(context):
        model = build(context.plan).to(context.device)
        for batch in batches:
            loss = one_step(model, batch)
            if not context.step_done(loss):
                break

Steps are timed between two calls of ``step_done``; those up to the end of warm-up do not count. With
``with context.loading():`` around the fetching of data, its share is known too.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch

from .measure import RankSteps, Report, mean_losses
from .place import settle
from .spec import RefusedError, Run

Loop = Callable[["LoopContext"], object]


class LoopContext:
    """What a user's loop is given.

    ``plan``: content of ``plan.json``; ``rank`` of ``world_size``; ``device``: where to compute; ``seed``.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        place: tuple[int, int, torch.device],
        steps: tuple[int, int],
        seed: int,
        report: Report,
    ) -> None:
        self.plan, self.seed = plan, seed
        self.rank, self.world_size, self.device = place
        self._warmup, self._count = steps
        self._report = report
        self._ends: list[float] = []
        self._loading = 0.0
        self._loader_seconds: list[float] = []
        self._losses: list[torch.Tensor] = []

    def step_done(self, loss: torch.Tensor | float) -> bool:
        """Say that an optimizer step is done; ``loss`` is this rank's. Returns whether more are wanted."""
        self._losses.append(torch.as_tensor(loss, device=self.device).detach().clone())
        settle(self.device)
        self._ends.append(time.perf_counter())
        self._loader_seconds.append(self._loading)
        self._loading = 0.0
        self._report(min(len(self._ends), self.wanted), self.wanted)
        return len(self._ends) < self.wanted

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Time what is inside as the loader's."""
        started = time.perf_counter()
        yield
        self._loading += time.perf_counter() - started

    @property
    def wanted(self) -> int:
        """Steps that the loop is asked for; the first begins when nobody looks, so it counts as warm-up."""
        return max(self._warmup, 1) + self._count

    def measured(self, tokens_per_step: int) -> RankSteps:
        """Steps that were timed. Raises ``ValueError`` where the loop ended too early."""
        if len(self._ends) < self.wanted:
            raise ValueError(f"the loop ended after {len(self._ends)} steps, {self.wanted} were wanted")
        ends, first = self._ends, self.wanted - self._count
        pairs = zip(ends[first - 1 : self.wanted - 1], ends[first : self.wanted], strict=True)
        return RankSteps(
            seconds=tuple(b - a for a, b in pairs),
            loader_seconds=tuple(self._loader_seconds[first : self.wanted]),
            loss=mean_losses(self._losses[: self.wanted]),
            tokens_per_step=tokens_per_step,
        )


def load(name: str) -> Loop:
    """Import ``module:function``. Raises ``RefusedError`` where there is no such function."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise RefusedError(f"entrypoint {name}: {error}") from error
    if not callable(found):
        raise RefusedError(f"entrypoint {name}: not a function")
    return cast(Loop, found)


def tokens_per_step(run: Run) -> int:
    """Tokens of one optimizer step of the plan, over all ranks."""
    layout = run.layout
    return layout.dp * layout.micro_batch * layout.grad_accum * run.training.seq_len
