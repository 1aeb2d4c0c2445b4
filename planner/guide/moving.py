"""What changes on the way from the machine that one has to the one that was chosen.

From one GPU to several, from one kind of card to another, from one's own machine to a rented one, and from
one precision to another: figures come from estimates of both ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

from planner import units
from planner.cost import GB
from planner.cost.lines import whole_run
from planner.cost.tables import Item, rate
from planner.guide.states import states
from planner.hardware.gpus import gpu, supported_precisions
from planner.hardware.links import link
from planner.hardware.toolchains import toolchains
from planner.results import Candidate, Estimate
from planner.search.candidates import work_of_run
from planner.types import Band, Gpu, Precision, Record, Run

Kind = Literal["several-gpus", "gpu-kind", "cloud", "precision"]


class Start(Record):
    """Where the user comes from. ``precision`` ``None``: the same as the plan's, where the GPU has it."""

    gpu: str
    num_gpus: int
    precision: Precision | None = None


class Change(Record):
    """One thing that is another one afterwards, and what to do about it."""

    what: str
    before: str
    after: str
    do: str


class Move(Record):
    """One kind of move, with all that it changes."""

    kind: Kind
    title: str
    changes: tuple[Change, ...]


class Moving(Record):
    """The way to a plan. ``None`` where the training does not fit, or is not known.

    Hours are of the whole training at both ends, without set-up and probe, which the user's own machine has
    behind it; checkpoints, and work done again on spot, are in them.
    """

    start: Start
    plan_id: str
    hours_before: Band | None
    hours_after: Band
    upload_bytes: float | None
    upload_s: float | None
    upload_usd: Decimal | None
    moves: tuple[Move, ...]


def moving(
    start: Start, before: Estimate | None, chosen: Candidate, upload_bytes_per_s: float | None
) -> Moving:
    """List what changes from ``start`` to ``chosen``.

    ``before``: the training as it would run at the start, ``None`` where it cannot. ``upload_bytes_per_s``:
    of the user's line, ``None`` = not said, and the time of the upload is then unknown.
    """
    amount, seconds, usd = _upload(chosen, upload_bytes_per_s)
    fits = before is not None and before.memory is not None and before.memory.fits
    found = (
        _several_gpus(start, before, chosen),
        _gpu_kind(start, chosen),
        _cloud(chosen, amount, seconds, usd),
        _precision(start, chosen),
    )
    return Moving(
        start=start,
        plan_id=chosen.id,
        hours_before=before.whole.hours if before is not None and fits and before.whole else None,
        hours_after=_training_hours(chosen),
        upload_bytes=amount,
        upload_s=seconds,
        upload_usd=usd,
        moves=tuple(move for move in found if move is not None),
    )


def _training_hours(chosen: Candidate) -> Band:
    """Hours of the training of a plan alone."""
    spot = chosen.offer.market == "spot"
    return whole_run(chosen.speed.step_s, work_of_run(chosen.run), None, spot=spot).hours


def _move(kind: Kind, title: str, changes: Iterator[Change]) -> Move:
    return Move(kind=kind, title=title, changes=tuple(changes))


# ------------------------------------------------------------------------------------- several GPUs


def _several_gpus(start: Start, before: Estimate | None, chosen: Candidate) -> Move | None:
    run = chosen.run
    after = run.shape.num_gpus
    if after == start.num_gpus:
        return None
    changes = _spread(start.num_gpus, before, run, chosen) if after > 1 else _gathered(start.num_gpus)
    return _move("several-gpus", f"from {_gpus(start.num_gpus)} to {_gpus(after)}", changes)


def _gpus(count: int) -> str:
    return "one GPU" if count == 1 else f"{count} GPUs"


def _gathered(before: int) -> Iterator[Change]:
    yield Change(
        what="processes",
        before=f"{before} ranks",
        after="one process",
        do="leave the process group, DDP or FSDP out; merge a sharded checkpoint before it is loaded",
    )


def _spread(gpus_before: int, before: Estimate | None, run: Run, chosen: Candidate) -> Iterator[Change]:
    layout = run.layout
    yield Change(
        what="data loader",
        before="one reader" if gpus_before == 1 else f"{gpus_before} ranks",
        after=f"{layout.dp} data-parallel ranks, each another part",
        do="shard by data-parallel rank (DistributedSampler, or rank and step in the seed); ranks of one "
        "tensor or pipeline group read the same",
    )
    yield _gradients(before, chosen)
    yield from _batch(before, run)
    sharded = layout.zero_stage == 3 or layout.tp > 1 or layout.pp > 1
    yield Change(
        what="checkpoints and logs",
        before="one process writes" if gpus_before == 1 else "as its layout has it",
        after="every rank writes its shard" if sharded else "rank 0 writes",
        do="torch.distributed.checkpoint for shards; log on rank 0 only; all ranks must reach every "
        "collective",
    )


