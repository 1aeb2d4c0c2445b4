"""Accelerate: the YAML that ``accelerate launch --config_file`` reads.

Keys follow ``commands/config/config_args.py`` and ``commands/launch.py`` of 1.15: DDP as MULTI_GPU, FSDP2
with a parallelism configuration, ZeRO-1 and ZeRO-2 through its DeepSpeed plug-in.
"""

from __future__ import annotations

from clusters.config.ray_yaml import Document
from clusters.config.trainers.common import named, numerics, shard_group
from clusters.config.yaml_text import to_yaml
from planner.types import Run


def refused(run: Run) -> list[str]:
    """What the layout has and Accelerate's file cannot say."""
    layout, training, kept = run.layout, run.training, numerics(run)
    zero, fsdp = layout.zero_stage, layout.zero_stage == 3
    mastered = kept == "16bit-weights-fp32-master"
    offloaded = layout.activation_offload or layout.offload == "activations"
    some = layout.recompute == "full" and layout.recompute_fraction < 1
    return named(
        (
            (zero in (1, 2) and not mastered, f"ZeRO-{zero} with FP32 weights (its DeepSpeed keeps 16 bit)"),
            (zero in (0, 3) and mastered, "16-bit weights with an FP32 master copy without ZeRO-1 or ZeRO-2"),
            (layout.tp > 1 and layout.sequence_parallel, "tensor parallel with sequence parallel"),
            (layout.tp > 1 and not fsdp, "tensor parallel without FSDP"),
            (layout.cp > 1 and not fsdp, "context parallel without FSDP"),
            (layout.pp > 1, f"pipeline parallel {layout.pp}"),
            (layout.ep > 1, f"expert parallel {layout.ep}"),
            (fsdp and shard_group(run) % layout.cp > 0, "a shard group that splits cp"),
            (zero in (1, 2) and shard_group(run) != layout.dp * layout.cp, "ZeRO over a part of the ranks"),
            (layout.recompute == "selective", "selective recompute"),
            (layout.recompute == "full" and not fsdp, "recompute without FSDP (a call of the script)"),
            (some, "recompute of some of the blocks"),
            (offloaded and not (fsdp and layout.recompute == "full"), "offload of activations so"),
            (layout.offload == "optimizer" and zero not in (1, 2), "offload of optimizer states alone"),
            (layout.offload == "params+optimizer" and not fsdp, "offload of parameters without FSDP"),
            (training.precision in ("fp8", "tf32"), f"{training.precision} (a switch of the script)"),
        )
    )


def text(run: Run) -> str:
    """YAML document; what the script must pass itself stands in the first lines."""
    layout = run.layout
    lines = [
        f"# Micro-batch {layout.micro_batch} is the batch size of the DataLoader;",
        f"# Accelerator(gradient_accumulation_steps={layout.grad_accum}) is set in the script.",
    ]
    if run.shape.num_nodes > 1:
        lines.append("# On each machine: accelerate launch --machine_rank N --main_process_ip HEAD ...")
    if numerics(run) == "bf16-all":
        lines.append("# All in bf16: load the model with torch_dtype=torch.bfloat16.")
    return "\n".join([*lines, to_yaml(_document(run))])


def _document(run: Run) -> Document:
    shape, zero = run.shape, run.layout.zero_stage
    document: Document = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": _kind(run),
        "downcast_bf16": False,
        "enable_cpu_affinity": False,
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": _mixed(run),
        "num_machines": shape.num_nodes,
        "num_processes": run.shape.num_gpus,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    if zero == 3:
        document["fsdp_config"] = _fsdp(run)
        document["parallelism_config"] = _parallel(run)
    if zero in (1, 2):
        document["deepspeed_config"] = _deepspeed(run)
    return document


def _kind(run: Run) -> str:
    if run.shape.num_gpus == 1:
        return "NO"
    return {0: "MULTI_GPU", 3: "FSDP"}.get(run.layout.zero_stage, "DEEPSPEED")


def _mixed(run: Run) -> str:
    if numerics(run) in ("fp32", "bf16-all"):
        return "no"
    return "fp16" if run.training.precision == "fp16" else "bf16"


def _fsdp(run: Run) -> Document:
    layout = run.layout
    return {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": True,
        "fsdp_offload_params": layout.offload == "params+optimizer",
        "fsdp_activation_checkpointing": layout.recompute == "full",
        "fsdp_activation_checkpointing_offload": layout.activation_offload or layout.offload == "activations",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _parallel(run: Run) -> Document:
    layout = run.layout
    shards = max(1, shard_group(run) // layout.cp)
    return {
        "parallelism_config_dp_replicate_size": layout.dp // shards,
        "parallelism_config_dp_shard_size": shards,
        "parallelism_config_tp_size": layout.tp,
        "parallelism_config_cp_size": layout.cp,
    }


def _deepspeed(run: Run) -> Document:
    layout = run.layout
    return {
        "zero_stage": layout.zero_stage,
        "gradient_accumulation_steps": layout.grad_accum,
        "offload_optimizer_device": "cpu" if layout.offload == "optimizer" else "none",
        "offload_param_device": "none",
        "zero3_init_flag": False,
    }
