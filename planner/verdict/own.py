"""Collectives that the plan's own step runs: their sizes, and what they are for."""

from __future__ import annotations

from collections.abc import Iterator

from planner.model.count import count_params
from planner.probed import Collective
from planner.training.execution import execution_columns
from planner.types import Record, Run

DDP_BUCKET_BYTES = 25 * 2**20  # torch.nn.parallel.DistributedDataParallel, bucket_cap_mb
ONE_WORD = 2.0  # bytes of an activation on the wire in 16 bit
FULL_WORD = 4.0


class OwnCollective(Record):
    """A collective of the plan's own step: size as nccl-tests counts it, and what it is for."""

    op: Collective
    bytes: int
    purpose: str


def own_collectives(run: Run) -> tuple[OwnCollective, ...]:
    """Return what the step of a run sends, one size of each kind: gradients, parameters, activations."""
    return tuple(
        OwnCollective(op=op, bytes=max(4, round(size)), purpose=purpose)
        for op, size, purpose in _own(run)
        if size > 0
    )


def _own(run: Run) -> Iterator[tuple[Collective, float, str]]:
    layout = run.layout
    if layout.dp * layout.cp > 1:
        yield from _of_data_parallel(run)
    tokens = layout.micro_batch * run.training.seq_len / layout.cp
    wide = run.training.precision in ("fp32", "tf32")
    sent = tokens * run.model.hidden_size * (FULL_WORD if wide else ONE_WORD)
    if layout.tp > 1 and layout.sequence_parallel:
        yield "all_gather", sent, "activations of a layer"
        yield "reduce_scatter", sent, "activations of a layer"
    elif layout.tp > 1:
        yield "all_reduce", sent, "activations of a layer"
    if layout.pp > 1:
        yield "send_recv", sent / (layout.tp if layout.sequence_parallel else 1), "activations to a stage"


def _of_data_parallel(run: Run) -> Iterator[tuple[Collective, float, str]]:
    layout = run.layout
    count, wire = count_params(run.model), execution_columns([run.training])
    layer = count.attention_layer + count.norm_layer
    layer += count.ffn_dense_layer if not count.moe_layers else count.experts_layer + count.shared_layer
    if layout.zero_stage == 3:
        yield "all_gather", layer / layout.tp * float(wire.gather_bytes), "parameters of a layer"
        yield "reduce_scatter", layer / layout.tp * float(wire.reduce_bytes), "gradients of a layer"
    elif run.training.lora is None:
        all_of_them = count.total / (layout.tp * layout.pp) * float(wire.whole_reduce_bytes)
        yield "all_reduce", min(all_of_them, DDP_BUCKET_BYTES), "gradient bucket"
