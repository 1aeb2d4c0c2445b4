"""Runs as columns: numpy arrays that broadcast against each other.

``planner.memory`` and ``planner.speed`` take these and return columns, so that one estimate, a search over
a million layouts and the accuracy test are the same code. Every array has shape ``()`` (one value for all
runs) or ``(n,)``. The search leaves model and training as ``()`` and varies layout and machine; a batch of
measured runs varies all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ModelColumns:
    """What memory and speed need to know of a model. Built by ``model.model_columns``."""

    num_layers: Array
    hidden: Array
    num_heads: Array
    q_width: Array  # num_heads x head_dim of q and k
    k_width: Array  # num_kv_heads x head_dim (MLA: as materialised, all heads)
    v_width: Array  # width of v as read by attention
    o_width: Array  # width of the attention output before the output projection
    head_dim: Array
    mla_q_rank: Array  # 0 where q is not compressed or there is no MLA
    mla_kv_rank: Array  # kv_rank + rope_dim, 0 without MLA
    ffn: Array  # of a dense layer
    gated: Array  # 1 = SwiGLU / GeGLU: gate and up
    vocab: Array
    tied: Array
    causal: Array  # 1 = decoder
    attention_window: Array  # tokens that a query sees at most in the local layers; inf = all
    learned_positions: Array
    norm_is_rms: Array
    norms_per_layer: Array
    parallel_block: Array
    qk_norm: Array
    num_experts: Array  # 0 = dense
    experts_per_token: Array
    expert_ffn: Array
    shared_ffn: Array  # width of all shared experts together
    moe_layers: Array  # layers that have experts
    dense_layers: Array  # layers that have a plain feed-forward
    # parameters, counted part by part
    params_total: Array
    params_embedding: Array  # input tables: tokens, positions, types
    params_head: Array  # own output projection, 0 when tied
    params_root_other: Array  # final norm, embedding norm, mlm head
    params_attention_layer: Array  # linears of attention, per layer
    params_ffn_dense_layer: Array  # linears of the plain feed-forward, per dense layer
    params_router_layer: Array  # router, per MoE layer
    params_shared_layer: Array  # shared experts, per MoE layer
    params_experts_layer: Array  # all routed experts, per MoE layer
    params_norm_layer: Array  # norms (and the like), per layer, not split by tensor parallel
    # weights that a token is multiplied with (2 FLOP each, forward): no biases, no tables, no norms
    matmul_attention_layer: Array
    matmul_ffn_dense_layer: Array  # per dense layer
    matmul_moe_layer: Array  # per MoE layer: router, shared experts, experts_per_token of the experts
    matmul_head: Array  # output projection (tied or not) with its MLM transform or embedding projections
    has_head: Array  # 1 = logits over the vocabulary exist (0: an encoder without its MLM head)
    attention_dims: Array  # per layer: num_heads x (q.k width + v width); 2 FLOP per key that a query sees
    local_layers: Array  # layers whose attention is bounded by attention_window


@dataclass(frozen=True, slots=True)
class LayoutColumns:
    """Degrees and batch of each layout; see ``types.Layout``."""

    dp: Array
    tp: Array
    pp: Array
    cp: Array
    ep: Array
    etp: Array
    zero_stage: Array
    shard_group: Array  # ranks a state is sharded over (dp x cp where the layout says "all")
    sequence_parallel: Array
    interleave: Array
    recompute: Array  # 0 none, 1 selective, 2 full
    recompute_fraction: Array
    micro_batch: Array
    grad_accum: Array
    offload_optimizer: Array
    offload_params: Array
    offload_activations: Array
    tp_overlap: Array  # 1 overlapped, 0 not, nan = as the profile does
    deepep: Array
    a2a_overlap: Array


@dataclass(frozen=True, slots=True)
class LinkColumns:
    """What the collectives need to know of the links of each run. Rates are achieved ones, not wire rates.

    Built by ``links.link_columns`` from rows of ``data/links.csv``; times are seconds.
    """

    ring_bytes_per_s: Array  # bus bandwidth of large rings inside a node
    few_ranks_loss: Array  # share of it that 2 ranks lose (4 ranks: a quarter of that); negative = gain
    in_network_bytes_per_s: Array  # algorithm bandwidth of all-reduce inside the switch, 0 = none
    mesh_ranks: Array  # GPUs of a full mesh, whose rate grows with the ranks; 0 = switch or bus
    pair_share: Array  # least share of the rate that two GPUs of a mesh have between them
    span_ranks: Array  # ranks that the link joins (bridges: 2 or 4); inf = all of the node
    beyond_bytes_per_s: Array  # bus bandwidth where a group is wider than that
    all_to_all_share: Array  # of the ring's rate that all-to-all reaches inside a node
    hidden_share: Array  # of the compute that traffic inside a node may hide behind
    domain_nodes: Array  # nodes that share one NVLink domain; 1 = none
    group_net_bytes_per_s: Array  # most that one group sends out of a node or such a domain; inf = no limit
    step_s: Array  # latency of one step of a ring inside the node
    base_s: Array  # fixed cost of a collective inside a node
    net_bytes_per_s_per_node: Array  # bus bandwidth of large rings out of a node, one direction
    net_step_s: Array  # latency of one step of a ring between nodes
    net_tree_s: Array  # latency of one level of a tree between nodes, one way
    net_base_s: Array  # fixed cost of a collective over several nodes


def _no_links() -> LinkColumns:
    """Links of a machine of one GPU: nothing is ever sent."""
    one, zero = np.float64(1.0), np.float64(0.0)
    names = LinkColumns.__dataclass_fields__
    ones = {
        "hidden_share",
        "ring_bytes_per_s",
        "beyond_bytes_per_s",
        "net_bytes_per_s_per_node",
        "span_ranks",
        "domain_nodes",
    }
    return LinkColumns(**{name: np.asarray(one if name in ones else zero) for name in names})


@dataclass(frozen=True, slots=True)
class MachineColumns:
    """GPU and links of each run. FLOPS are those of the precision that the run computes in."""

    usable_memory_bytes: Array
    memory_bandwidth_bytes_per_s: Array
    peak_flops_per_s: Array  # of the run's matmul precision
    fp32_flops_per_s: Array
    gpus_per_node: Array
    num_nodes: Array
    gpu_index: Array  # row of data/gpus.csv, to look efficiencies up
    host_memory_bytes: Array  # nan = unknown
    pcie_bytes_per_s: Array  # host to device, achieved
    links: LinkColumns = field(default_factory=_no_links)


@dataclass(frozen=True, slots=True)
class MemoryColumns:
    """Bytes on the fullest GPU. Parts add up to ``device``; without the last three to ``allocated``."""

    parameters: Array
    gradients: Array
    optimizer: Array
    activations: Array
    logits: Array
    gathered: Array
    communication: Array
    context: Array
    allocator_slack: Array
    allocated: Array
    reserved: Array
    device: Array
    peak_at: NDArray[np.int8]  # index into ("forward", "loss", "backward", "optimizer")
    host: Array  # bytes of host memory per node that the run needs
    load: Array  # device bytes per GPU at the worst instant of loading


@dataclass(frozen=True, slots=True)
class SpeedColumns:
    """Seconds per optimizer step by cause; they add up to ``step_s``."""

    matmul: Array
    attention: Array
    memory_bound: Array
    exposed_communication: Array
    bubble: Array
    optimizer: Array
    overhead: Array
    step_s: Array
    tokens_per_step: Array
    model_flops: Array  # per GPU and step, without recompute
    hardware_flops: Array  # per GPU and step, with recompute
    dp_s: Array  # exposed seconds of each axis' communication, to name the limiting link
    tp_s: Array
    pp_s: Array
    cp_s: Array
    ep_s: Array
    offload_s: Array
