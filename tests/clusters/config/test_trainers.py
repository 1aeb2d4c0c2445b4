"""The layout of a plan for other libraries, each file read by that library's own parser.

Accelerate and DeepSpeed come with the test extra. torchtitan does not (it brings datasets, wandb and more):
its files are held against its published dataclasses (``tests/payloads/torchtitan``), and read by its own
parser where it is installed.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from clusters.config.trainers import TrainConfig, train_config
from planner.errors import UserError
from planner.model.presets import preset
from planner.model.shapes import shape_for
from planner.types import Layout, Links, Run, Shape, TrainingSpec

ROOT = Path(__file__).parents[3]
TORCHTITAN = json.loads((ROOT / "tests/payloads/torchtitan/config.json").read_text(encoding="utf-8"))
LIBRARIES = ("torchtitan", "deepspeed", "accelerate")


def run(training: dict[str, object] | None = None, model: str | None = None, **layout: object) -> Run:
    spread = Layout.model_validate(layout)
    gpus = spread.dp * spread.tp * spread.pp * spread.cp
    links = Links(intra="nvlink4-nvswitch", inter="ib-ndr")
    per_node = min(8, gpus)
    return Run(
        id="p-1",
        model=shape_for(1e9) if model is None else preset(model),
        training=TrainingSpec(seq_len=2048, **(training or {})),
        layout=spread,
        shape=Shape(gpu="H100-SXM5-80GB", gpus_per_node=per_node, num_nodes=gpus // per_node, links=links),
    )


MASTER = {"numerics": "16bit-weights-fp32-master"}
RUNS = {
    "one GPU": run(micro_batch=4, grad_accum=8),
    "ddp": run(dp=8, micro_batch=4, grad_accum=2),
    "fp32": run({"precision": "fp32"}, dp=8),
    "bf16": run({"precision": "bf16-pure"}, dp=8),
    "bf16 fsdp": run({"precision": "bf16-pure"}, dp=8, zero_stage=3),
    "fp16": run({"precision": "fp16"}, dp=8),
    "zero-1": run(dp=8, zero_stage=1, micro_batch=4),
    "zero-2 master": run(MASTER, dp=8, zero_stage=2, micro_batch=4, offload="optimizer"),
    "fsdp": run(dp=16, zero_stage=3, micro_batch=2, grad_accum=4, recompute="full"),
    "fsdp offload": run(dp=8, zero_stage=3, offload="params+optimizer"),
    "hybrid": run(dp=16, zero_stage=3, shard_group=8, micro_batch=2),
    "context": run(dp=4, cp=2, zero_stage=3),
    "tensor": run(dp=4, tp=2, zero_stage=3, sequence_parallel=False),
    "sequence": run(dp=4, tp=2, zero_stage=3),
    "pipeline": run(dp=2, pp=4, micro_batch=2, grad_accum=8),
    "interleaved": run(dp=2, pp=4, interleave=2, micro_batch=1, grad_accum=8),
    "experts": run(model="mixtral-8x7b", dp=8, ep=4, zero_stage=3, recompute="selective"),
}
# what each library can say of them; the rest is refused
SAYS = {
    "torchtitan": {"one GPU", "ddp", "fp32", "bf16", "bf16 fsdp", "fsdp", "fsdp offload", "hybrid", "context",
                   "tensor", "sequence", "pipeline", "interleaved", "experts"},
    "deepspeed": {"one GPU", "ddp", "fp32", "bf16 fsdp", "fp16", "zero-1", "zero-2 master", "fsdp",
                  "fsdp offload", "tensor"},
    "accelerate": {"one GPU", "ddp", "fp32", "bf16", "bf16 fsdp", "fp16", "zero-2 master", "fsdp",
                   "fsdp offload", "hybrid", "context", "tensor"},
}  # fmt: skip


def made(library: str) -> dict[str, TrainConfig]:
    return {name: train_config(RUNS[name], library) for name in sorted(SAYS[library])}


def parsed(script: str, directory: Path, files: dict[str, TrainConfig]) -> dict[str, dict]:
    """What the library read out of every file, in a process of its own."""
    paths = []
    for name, file in files.items():
        path = directory / f"{name.replace(' ', '-')}-{file.name}"
        path.write_text(file.text, encoding="utf-8")
        paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-c", script, *paths],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "HOME": str(directory), "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"},
        cwd=directory,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    read = json.loads(done.stdout.splitlines()[-1])
    return dict(zip(files, read, strict=True))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", RUNS)
def test_what_a_library_cannot_say_is_refused_by_name_and_nothing_else(name: str, library: str):
    if name in SAYS[library]:
        assert train_config(RUNS[name], library).text.endswith("\n")
    else:
        with pytest.raises(UserError, match=f"{library} cannot express ") as caught:
            train_config(RUNS[name], library)
        assert caught.value.hint


@pytest.mark.parametrize(
    ("library", "what", "words"),
    [
        ("torchtitan", run(dp=8, zero_stage=1), "ZeRO-1"),
        ("torchtitan", run(dp=8, zero_stage=3, offload="optimizer"), "offload of optimizer states alone"),
        ("torchtitan", run({"precision": "fp8"}, dp=8), "fp8"),
        ("deepspeed", run(dp=8, pp=2), "pipeline parallel 2"),
        ("deepspeed", run(dp=16, zero_stage=3, shard_group=8), "shards over 8 of 16 ranks"),
        ("deepspeed", run(dp=8, recompute="selective"), "selective recompute"),
        ("accelerate", run(dp=8, zero_stage=1), "ZeRO-1 with FP32 weights"),
        ("accelerate", run(dp=8, recompute="full"), "recompute without FSDP"),
        ("accelerate", run(dp=4, tp=2, zero_stage=3), "tensor parallel with sequence parallel"),
    ],
)
def test_a_refusal_names_what_it_is_about(library: str, what: Run, words: str):
    with pytest.raises(UserError, match=words):
        train_config(what, library)


def test_a_refusal_names_a_library_that_can():
    with pytest.raises(UserError) as caught:
        train_config(RUNS["hybrid"], "deepspeed")
    assert caught.value.hint == "--train-config torchtitan"


def test_an_unknown_library_names_near_ones():
    with pytest.raises(UserError, match="did you mean deepspeed"):
        train_config(RUNS["ddp"], "deepsped")


# ------------------------------------------------------------------------------------- DeepSpeed

DEEPSPEED = """
import json, sys
import deepspeed.comm as dist
from deepspeed.runtime.config import DeepSpeedConfig
read = []
for path in sys.argv[1:]:
    document = json.load(open(path))
    each = document["train_micro_batch_size_per_gpu"] * document["gradient_accumulation_steps"]
    ranks = document["train_batch_size"] // each
    dist.get_world_size = lambda *args, **kwargs: ranks
    dist.is_initialized = lambda: True
    dist.get_rank = lambda *args, **kwargs: 0
    found = DeepSpeedConfig(path, mpu=None)
    read.append({"ranks": ranks, "batch": found.train_batch_size, "acc": found.gradient_accumulation_steps,
                 "stage": int(found.zero_optimization_stage), "bf16": found.bfloat16_config.enabled,
                 "fp16": found.float16_config.enabled, "autocast": found.torch_autocast_enabled,
                 "offload": found.zero_config.offload_optimizer is not None})