def _gradients(before: Estimate | None, chosen: Candidate) -> Change:
    share = chosen.speed.parts_s.exposed_communication / chosen.speed.step_s.mid
    return Change(
        what="gradients",
        before=units.UNKNOWN if before is None else _exchange(before.run),
        after=f"{_exchange(chosen.run)}: {units.percent(share)} of the step waits",
        do="plan probe measures it; while gradients accumulate, no_sync() leaves the AllReduce out of all "
        "micro-batches but the last",
    )


def _exchange(run: Run) -> str:
    """Say how many bytes of gradients go over which link, and in which calls."""
    layout, links = run.layout, run.shape.links
    if layout.dp * layout.cp == 1:
        return "stay on the GPU" if layout.tp * layout.pp == 1 else "stay on their ranks"
    whole = run.model_copy(update={"layout": layout.model_copy(update={"zero_stage": 0})})
    ways = {0: "AllReduce once a step (DDP)", 1: "ReduceScatter and AllGather once a step (ZeRO-1)"}
    how = ways.get(layout.zero_stage, "ReduceScatter, and AllGather of weights, in each micro-batch (FSDP)")
    over = link(links.inter if run.shape.num_nodes > 1 else links.intra).label
    return f"{units.gib(states(whole).gradients)} by {how}, over {over}"


def _batch(before: Estimate | None, run: Run) -> Iterator[Change]:
    """Global batch and learning rate: the plan keeps the batch, so the rate stays; else it is scaled."""
    layout = run.layout
    sequences = layout.dp * layout.micro_batch * layout.grad_accum
    after = f"{layout.dp} ranks × mbs {layout.micro_batch} × acc {layout.grad_accum} = {sequences} sequences"
    if before is None:
        here, old = "unknown: the run cannot be laid out there", None
    else:
        was = before.run.layout
        old = was.dp * was.micro_batch * was.grad_accum
        here = f"{was.dp} × mbs {was.micro_batch} × acc {was.grad_accum} = {old} sequences"
    yield Change(
        what="global batch",
        before=here,
        after=after,
        do="divide accumulation by the ranks, not the micro-batch: the global batch, and with it the "
        "curve of the loss, stays",
    )
    factor = None if old is None else sequences / old
    same = factor is not None and abs(factor - 1) < 0.05
    scaled = "unknown" if factor is None else "the same" if same else f"× {factor**0.5:.2g} with Adam"
    yield Change(
        what="learning rate",
        before="yours",
        after=scaled,
        do="only where the global batch changes: × √k for Adam, × k for SGD at k times the batch, with "
        "warm-up (arXiv 2205.10287 and 1706.02677)",
    )


# ------------------------------------------------------------------------------------- another kind of GPU


def _gpu_kind(start: Start, chosen: Candidate) -> Move | None:
    old, new = gpu(start.gpu), gpu(chosen.run.shape.gpu)
    if old.id == new.id:
        return None
    title = f"from {old.id} ({old.gpu_class}) to {new.id} ({new.gpu_class})"
    return _move("gpu-kind", title, _kind_changes(old, new))


def _kind_changes(old: Gpu, new: Gpu) -> Iterator[Change]:
    was, now = toolchains()[old.compute_capability], toolchains()[new.compute_capability]
    yield Change(
        what="memory",
        before=units.gib(old.usable_memory_bytes),
        after=units.gib(new.usable_memory_bytes),
        do="take micro-batch and recompute from the plan, not from the old script",
    )
    yield Change(
        what="compute capability",
        before=f"{old.compute_capability} ({old.architecture})",
        after=f"{new.compute_capability} ({new.architecture})",
        do="rebuild CUDA extensions (TORCH_CUDA_ARCH_LIST) and attention kernels; take a torch wheel whose "
        "get_arch_list() has it"
        if new.vendor == "nvidia"
        else "take the ROCm wheel of torch; CUDA extensions must be ported (HIP)",
    )
    yield Change(
        what=now.toolkit if was.toolkit == now.toolkit else f"{was.toolkit} to {now.toolkit}",
        before=f"{was.version} or later",
        after=f"{now.version} or later",
        do="the toolkit of your torch wheel must be at least that",
    )
    yield Change(
        what="driver",
        before=f"{was.driver} or later",
        after=f"{now.driver} or later",
        do="datacenter branch on the machine's image; NVLink machines with NVSwitch need its fabric manager"
        if new.gpu_class == "datacenter" and new.vendor == "nvidia"
        else "nvidia-smi, or rocminfo, shows what is there",
    )
    yield Change(
        what="precisions",
        before=", ".join(supported_precisions(old)),
        after=", ".join(supported_precisions(new)),
        do="see plan explain precision",
    )
    if old.ecc != new.ecc:
        yield Change(
            what="ECC",
            before="yes" if old.ecc else "no",
            after="yes" if new.ecc else "no",
            do="without it keep several checkpoints, and watch the norm of gradients",
        )


