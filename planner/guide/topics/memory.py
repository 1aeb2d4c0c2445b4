"""Pages about GPU memory: ``memory``, ``precision``, ``zero``, ``headroom``."""

from __future__ import annotations

from collections.abc import Sequence

from planner import answers, api, units
from planner.guide.pages import Columns, Formula, Line, Page, Subject, grid, page
from planner.guide.states import states
from planner.guide.variants import both, changed, data_parallel, of_run
from planner.hardware.gpus import flops_per_s, supported_precisions
from planner.results import Estimate, MemoryEstimate
from planner.trust.terms import terms
from planner.types import Band, PeakAt, Precision, Run

_ZERO = {0: "DDP (stage 0)", 1: "ZeRO-1", 2: "ZeRO-2", 3: "ZeRO-3 / FSDP"}
_PEAK_AT: dict[PeakAt, str] = {
    "forward": "in the forward pass",
    "loss": "while the loss is computed",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer step",
}
_MICRO_BATCHES = tuple(2**k for k in range(9))
_KEPT: dict[Precision, str] = {
    "fp32": "the reference: nothing to verify",
    "tf32": "FP32 in memory, 11 bits of precision in matrix multiplies",
    "bf16": "autocast: FP32 states, bf16 inside the pass",
    "bf16-pure": "16-bit states: small updates are lost to rounding",
    "fp16": "as autocast, with few exponent bits: needs loss scaling",
    "fp8": "matrix multiplies in 8 bit with scales, the rest as bf16",
}


def memory(subject: Subject) -> Page:
    """What fills a GPU, part by part, and what each lever would do."""
    run = subject.answer.run
    found, _ = both(subject.answer)
    device = found.device_bytes.mid
    parts = [
        Line(label=name.replace("_", " "), figures=(size, size / device), note=terms()["memory", name].basis)
        for name, size in found.parts_bytes
    ]
    kinds = [
        Line(label="allocated", figures=_ends(found.allocated_bytes), note="tensors, as torch counts them"),
        Line(label="reserved", figures=_ends(found.reserved_bytes), note="with what the allocator keeps"),
        Line(label="device", figures=_ends(found.device_bytes), note="what nvidia-smi shows"),
    ]
    levers = [
        Line(label=each.name, figures=_lever(subject.answer, each.estimate), note=each.note)
        for each in api.what_if(run)
    ]
    formulas = [
        Formula(text=f"{name.replace('_', ' ')} = {term.formula}", source=term.source)
        for (kind, name), term in terms().items()
        if kind == "memory"
    ]
    return page(
        "memory",
        (
            grid("PART", of_run(run), (("SIZE", "bytes"), ("SHARE", "share")), parts),
            grid("AS TOLD BY", of_run(run), (("LOW", "bytes"), ("MID", "bytes"), ("HIGH", "bytes")), kinds),
            grid("LEVER", "one change", (("PEAK", "bytes"), ("SAVES", "bytes"), ("TIME", "change")), levers),
        ),
        {"peak_at": _PEAK_AT[found.peak_at]},
        formulas,
    )


def _ends(band: Band) -> tuple[float, float, float]:
    return band.low, band.mid, band.high


def _lever(base: Estimate, other: Estimate) -> tuple[float, float, float]:
    """Peak, bytes saved, and change of time for the same tokens."""
    peak, speed = both(base)
    new, new_speed = both(other)
    ratio = speed.tokens_per_s_per_gpu.mid / new_speed.tokens_per_s_per_gpu.mid
    return new.device_bytes.mid, peak.device_bytes.mid - new.device_bytes.mid, ratio - 1


def precision(subject: Subject) -> Page:
    """Bytes and speed of every precision that the GPU can train in."""
    run = subject.answer.run
    able = supported_precisions(subject.gpu)
    runs = [changed(run, {"precision": p, "numerics": None}) for p in able]
    lines = []
    for name, other, (mem, speed) in zip(able, runs, answers.evaluate(runs), strict=True):
        rates = (flops_per_s(subject.gpu, name), speed.tokens_per_s_per_gpu.mid)
        figures = (states(other).total, mem.device_bytes.mid, *rates)
        lines.append(Line(label=name, figures=figures, note=_KEPT[name]))
    return page(
        "precision",
        (
            grid(
                "PRECISION",
                of_run(run),
                (("STATES", "bytes"), ("PEAK", "bytes"), ("DENSE", "FLOPs/s"), ("A GPU", "tokens/s")),
                lines,
            ),
        ),
    )


def zero(subject: Subject) -> Page:
    """States and time of every ZeRO stage over the GPUs of the run, or over 8 where it has one."""
    base = data_parallel(subject.answer.run)
    runs = [changed(base, zero_stage=stage) for stage in _ZERO]
    lines = []
    for run, (mem, speed) in zip(runs, answers.evaluate(runs), strict=True):
        kept = states(run)
        waits = speed.parts_s.exposed_communication / speed.step_s.mid
        sizes = (kept.weights, kept.gradients, kept.optimizer, mem.device_bytes.mid)
        lines.append(Line(label=_ZERO[run.layout.zero_stage], figures=(*sizes, speed.step_s.mid, waits)))
    return page(
        "zero",
        (
            grid(
                "STAGE",
                f"{base.layout.dp}× {base.shape.gpu}, data parallel, micro-batch {base.layout.micro_batch}",
                (
                    ("WEIGHTS", "bytes"),
                    ("GRADIENTS", "bytes"),
                    ("OPTIMIZER", "bytes"),
                    ("PEAK", "bytes"),
                    ("STEP", "s"),
                    ("WAITS", "share"),
                ),
                lines,
            ),
        ),
        {"ranks": str(base.layout.dp)},
    )


def headroom(subject: Subject) -> Page:
    """How full the GPU gets by micro-batch, and which micro-batches keep to the headroom."""
    run, usable = subject.answer.run, float(subject.gpu.usable_memory_bytes)
    limit = usable * (1 - subject.headroom)
    runs = [changed(run, micro_batch=n, grad_accum=1) for n in _MICRO_BATCHES]
    lines = [_fill(r, m, usable, limit) for r, (m, _) in zip(runs, answers.evaluate(runs), strict=True)]
    device = both(subject.answer)[0].device_bytes
    columns: Columns = (
        ("RESERVED", "bytes"),
        ("DEVICE", "bytes"),
        ("HIGH END", "bytes"),
        ("OF USABLE", "share"),
    )
    return page(
        "headroom",
        (
            grid(
                "MICRO-BATCH",
                f"{subject.gpu.id} with {units.gib(usable)}, recompute {run.layout.recompute}",
                columns,
                _until_full(lines),
            ),
        ),
        {
            "spread": units.percent(device.high / device.mid - 1),
            "headroom": units.percent(subject.headroom),
        },
    )


def _fill(run: Run, found: MemoryEstimate, usable: float, limit: float) -> Line:
    """One micro-batch, judged as ``plan suggest`` would."""
    ok = found.reserved_bytes.mid <= limit and found.device_bytes.high <= usable
    over = found.device_bytes.mid > usable
    note = "ok" if ok else "does not fit" if over else "tight"
    figures = (found.reserved_bytes.mid, found.device_bytes.mid, found.device_bytes.high)
    share = found.device_bytes.mid / usable
    return Line(label=str(run.layout.micro_batch), figures=(*figures, share), note=note)


def _until_full(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Rows up to the first that does not fit."""
    first = next((i for i, line in enumerate(lines) if line.note == "does not fit"), len(lines))
    return tuple(lines[: first + 1])
