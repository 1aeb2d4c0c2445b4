"""Seconds of communication of each axis of a layout, per micro-batch or per step, before any overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.columns import Array, LayoutColumns, MachineColumns, ModelColumns
from planner.hardware import collectives
from planner.masks import pick
from planner.speed.layers import tokens_per_micro_batch
from planner.speed.streams import adapter_widths
from planner.training.execution import ExecutionColumns

# Bytes per weight of a quantised base when it is gathered: 4 bits and scales (arXiv 2305.14314, section
# 3).
FOUR_BIT_BYTES = 0.53
# DeepEP and HybridEP against a plain all-to-all: InternLM/xtuner
# docs/en/benchmark/megatron_moe_benchmark.md (1.38x of a whole step where half of it is the exchange).
DEEPEP_SPEEDUP = 2.0


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters that one GPU works with, before sharding by ZeRO: block part and expert part, and what
    is trained.
    """

    dense: Array  # blocks without routed experts, over tp and pp
    experts: Array  # routed experts, over ep, etp and pp
    ends: Array  # embedding, head, final norm: of the stage that holds most
    trained_dense: Array
    trained_experts: Array
    trained_ends: Array


def parameters_of(model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns) -> Parameters:
    """Parameters per GPU. With pipeline stages the ends are counted half: input and output side on
    different stages.
    """
    experts = model.moe_layers * model.params_experts_layer
    root = model.params_embedding + model.params_head + model.params_root_other
    blocks = model.params_total - root - experts
    trained_layers = np.maximum(1 - execution.frozen_layers / model.num_layers, 0)
    trained = (1 - execution.frozen_base) * trained_layers
    inputs, outputs = adapter_widths(model, execution)
    adapters = execution.adapters.rank * (inputs + outputs) * model.num_layers
    head = execution.adapters.rank * execution.adapters.head * (model.hidden + model.vocab)
    dense = blocks / (layout.tp * layout.pp)
    expert = experts / (layout.ep * layout.etp * layout.pp)
    ends = root / layout.tp * np.where(layout.pp > 1, 0.5, 1.0)
    return Parameters(
        dense=dense,
        experts=expert,
        ends=ends,
        trained_dense=dense * trained + adapters / (layout.tp * layout.pp),
        trained_experts=expert * trained,
        trained_ends=ends * (1 - execution.frozen_base) + head / layout.tp,
    )


def tensor_s(
    model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, machine: MachineColumns
) -> Array:
    """Seconds of tensor-parallel collectives of one block in one direction: two all-reduces, or their
    halves with sequence parallel (Megatron, arXiv 2205.05198 section 4.2). Expert blocks have one, and one
    over the routed copies of the tokens where experts are split too.
    """
    if not np.any(layout.tp > 1):
        return np.zeros(())
    bytes_ = tokens_per_micro_batch(execution, layout) * model.hidden * execution.activation_bytes
    moe = model.moe_layers / model.num_layers
    copies = np.maximum(model.shared_ffn > 0, (layout.etp > 1) * model.experts_per_token)
    count = 2 - moe * (1 - copies)
    per_node = np.minimum(layout.tp, machine.gpus_per_node)
    # a reduce-scatter takes as long as the all-gather of the same buffer
    halves = 2 * collectives.all_gather_s(bytes_, layout.tp, per_node, machine)
    if np.all(layout.sequence_parallel > 0):
        return np.asarray(count * halves)
    whole = collectives.all_reduce_s(bytes_, layout.tp, per_node, machine)
    return np.asarray(count * np.where(layout.sequence_parallel > 0, halves, whole))


def context_s(
    model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, machine: MachineColumns
) -> Array:
    """Seconds of the exchange of keys and values of one block, forward: every rank sees those of all
    others once.
    """
    if not np.any(layout.cp > 1):
        return np.zeros(())
    bytes_ = (
        layout.micro_batch
        * execution.seq_len
        * (model.k_width + model.v_width)
        / layout.tp
        * execution.activation_bytes
    )
    per_node = np.clip(machine.gpus_per_node / layout.tp, 1, layout.cp)
    return collectives.all_gather_s(bytes_, layout.cp, per_node, machine)


def expert_s(
    model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, machine: MachineColumns
) -> Array:
    """Seconds of dispatch and combine of an average block in one direction: two all-to-alls of the routed
    tokens.
    """
    if not np.any(layout.ep > 1):
        return np.zeros(())
    # with sequence parallel a rank sends its own tokens, and gathers those of its group behind the exchange
    repeated = np.where(layout.sequence_parallel > 0, 1.0, layout.etp)
    tokens = tokens_per_micro_batch(execution, layout) / layout.tp * repeated
    bytes_ = tokens * model.experts_per_token * model.hidden * execution.activation_bytes
    per_node = np.clip(machine.gpus_per_node / layout.etp, 1, layout.ep)
    plain = collectives.all_to_all_s(bytes_, layout.ep, per_node, machine)
    faster = 1 + (DEEPEP_SPEEDUP - 1) * layout.deepep
    return 2 * plain / faster * model.moe_layers / model.num_layers