# ------------------------------------------------------------------------------------- to the cloud


def _upload(
    chosen: Candidate, bytes_per_s: float | None
) -> tuple[float | None, float | None, Decimal | None]:
    """Bytes of the data as tokens, seconds to send them, and what the provider asks; ``None`` = not known."""
    if chosen.run.training.num_tokens is None or chosen.offer.market == "owned":
        return None, None, None
    amount = float(work_of_run(chosen.run).data_bytes)
    seconds = None if bytes_per_s is None else amount / bytes_per_s
    return amount, seconds, _usd("upload", chosen, amount)


def _usd(item: Item, chosen: Candidate, amount: float) -> Decimal | None:
    found = rate(item, chosen.offer.provider)
    return None if found is None else found.usd * Decimal(amount / GB).quantize(Decimal("0.001"))


def _cloud(
    chosen: Candidate, amount: float | None, seconds: float | None, usd: Decimal | None
) -> Move | None:
    offer = chosen.offer
    if offer.market == "owned":
        return None
    title = f"from your own machine to {offer.provider} {offer.region}"
    return _move("cloud", title, _cloud_changes(chosen, amount, seconds, usd))


def _cloud_changes(
    chosen: Candidate, amount: float | None, seconds: float | None, usd: Decimal | None
) -> Iterator[Change]:
    offer = chosen.offer
    size = units.UNKNOWN if amount is None else f"{units.gib(amount)} as token ids"
    yield Change(
        what="data",
        before="on your disk",
        after=f"{size}: {units.duration(seconds)} to send, {units.usd(usd)}",
        do="send tokens, not text, to storage in the region of the machines before they start"
        + ("" if seconds is not None else "; --upload-mbit 100 gives the time"),
    )
    work = work_of_run(chosen.run)
    kept = units.gib(float(work.checkpoint_bytes))
    back = _usd("download", chosen, float(work.result_bytes))
    yield Change(
        what="checkpoints",
        before="on your disk",
        after=f"{kept} each, {units.usd(back)} to bring the result home",
        do=f"plan cluster {chosen.id} --storage s3://… (or a mount that all nodes see); the disk of a "
        "machine is gone with it" + (", and spot takes it away" if offer.market == "spot" else ""),
    )
    yield Change(
        what="storage mounts",
        before="local paths",
        after="object storage, or a shared mount at one path on all nodes",
        do="read the data through it, or copy it to the local disk at start; no path of your home in it",
    )
    yield Change(
        what="permissions",
        before="your login",
        after=f"credentials of {offer.provider}, a role for the machines, one address for SSH",
        do=f"plan cluster {chosen.id} --iam prints the least rights; no key in the script or in the image",
    )
    yield Change(
        what="end of the machine",
        before="stays",
        after="costs until it is gone",
        do="the cluster files end it by themselves; test that the run resumes from its last checkpoint",
    )


# ------------------------------------------------------------------------------------- precision


def precision_before(start: Start, after: Precision) -> Precision:
    """Precision that is used at the start: as told, else that of the plan, else the narrowest of its GPU."""
    able = supported_precisions(gpu(start.gpu))
    return start.precision or (after if after in able else able[-1])


def _precision(start: Start, chosen: Candidate) -> Move | None:
    after = chosen.run.training.precision
    before = precision_before(start, after)
    if before == after:
        return None
    return _move("precision", f"from {before} to {after}", _precision_changes(before, after))


def _precision_changes(before: Precision, after: Precision) -> Iterator[Change]:
    yield Change(
        what="numbers",
        before=before,
        after=after,
        do="plan probe --check-precision runs the same steps in both and compares the losses; keep norms, "
        "softmax and the loss in FP32",
    )
    if "fp16" in (before, after):
        yield Change(
            what="loss scaling",
            before="GradScaler" if before == "fp16" else "none",
            after="GradScaler" if after == "fp16" else "none",
            do="watch skipped steps" if after == "fp16" else "leave the scaler out",
        )
    if after == "bf16-pure":
        yield Change(
            what="weights and optimizer states",
            before="FP32",
            after="bf16",
            do="small updates are lost to rounding: compare a longer stretch, or take 8-bit states",
        )
