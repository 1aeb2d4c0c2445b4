"""What a change to a run would do to its memory and speed: the WHAT-IF table of ``plan estimate``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.results import Estimate
from planner.types import Record, Run
from planner.units import whole

LARGE_VOCABULARY = 131_072
NUMERICS = "changes the numerics"


class Change(Record):
    """A change, the run that it makes, and what else it changes."""

    name: str
    run: Run
    note: str = ""


class Outlook(Record):
    """A change and the estimate of the changed run."""

    name: str
    estimate: Estimate
    note: str = ""


def changes(run: Run) -> tuple[Change, ...]:
    """List the changes worth a look: batch, recompute, optimizer states, number formats, loss, vocabulary."""
    return tuple(_changes(run))


def _changes(run: Run) -> Iterator[Change]:
    layout, training = run.layout, run.training
    if layout.grad_accum % 2 == 0:
        half = {"micro_batch": layout.micro_batch * 2, "grad_accum": layout.grad_accum // 2}
        yield Change(name=f"mbs {half['micro_batch']} (acc {half['grad_accum']})", run=_laid_out(run, half))
    for recompute in ("none", "selective", "full"):
        if recompute != layout.recompute:
            yield Change(name=f"recompute {recompute}", run=_laid_out(run, {"recompute": recompute}))
    if layout.dp > 1 and layout.zero_stage < 3 and layout.pp == 1:
        yield Change(name="fsdp (--zero 3)", run=_laid_out(run, {"zero_stage": 3}))
    if training.optimizer == "adamw":
        yield Change(
            name="8-bit optimizer states", run=_trained(run, {"optimizer": "adamw-8bit"}), note=NUMERICS
        )
    if training.precision == "bf16":
        narrow: dict[str, object] = {"precision": "bf16-pure"}
        if training.lora is not None:
            narrow["lora"] = training.lora.model_copy(update={"adapter_bits": 16})
        yield Change(name="all in bf16", run=_trained(run, narrow), note=NUMERICS)
    if training.loss not in ("chunked", "fused-linear"):
        yield Change(name="chunked loss", run=_trained(run, {"loss": "chunked"}))
    if run.model.vocab_size < LARGE_VOCABULARY:
        model = run.model.model_copy(update={"vocab_size": LARGE_VOCABULARY})
        yield Change(
            name=f"vocab {whole(LARGE_VOCABULARY)}",
            run=run.model_copy(update={"model": model}),
            note="another model",
        )


def _laid_out(run: Run, update: Mapping[str, object]) -> Run:
    """Change fields of the layout."""
    return run.model_copy(update={"layout": run.layout.model_copy(update=update)})


def _trained(run: Run, update: Mapping[str, object]) -> Run:
    """Change fields of the training."""
    return run.model_copy(update={"training": run.training.model_copy(update=update)})
