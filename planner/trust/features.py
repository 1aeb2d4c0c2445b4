"""What kind of run it is, for nearness to measured ones: machine, size, training, layout; no model's name.

``features`` takes one run, ``table_features`` the layouts of a search, one record for each kind of layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.columns import Array
from planner.grouping import Index, distinct
from planner.layouts import ROW
from planner.model.count import count_params
from planner.training import frameworks
from planner.types import Layout, ModelSpec, Run, Shape, TrainingSpec

WORDS = ("gpu", "method", "precision", "framework")
LAYOUT = ("zero_stage", "recompute", "tp", "pp", "cp", "ep", "offload", "moe")
NUMBERS = ("params", "gpus", "nodes", "seq_len", "micro_tokens")
Figure = Literal["device", "step", "own"]
_RECOMPUTE = {"none": 0, "selective": 1, "full": 2}


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a run. ``recompute``: 0 none, 1 selective, 2 full; ``offload`` and ``moe``: 0 or 1.

    ``micro_tokens``: tokens of a micro-batch on one rank. ``framework``: id of the profile.
    """

    gpu: str
    method: str
    precision: str
    framework: str
    zero_stage: int
    recompute: int
    tp: int
    pp: int
    cp: int
    ep: int
    offload: int
    moe: int
    params: float
    gpus: float
    nodes: float
    seq_len: float
    micro_tokens: float


def features(run: Run) -> Features:
    """Features of one run."""
    return features_of(run.model, run.training, run.layout, run.shape)


def features_of(model: ModelSpec, training: TrainingSpec, layout: Layout, shape: Shape) -> Features:
    """Features of a layout of a training on a shape."""
    return Features(
        gpu=shape.gpu,
        method=training.method,
        precision=training.precision,
        framework=frameworks.match_id(training.framework) or frameworks.GENERIC,
        zero_stage=layout.zero_stage,
        recompute=_RECOMPUTE[layout.recompute],
        tp=layout.tp,
        pp=layout.pp,
        cp=layout.cp,
        ep=layout.ep,
        offload=int(layout.offload != "none" or layout.activation_offload),
        moe=int(model.moe is not None),
        params=float(count_params(model).total),
        gpus=float(shape.num_gpus),
        nodes=float(shape.num_nodes),
        seq_len=float(training.seq_len),
        micro_tokens=layout.micro_batch * training.seq_len / layout.cp,
    )


def table_features(
    model: ModelSpec,
    training: TrainingSpec,
    shapes: Sequence[Shape],
    table: Array,
    machine: Index,
    *,
    figure: Figure,
) -> tuple[list[Features], Index]:
    """Features of the distinct kinds of layouts in a table, and which of them each layout is.

    ``machine``: which of ``shapes`` each layout is on. ``figure``: what is asked, which decides what counts:
    bands of device memory do not tell recompute and micro-batches apart.
    """
    row = {name: table[ROW[name]] for name in ROW}
    offload = (row["offload_optimizer"] + row["offload_params"] + row["offload_activations"]) > 0
    alike = [(s.gpu, s.num_gpus, 0 if figure == "device" else s.num_nodes) for s in shapes]
    stage = row["zero_stage"]
    key = distinct(alike)[1][machine] * 4 + 2 * (stage >= 1) + (stage == 3)
    if figure != "device":
        key = key * 4 + row["recompute"].astype(np.int64)
    for flag in (*(row[name] > 1 for name in ("tp", "pp", "cp", "ep")), offload):
        key = key * 2 + flag
    if figure != "device":
        doublings = np.round(np.log2(row["micro_batch"] / row["cp"])).astype(np.int64) + 32
        key = key * 64 + doublings
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    return _cells(model, training, shapes, table[:, first], machine[first]), of


def _cells(
    model: ModelSpec, training: TrainingSpec, shapes: Sequence[Shape], table: Array, machine: Index
) -> list[Features]:
    """Features of each layout of a small table."""
    framework = frameworks.match_id(training.framework) or frameworks.GENERIC
    params, moe, seq_len = (
        float(count_params(model).total),
        int(model.moe is not None),
        float(training.seq_len),
    )
    found = []
    for column, at in zip(table.T.tolist(), machine.tolist(), strict=True):
        layout, shape = dict(zip(ROW, column, strict=True)), shapes[at]
        keeps_out = layout["offload_optimizer"] + layout["offload_params"] + layout["offload_activations"]
        found.append(
            Features(
                shape.gpu,
                training.method,
                training.precision,
                framework,
                int(layout["zero_stage"]),
                int(layout["recompute"]),
                int(layout["tp"]),
                int(layout["pp"]),
                int(layout["cp"]),
                int(layout["ep"]),
                int(keeps_out > 0),
                moe,
                params,
                float(shape.num_gpus),
                float(shape.num_nodes),
                seq_len,
                layout["micro_batch"] * seq_len / layout["cp"],
            )
        )
    return found
