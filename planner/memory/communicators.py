"""Buffers of NCCL and RCCL: memory that no torch figure counts, once for every process group that talks.

A communicator keeps buffers for each of its channels, and it has as many channels as its links are fast
(NVIDIA/nccl issue 986, its maintainer). Switches that reduce take buffers for each rank of a node, and
sends between two ranks (pipelines, rings of context parallel, all-to-all of experts) some for each peer.
"""

from __future__ import annotations

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns
from planner.training.numerics import TrainingColumns

MIB, GIB = 2.0**20, 2.0**30
# One communicator over A100 with NVLink: 688 MB, 544 MB for two ranks (NVIDIA/nccl issue 964). RCCL: 0.65
# GiB for each after the first (Lumi-supercomputer/LUMI-AI-Guide issue 111).
COMMUNICATOR_BYTES = 688 * MIB
PAIR_SHARE = 544 / 688
LEAST_BYTES = 64 * MIB  # one or two channels: assumed
# Rate from which all channels are there: what large rings reach on A100 with NVSwitch.
ALL_CHANNELS_BYTES_PER_S = 250e9
# All-to-all over 8 H100 adds 3.28 GB to 1.06 GB: 32 channels to each of 7 peers (NVIDIA/nccl issue 1685).
PEER_BYTES = 3.28e9 / 7
PEER_ALL_CHANNELS_BYTES_PER_S = 385e9
MOST_PEERS = 7.0  # more peers share the channels: assumed
REMOTE_PEER_BYTES = 40 * MIB  # two channels of 20 MiB: assumed
# Two ranks of a node do without the switch (NVIDIA/nccl src/transport/nvls.cc).
FEWEST_SWITCH_RANKS = 3.0


def communicator_bytes(training: TrainingColumns, layout: LayoutColumns, machine: MachineColumns) -> Array:
    """Bytes per GPU of all communicators: one for each axis of the layout that has ranks, and those that a
    framework opens beside them over all GPUs of a model or of the job.
    """
    per_node = machine.gpus_per_node
    model = layout.tp * layout.cp
    axes = (
        (layout.tp, np.asarray(1.0)),
        (layout.cp, layout.tp),
        (layout.dp * layout.cp, layout.tp),
        (layout.pp, model * layout.dp),
        (layout.ep, layout.etp),
    )
    total = sum(
        _group(training, machine, ranks, np.clip(per_node / stride, 1.0, ranks)) for ranks, stride in axes
    )
    total = total + _peers(layout, machine)
    if not np.any(training.groups_beside):
        return np.asarray(total)
    parts = model * layout.pp
    of_model = _group(training, machine, parts, np.minimum(per_node, model))
    of_job = _group(training, machine, parts * layout.dp, np.minimum(per_node, parts * layout.dp))
    beside = np.minimum(training.groups_beside, 1) * of_job + (training.groups_beside > 1) * of_model
    return np.asarray(total + beside)


def _group(training: TrainingColumns, machine: MachineColumns, ranks: Array, local: Array) -> Array:
    """One communicator of ``ranks``, ``local`` of them on a node."""
    rings = COMMUNICATOR_BYTES * np.minimum(machine.links.ring_bytes_per_s / ALL_CHANNELS_BYTES_PER_S, 1.0)
    rings = np.maximum(rings, LEAST_BYTES) * np.where(ranks == 2, PAIR_SHARE, 1.0)
    switched = (machine.links.in_network_bytes_per_s > 0) & (local >= FEWEST_SWITCH_RANKS)
    bytes_: Array = (ranks > 1) * (rings + switched * local * training.switch_rank_bytes)
    return bytes_


def _peers(layout: LayoutColumns, machine: MachineColumns) -> Array:
    """Buffers of sends to single ranks: neighbors of stages and of rings, all ranks of an expert group."""
    channels = np.minimum(machine.links.ring_bytes_per_s / PEER_ALL_CHANNELS_BYTES_PER_S, 1.0)
    near = np.maximum(PEER_BYTES * channels, LEAST_BYTES)
    inside = layout.tp * layout.cp * layout.dp < machine.gpus_per_node
    neighbors = np.minimum(layout.pp - 1, 2.0) * np.where(inside, near, REMOTE_PEER_BYTES)
    neighbors = np.asarray(neighbors + np.minimum(layout.cp - 1, 2.0) * near)
    if not np.any(layout.ep > 1):
        return neighbors
    local = np.clip(machine.gpus_per_node / layout.etp, 1.0, layout.ep) - 1
    remote = np.minimum(layout.ep - 1 - local, MOST_PEERS)
    experts = np.minimum(local, MOST_PEERS) * near + remote * REMOTE_PEER_BYTES
    return np.asarray(neighbors + (1 - layout.deepep) * experts)
