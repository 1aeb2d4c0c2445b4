"""Spreads a model over ranks: FSDP2, tensor with sequence parallel, DDP. Rank order: tensor innermost.

A model is built without memory, then each block is filled, split by tensor parallelism and sharded before
the next one is filled: no rank ever holds the whole of a sharded model. Initial values depend on the seed
and the parameter's name only, so every layout starts from the same weights.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from .lora import adapter_dtype, add_adapters, is_adapter
from .model import Transformer
from .spec import Run

INIT_STD = 0.02
DTYPES = {"bf16-all": torch.bfloat16}


def build_mesh(run: Run, device_type: str) -> DeviceMesh | None:
    """Build the mesh of ranks, pipeline outermost, ``None`` for one rank that shards nothing."""
    layout = run.layout
    if run.world_size == 1 and not run.sharded:
        return None
    shard = (layout.shard_group or layout.dp) if run.sharded else 1
    shape = (layout.pp, layout.dp // shard, shard, layout.tp)
    return init_device_mesh(device_type, shape, mesh_dim_names=("pipeline", "replicate", "shard", "tensor"))


def data_rank(run: Run, rank: int) -> int:
    """Which slice of the global batch this rank reads; ranks of a tensor-parallel group read the same."""
    return rank // run.layout.tp % run.layout.dp


def build_model(
    run: Run, device: torch.device, mesh: DeviceMesh | None, seed: int, layers: range | None = None
) -> nn.Module:
    """Build the model of ``run``, or the stage of these ``layers``, initialized and spread over ``mesh``."""
    with torch.device("meta"):
        model = Transformer(run)
        if layers is not None:
            model.keep(layers)
        if run.lora is not None:
            add_adapters(model, run.lora)
    _freeze(model, run)
    filled: dict[nn.Parameter, nn.Parameter] = {}
    for index, block in model.blocks.items():
        _fill(block, f"blocks.{index}.", run, device, seed, filled)
        _spread(block, run, mesh, _block_plan(run))
    _fill(model, "", run, device, seed, filled)
    _spread(model, run, mesh, _root_plan(run, model))
    if run.layout.dp > 1 and not run.sharded:
        ids = [device] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)
    return model


def _freeze(model: Transformer, run: Run) -> None:
    """Freeze the first layers and the token table where the run says so."""
    count = run.training.frozen_layers
    if count:
        for frozen in (model.embed, model.embedding, *list(model.blocks.values())[:count]):
            frozen.requires_grad_(requires_grad=False)


def _fill(
    module: nn.Module,
    prefix: str,
    run: Run,
    device: torch.device,
    seed: int,
    filled: dict[nn.Parameter, nn.Parameter],
) -> None:
    """Give every parameter of ``module`` that still has no memory its memory and its initial values."""
    for owner_name, owner in module.named_modules():
        for name, empty in list(owner.named_parameters(recurse=False)):
            if not empty.is_meta:
                continue
            if empty not in filled:
                full = prefix + (f"{owner_name}.{name}" if owner_name else name)
                values = _initial(full, empty, run, device, seed)
                filled[empty] = nn.Parameter(values, requires_grad=empty.requires_grad)
            setattr(owner, name, filled[empty])


def _initial(name: str, empty: Tensor, run: Run, device: torch.device, seed: int) -> Tensor:
    """Initial values of the parameter called ``name``; normal, narrower for output linears (GPT-2)."""
    values = torch.empty(empty.shape, device=device, dtype=torch.float32)
    if name.endswith("bias") or "adapter_up" in name:
        nn.init.zeros_(values)
    elif values.dim() == 1:
        nn.init.ones_(values)
    else:
        generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()) + seed)
        output = name.endswith((".o.weight", ".down.weight", ".down"))
        std = INIT_STD / math.sqrt(2 * run.model.num_layers) if output else INIT_STD
        nn.init.normal_(values, std=std, generator=generator)
    return values.to(weight_dtype(run, name))


def weight_dtype(run: Run, name: str) -> torch.dtype:
    """Number format that a weight is kept in between steps."""
    if run.lora is not None:
        if is_adapter(name):
            return adapter_dtype(run.lora, run.training.precision)
        return torch.float32 if run.numerics == "fp32" else compute_dtype(run)
    return DTYPES.get(run.numerics, torch.float32)


def compute_dtype(run: Run) -> torch.dtype:
    """Number format of matrix multiplies."""
    if run.numerics == "fp32":
        return torch.float32
    return torch.float16 if run.training.precision == "fp16" else torch.bfloat16


# --------------------------------------------------------------------------------- splitting one module


def _spread(module: nn.Module, run: Run, mesh: DeviceMesh | None, plan: dict[str, ParallelStyle]) -> None:
    """Split ``module`` over the tensor ranks, then shard it over the data ranks."""
    if mesh is None:
        return
    if run.layout.tp > 1:
        parallelize_module(module, mesh["tensor"], plan, src_data_rank=None)
        if isinstance(module, Transformer) and run.model.tied_embeddings:
            module.head.weight = module.embed.weight
    if run.sharded:
        replicas = run.layout.dp // (run.layout.shard_group or run.layout.dp)
        policy = MixedPrecisionPolicy(
            param_dtype=compute_dtype(run) if run.numerics == "fsdp-mixed" else None,
            reduce_dtype=torch.float32,
        )
        offload = CPUOffloadPolicy() if run.layout.offload == "params+optimizer" else OffloadPolicy()
        over = mesh["replicate", "shard"] if replicas > 1 else mesh["shard"]
        fully_shard(module, mesh=over, mp_policy=policy, offload_policy=offload)


def _block_plan(run: Run) -> dict[str, ParallelStyle]:
    """Plan of one block: column-split q, k, v, gate and up, row-split outputs (arXiv 1909.08053).

    With sequence parallel (arXiv 2205.05198) norms and residuals hold their slice of the sequence only.
    """
    outside = Shard(1) if run.layout.sequence_parallel else Replicate()
    plan: dict[str, ParallelStyle] = {
        "attention": PrepareModuleInput(
            input_layouts=(outside, None), desired_input_layouts=(Replicate(), None)
        ),
        "ffn": PrepareModuleInput(input_layouts=(outside,), desired_input_layouts=(Replicate(),)),
    }
    for column in ("attention.q", "attention.k", "attention.v", "ffn.up", "ffn.gate"):
        plan[column] = ColwiseParallel()
    for row in ("attention.o", "ffn.down"):
        plan[row] = RowwiseParallel(output_layouts=outside)
    if not run.model.gated_ffn:
        del plan["ffn.gate"]
    if run.model.qk_norm == "per-head":  # heads are split: every rank has a part of the weight's gradient
        plan |= {"attention.q_norm": SequenceParallel(sequence_dim=2, use_local_output=True)}
        plan |= {"attention.k_norm": SequenceParallel(sequence_dim=2, use_local_output=True)}
    if run.layout.sequence_parallel and run.model.norm_affine:
        plan |= {f"norm_{i}": SequenceParallel(use_local_output=True) for i in _block_norms(run)}
    return plan


def _block_norms(run: Run) -> Iterator[int]:
    """Numbers of the block's norms that exist."""
    yield from range(1, run.model.norms_per_layer + 1)


def _root_plan(run: Run, stage: Transformer) -> dict[str, ParallelStyle]:
    """Plan of what is outside the blocks: token table and head split over the vocabulary.

    Learned places and the like work on whole sequences; only behind them is the sequence cut.
    """
    split = run.layout.sequence_parallel
    outside = Shard(1) if split else Replicate()
    model = run.model
    whole = model.positional == "learned" or model.type_vocab_size or model.embedding_norm
    plan: dict[str, ParallelStyle] = {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate() if whole else outside),
        "head": ColwiseParallel(input_layouts=outside, output_layouts=Shard(-1), use_local_output=False),
    }
    if whole and split:
        plan["cut"] = PrepareModuleInput(
            input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True
        )
    if split and model.final_norm and model.norm_affine:
        plan["final_norm"] = SequenceParallel()
    return {name: style for name, style in plan.items() if hasattr(stage, name)}


def unwrap(module: nn.Module) -> Transformer:
    """Return the model inside a DDP wrapper, or the model itself."""
    inner = module.module if isinstance(module, DistributedDataParallel) else module
    return cast(Transformer, inner)
