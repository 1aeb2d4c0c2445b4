"""torchtitan 0.3: its configuration is a Python function and flags; the layout is a file of flags.

    torchrun … -m torchtitan.train --module llama3 --config llama3_8b $(grep -v '^#' torchtitan.args)

Flags follow ``torchtitan/config/configs.py`` (TrainingConfig, ParallelismConfig, CompileConfig) and
``torchtitan/distributed/activation_checkpoint.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from clusters.config.trainers.common import named, numerics, shard_group
from planner.types import Run


def refused(run: Run) -> list[str]:
    """What the layout has and torchtitan's flags cannot say."""
    layout, training = run.layout, run.training
    kept = numerics(run)
    return named(
        (
            (
                layout.zero_stage in (1, 2) and layout.dp > 1,
                f"ZeRO-{layout.zero_stage} (it has DDP and FSDP)",
            ),
            (layout.dp > 1 and layout.cp > 1 and layout.zero_stage == 0, "context parallel under DDP"),
            (layout.zero_stage == 3 and shard_group(run) % layout.cp > 0, "a shard group that splits cp"),
            (layout.offload == "optimizer", "offload of optimizer states alone"),
            (layout.offload == "params+optimizer" and layout.zero_stage < 3, "offload without FSDP"),
            (layout.activation_offload or layout.offload == "activations", "offload of activations"),
            (layout.recompute_fraction < 1 and layout.recompute == "full", "recompute of some of the blocks"),
            ((layout.etp or 1) > 1, f"expert-tensor parallel {layout.etp}"),
            (training.precision in ("fp16", "fp8", "tf32"), f"{training.precision} (by flags)"),
            (kept == "16bit-weights-fp32-master", "16-bit weights with an FP32 master copy"),
            (training.method in ("lora", "qlora"), f"{training.method} (by flags)"),
        )
    )


def text(run: Run) -> str:
    """File of flags, one a line."""
    head = (
        "# Layout of a plan for torchtitan 0.3, one flag a line; the model is that of --module and --config.",
        f"# {run.shape.num_gpus} ranks; torchrun ... -m torchtitan.train --module llama3 --config llama3_8b "
        "$(grep -v '^#' torchtitan.args)",
    )
    return "\n".join([*head, *_flags(run), ""])


def _flags(run: Run) -> Iterator[str]:
    layout, training = run.layout, run.training
    accumulated = layout.pp == 1
    local = layout.micro_batch if accumulated else layout.micro_batch * layout.grad_accum
    yield f"--training.local_batch_size={local}"
    yield f"--training.global_batch_size={layout.dp * layout.micro_batch * layout.grad_accum}"
    yield f"--training.seq_len={training.seq_len}"
    yield from _numbers(run)
    yield from _parallel(run)
    if layout.offload == "params+optimizer":
        yield "--training.enable_cpu_offload"
    if training.compile:
        yield "--compile.enable"
    # a subcommand of the parser: it comes last
    yield f"activation_checkpoint:{layout.recompute}"


def _numbers(run: Run) -> Iterator[str]:
    kept = numerics(run)
    yield f"--training.dtype={'bfloat16' if kept == 'bf16-all' else 'float32'}"
    yield f"--training.mixed_precision_param={'float32' if kept == 'fp32' else 'bfloat16'}"


def _parallel(run: Run) -> Iterator[str]:
    layout = run.layout
    sharded = layout.zero_stage == 3
    shards = max(1, shard_group(run) // layout.cp) if sharded else 1
    yield f"--parallelism.data_parallel_replicate_degree={layout.dp // shards}"
    yield f"--parallelism.data_parallel_shard_degree={shards}"
    yield f"--parallelism.tensor_parallel_degree={layout.tp}"
    yield f"--parallelism.pipeline_parallel_degree={layout.pp}"
    yield f"--parallelism.context_parallel_degree={layout.cp}"
    yield f"--parallelism.expert_parallel_degree={layout.ep}"
    if layout.tp > 1:
        no = "" if layout.sequence_parallel else "no_"
        yield f"--parallelism.{no}enable_sequence_parallel"
    if layout.pp > 1:
        schedule = "Interleaved1F1B" if layout.interleave > 1 else "1F1B"
        yield f"--parallelism.pipeline_parallel_schedule={schedule}"
        yield f"--parallelism.pipeline_parallel_microbatch_size={layout.micro_batch}"
        if layout.interleave > 1:
            layers = -(-run.model.num_layers // (layout.pp * layout.interleave))
            yield f"--parallelism.pipeline_parallel_layers_per_stage={layers}"