print(json.dumps(read))
"""


def test_deepspeed_reads_its_files_as_they_are_meant(tmp_path: Path):
    pytest.importorskip("deepspeed", reason="in the test extra")
    read = parsed(DEEPSPEED, tmp_path, made("deepspeed"))
    for name, found in read.items():
        layout = RUNS[name].layout
        assert found["ranks"] == layout.dp
        assert found["batch"] == layout.dp * layout.micro_batch * layout.grad_accum
        assert found["acc"] == layout.grad_accum
        assert found["stage"] == layout.zero_stage
        assert found["offload"] == (layout.offload in ("optimizer", "params+optimizer"))
    numbers = {name: (found["bf16"], found["fp16"], found["autocast"]) for name, found in read.items()}
    assert numbers["ddp"] == numbers["fp16"] == (False, False, True)
    assert numbers["zero-2 master"] == numbers["bf16 fsdp"] == (True, False, False)
    assert numbers["fp32"] == (False, False, False)


# ------------------------------------------------------------------------------------- Accelerate

ACCELERATE = """
import json, sys
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
read = []
for path in sys.argv[1:]:
    args, _, _ = _validate_launch_command(launch_command_parser().parse_args(["--config_file", path, "train.py"]))
    read.append({"processes": args.num_processes, "machines": args.num_machines, "precision": args.mixed_precision,
                 "fsdp": bool(args.use_fsdp), "version": str(args.fsdp_version),
                 "deepspeed": bool(args.use_deepspeed), "stage": str(args.zero_stage),
                 "replicate": args.parallelism_config_dp_replicate_size,
                 "shard": args.parallelism_config_dp_shard_size, "tp": args.parallelism_config_tp_size,
                 "cp": args.parallelism_config_cp_size, "recompute": str(args.fsdp_activation_checkpointing),
                 "offload": str(args.fsdp_offload_params)})