def pipeline_s(
    model: ModelColumns, execution: ExecutionColumns, layout: LayoutColumns, machine: MachineColumns
) -> Array:
    """Seconds that a stage sends and receives for one micro-batch, both directions, all of its chunks."""
    if not np.any(layout.pp > 1):
        return np.zeros(())
    split = np.where(layout.sequence_parallel > 0, layout.tp, 1)
    bytes_ = tokens_per_micro_batch(execution, layout) * model.hidden * execution.activation_bytes / split
    # the slowest boundary sets the pace: one between nodes, unless the whole pipeline is inside a node
    of_stages = layout.tp * layout.cp * layout.dp * layout.pp
    per_node = np.where(of_stages <= machine.gpus_per_node, 2, 1)
    ranks = np.where(layout.pp > 1, 2.0, 1.0)
    one_way = collectives.send_recv_s(bytes_, ranks, np.minimum(per_node, ranks), machine)
    return np.where(layout.pp > 1, 2 * layout.interleave * one_way, 0)


@dataclass(frozen=True, slots=True)
class DataSeconds:
    """Seconds of data-parallel traffic before overlap."""

    gather: Array  # of all parameters once (ZeRO-3: twice a micro-batch; ZeRO 1-2: once a step)
    reduce: Array  # of all gradients once, replicas included


def data_s(
    parameters: Parameters, execution: ExecutionColumns, layout: LayoutColumns, machine: MachineColumns
) -> DataSeconds:
    """Seconds to gather the parameters and to reduce the gradients of one GPU once.

    ZeRO shards over ``shard_group`` ranks and all-reduces the shards over the remaining replicas. Experts
    are replicated over fewer ranks.
    """
    ranks = layout.dp * layout.cp
    if not np.any(ranks > 1):
        return DataSeconds(np.zeros(()), np.zeros(()))
    group = np.clip(np.where(layout.zero_stage > 0, layout.shard_group, 1), 1, ranks)
    per_node = np.maximum(machine.gpus_per_node / layout.tp, 1)
    gather_bytes = np.where(execution.quantised > 0, FOUR_BIT_BYTES, execution.gather_bytes)
    frozen = np.where(layout.zero_stage >= 3, 1, 0)
    gathered = np.where(
        frozen, parameters.dense + parameters.ends, parameters.trained_dense + parameters.trained_ends
    )
    reduced = parameters.trained_dense + parameters.trained_ends
    reduce_bytes = pick(frozen == 1, execution.reduce_bytes, execution.whole_reduce_bytes)
    gather = _gather(gathered * gather_bytes, group, per_node, machine)
    reduce_ = _reduce(reduced * reduce_bytes, group, ranks / group, per_node, machine)
    if np.any(parameters.experts):
        expert_ranks = np.maximum(ranks * layout.tp / (layout.ep * layout.etp), 1)
        expert_group = np.minimum(group, expert_ranks)
        spread = np.maximum(per_node * layout.tp / (layout.ep * layout.etp), 1)
        experts = np.where(frozen, parameters.experts, parameters.trained_experts)
        more_gather = _gather(experts * gather_bytes, expert_group, spread, machine)
        more_reduce = _reduce(
            parameters.trained_experts * reduce_bytes,
            expert_group,
            expert_ranks / expert_group,
            spread,
            machine,
        )
        gather = gather + np.where(parameters.experts > 0, more_gather, 0)
        reduce_ = reduce_ + np.where(parameters.experts > 0, more_reduce, 0)
    return DataSeconds(gather, reduce_)


def _gather(bytes_: Array, group: Array, per_node: Array, machine: MachineColumns) -> Array:
    return collectives.all_gather_s(bytes_, group, np.minimum(group, per_node), machine)


def _reduce(bytes_: Array, group: Array, replicas: Array, per_node: Array, machine: MachineColumns) -> Array:
    """Reduce-scatter inside the shard group, all-reduce of the shard over replicas (all-reduce alone for
    plain DP).
    """
    scatter = collectives.reduce_scatter_s(bytes_, group, np.minimum(group, per_node), machine)
    if not np.any(replicas > 1):
        return scatter
    across = np.clip(per_node / group, 1, replicas)
    return scatter + collectives.all_reduce_s(bytes_ / group, replicas, across, machine)
