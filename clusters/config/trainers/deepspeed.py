"""DeepSpeed: the JSON that ``deepspeed.initialize(config=…)`` reads.

Keys follow ``deepspeed/runtime/config.py``, ``runtime/zero/config.py`` and ``runtime/constants.py`` of 0.19.
Pipeline, expert and context parallel are built in the script there, so a plan with them is refused.
"""

from __future__ import annotations

import json

from clusters.config.trainers.common import named, numerics, sequences, shard_group
from planner.types import Run

Value = str | int | float | bool | dict[str, "Value"]


def refused(run: Run) -> list[str]:
    """What the layout has and DeepSpeed's JSON cannot say."""
    layout, training = run.layout, run.training
    recomputed = layout.recompute == "full" and layout.recompute_fraction >= 1
    offloaded = layout.activation_offload or layout.offload == "activations"
    return named(
        (
            (layout.tp > 1 and layout.sequence_parallel, "tensor parallel with sequence parallel"),
            (layout.pp > 1, f"pipeline parallel {layout.pp} (a PipelineModule of the script)"),
            (layout.cp > 1, f"context parallel {layout.cp}"),
            (layout.ep > 1, f"expert parallel {layout.ep} (MoE layers of the script)"),
            (
                layout.zero_stage > 0 and shard_group(run) != layout.dp * layout.cp,
                f"shards over {shard_group(run)} of {layout.dp} ranks (MiCS is gone since 0.19)",
            ),
            (numerics(run) == "bf16-all" and layout.zero_stage == 0, "all states in bf16 without ZeRO"),
            (layout.recompute == "selective", "selective recompute"),
            (layout.recompute == "full" and not recomputed, "recompute of some of the blocks"),
            (offloaded and not recomputed, "offload of activations without full recompute"),
            (layout.offload == "optimizer" and layout.zero_stage == 0, "offload without ZeRO"),
            (
                layout.offload == "params+optimizer" and layout.zero_stage < 3,
                "offload of parameters below ZeRO-3",
            ),
            (training.precision in ("fp8", "tf32"), f"{training.precision} (a switch of the script)"),
        )
    )


def text(run: Run) -> str:
    """JSON document."""
    layout = run.layout
    document: dict[str, Value] = {
        "train_batch_size": sequences(run),
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": layout.grad_accum,
        "zero_optimization": _zero(run),
        **_numbers(run),
    }
    if layout.recompute == "full":
        offloaded = layout.activation_offload or layout.offload == "activations"
        document["activation_checkpointing"] = {
            "number_checkpoints": run.model.num_layers,
            "cpu_checkpointing": offloaded,
        }
    if layout.tp > 1:
        document["tensor_parallel"] = {"autotp_size": layout.tp}
    return json.dumps(document, indent=2) + "\n"


def _zero(run: Run) -> dict[str, Value]:
    layout = run.layout
    found: dict[str, Value] = {"stage": layout.zero_stage}
    if layout.offload in ("optimizer", "params+optimizer"):
        found["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if layout.offload == "params+optimizer":
        found["offload_param"] = {"device": "cpu", "pin_memory": True}
    return found


def _numbers(run: Run) -> dict[str, Value]:
    """FP32 weights under autocast, or 16-bit weights with an FP32 master copy, or all in 16 bit."""
    kept, half = numerics(run), "float16" if run.training.precision == "fp16" else "bfloat16"
    if kept == "fp32":
        return {}
    if kept in ("fp32-weights-amp", "fsdp-mixed"):
        return {"torch_autocast": {"enabled": True, "dtype": half}}
    if kept == "bf16-all":
        states: dict[str, Value] = {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
        return {"bf16": {"enabled": True, **states}}
    return {"fp16" if half == "float16" else "bf16": {"enabled": True}}