print(json.dumps(read))
"""  # noqa: E501


def test_accelerate_reads_its_files_as_they_are_meant(tmp_path: Path):
    pytest.importorskip("accelerate", reason="in the test extra")
    read = parsed(ACCELERATE, tmp_path, made("accelerate"))
    for name, found in read.items():
        asked = RUNS[name]
        layout, fsdp = asked.layout, asked.layout.zero_stage == 3
        assert found["processes"] == asked.shape.gpus_per_node * asked.shape.num_nodes
        assert found["machines"] == asked.shape.num_nodes
        assert found["fsdp"] == fsdp
        assert found["deepspeed"] == (layout.zero_stage in (1, 2))
        if fsdp:
            degrees = found["replicate"] * found["shard"] * found["tp"] * found["cp"]
            assert degrees == found["processes"]
            assert found["version"] == "2"
            assert found["recompute"] == str(layout.recompute == "full")
            assert found["offload"] == str(layout.offload == "params+optimizer")
    precisions = {name: found["precision"] for name, found in read.items()}
    assert precisions["ddp"] == precisions["fsdp"] == "bf16"
    assert precisions["fp32"] == precisions["bf16"] == "no"
    assert precisions["fp16"] == "fp16"
    assert read["zero-2 master"]["stage"] == "2"
    assert (read["hybrid"]["replicate"], read["hybrid"]["shard"]) == (2, 8)


def test_what_accelerate_leaves_to_the_script_stands_in_the_first_lines():
    text = train_config(RUNS["fsdp"], "accelerate").text
    assert "# Micro-batch 2 is the batch size" in text
    assert "gradient_accumulation_steps=4" in text
    assert "--machine_rank" in text
    assert yaml.safe_load(text)["num_processes"] == 16


# ------------------------------------------------------------------------------------- torchtitan


def flags(file: TrainConfig) -> list[str]:
    return [line for line in file.text.splitlines() if not line.startswith("#")]


def check_flag(flag: str) -> None:
    """Section, field and value of a flag are those of torchtitan's published dataclasses."""
    if not flag.startswith("--"):
        section, _, choice = flag.partition(":")
        assert section == "activation_checkpoint"
        assert choice in TORCHTITAN["activation_checkpoint"]
        return
    name, _, value = flag.removeprefix("--").partition("=")
    section, _, field = name.partition(".")
    known = TORCHTITAN["sections"][section]
    kind = known.get(field) or known[field.removeprefix("no_")]
    if "choices" in kind:
        assert value in kind["choices"]
    elif kind["type"] == "bool":
        assert value == ""
    elif kind["type"] == "int":
        assert int(value) >= 1
    else:
        assert kind["type"] == "str"


@pytest.mark.parametrize("name", sorted(SAYS["torchtitan"]))
def test_every_flag_is_one_of_torchtitans(name: str):
    found = flags(train_config(RUNS[name], "torchtitan"))
    for flag in found:
        check_flag(flag)
    assert found[-1].startswith("activation_checkpoint:")  # a subcommand comes last


def test_a_flag_that_torchtitan_does_not_have_is_noticed():
    with pytest.raises((KeyError, AssertionError)):
        check_flag("--parallelism.tensor_parallel_degre=2")


@pytest.mark.parametrize("name", sorted(SAYS["torchtitan"]))
def test_degrees_of_torchtitan_multiply_to_the_gpus_and_the_batch_stays(name: str):
    asked = RUNS[name]
    values = dict(flag.removeprefix("--").split("=") for flag in flags(train_config(asked, "torchtitan"))
                  if "=" in flag)  # fmt: skip
    of = {k.partition(".")[2]: v for k, v in values.items()}
    axes = ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel", "pipeline_parallel",
            "context_parallel")  # fmt: skip
    product = 1
    for axis in axes:
        product *= int(of[f"{axis}_degree"])
    layout = asked.layout
    assert product == asked.shape.gpus_per_node * asked.shape.num_nodes
    assert int(of["global_batch_size"]) == layout.dp * layout.micro_batch * layout.grad_accum
    local = int(of["local_batch_size"])
    assert int(of["global_batch_size"]) % (local * layout.dp) == 0
    if layout.pp > 1:
        assert int(of["pipeline_parallel_microbatch_size"]) == layout.micro_batch


OWN_PARSER = """
import dataclasses, json, sys
import tyro
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import ActivationCheckpointingConfig, SelectiveAC

@dataclasses.dataclass
class Layout:
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    parallelism: ParallelismConfig = dataclasses.field(default_factory=ParallelismConfig)
    compile: CompileConfig = dataclasses.field(default_factory=CompileConfig)
    activation_checkpoint: ActivationCheckpointingConfig = dataclasses.field(default_factory=SelectiveAC.Config)

read = []
for path in sys.argv[1:]:
    words = [line for line in open(path).read().splitlines() if not line.startswith("#")]
    found = tyro.cli(Layout, args=words)
    read.append({"shard": found.parallelism.data_parallel_shard_degree, "tp": found.parallelism.tensor_parallel_degree,
                 "local": found.training.local_batch_size, "offload": found.training.enable_cpu_offload,
                 "recompute": type(found.activation_checkpoint).__qualname__})
print(json.dumps(read))
"""  # noqa: E501


def test_torchtitans_own_parser_reads_its_files_as_they_are_meant(tmp_path: Path):
    pytest.importorskip("torchtitan", reason="not in the test extra: it brings datasets, wandb and more")
    read = parsed(OWN_PARSER, tmp_path, made("torchtitan"))
    kinds = {"none": "NoneType", "selective": "SelectiveAC.Config", "full": "FullAC.Config"}
    for name, found in read.items():
        layout = RUNS[name].layout
        assert found["tp"] == layout.tp
        assert found["recompute"] == kinds[layout.recompute]
        assert found["offload"] == (layout.offload == "params+optimizer")
        if layout.zero_stage == 3:
            assert found["shard"] == (layout.shard_group or layout.dp * layout.cp) // layout.cp
