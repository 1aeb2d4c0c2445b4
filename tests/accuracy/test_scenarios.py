"""Questions that people asked, with known outcomes: what the tool says of each, where it can say anything."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import answers, api
from planner.errors import UserError
from planner.hardware.collectives import all_reduce_s, bus_bytes_per_s
from planner.hardware.gpus import gpu
from planner.hardware.links import machine_columns
from planner.results import Estimate
from planner.runs import parse_run
from planner.types import Shape
from planner.verdict.limits import limit

FILE = Path(__file__).parent / "cases" / "scenarios.jsonl"
GIB = 2**30
# Not a matter of an estimate: what must look at the machine, an account, or a price feed is asked there.
ELSEWHERE = {
    "efa-not-used-ray-p5": ("clusters/probe/hardware/test_host.py", "a_fall_back_to_sockets_fails_by_name"),
    "p4d-not-in-az": (
        "clusters/clouds/test_aws.py", "a_zone_that_does_not_offer_the_type_is_told_with_those_that_do",
    ),
    "runpod-spot-dearer-than-od": (
        "providers/test_served.py", "a_live_spot_price_that_equals_the_price_on_demand_is_no_spot_market",
    ),
    "spot-min-vs-max-shown": (
        "providers/test_served.py", "spot_prices_of_zones_take_the_place_of_the_one_of_the_region",
    ),
    "ray-gpu-task-hangs-cpu-head": (
        "clusters/launch/test_machine.py", "no_capacity_goes_to_the_next_zone",
    ),
}  # fmt: skip
DDP4, FSDP4, FSDP8, FSDP16 = (
    {"dp": n, "tp": 1, "pp": 1, "sharding": sharding}
    for n, sharding in ((4, "none"), (4, "zero3"), (8, "zero3"), (16, "zero3"))
)
DDP8 = {"dp": 8, "tp": 1, "pp": 1, "sharding": "none"}


def estimate(model: str | float, gpu_name: str, gpus: int = 1, **changed: Any) -> Estimate:
    described = {"name": model} if isinstance(model, str) else {"params": model}
    plain = {
        "kind": "full-finetune", "model": described, "gpu": gpu_name, "gpus": gpus,
        "gpus_per_node": min(gpus, 8), "micro_batch": 1, "grad_accum": 1, "seq_len": 2048,
        "precision": "bf16-mixed", "recompute": "full", "framework": "HF Trainer 2023", "offload": "none",
    }  # fmt: skip
    return api.estimate([parse_run({**plain, **changed})])[0]


def test_every_scenario_is_asked_here_or_named_with_the_reason():
    names = {json.loads(line)["id"] for line in FILE.read_text(encoding="utf-8").splitlines()}
    asked = {
        name.removeprefix("test_").replace("_", "-").replace("-dot-", ".")
        for name in globals()
        if name.startswith("test_") and "scenario" not in name
    }
    assert asked | set(ELSEWHERE) == names
    assert not asked & set(ELSEWHERE)


@pytest.mark.parametrize(("file", "name"), ELSEWHERE.values())
def test_a_scenario_that_is_asked_elsewhere_has_its_test(file: str, name: str):
    assert f"def test_{name}(" in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")


def test_slow_phb_not_nvlink():
    """GPUs that talk through the host instead of NVLink train 4 times slower; the probe's limit finds it."""
    planned = estimate(
        "llama2-7b", "A100-SXM-80GB", 4, layout=FSDP4, seq_len=512, micro_batch=4, recompute="none"
    ).run
    links = planned.shape.links.model_copy(update={"intra": "pcie4-host"})
    found = planned.model_copy(update={"shape": planned.shape.model_copy(update={"links": links})})
    (_, as_planned), (_, as_found) = answers.evaluate([planned, found])
    assert 2 < as_found.step_s.mid / as_planned.step_s.mid < 8
    (fast,), (slow,) = (busbw(run.shape) for run in (planned, found))
    assert slow < limit("busbw_share") * fast


def busbw(shape: Shape) -> np.ndarray:
    """Bus bandwidth of a large all-reduce over the GPUs of one node."""
    machine, gpus = machine_columns([shape], ["bf16"]), np.array([float(shape.gpus_per_node)])
    size = np.array([2.0**28])
    return bus_bytes_per_s("all_reduce", size, all_reduce_s(size, gpus, gpus, machine), gpus)


def test_fit_7b_fsdp_4xa100_40_29gb():
    """29 GB reserved, 27 with flash attention; on 8x 24 GB the step would fit, and loading failed."""
    memory = estimate(
        "llama2-7b", "A100-SXM-40GB", 4, layout=FSDP4, precision="bf16-pure", recompute="none"
    ).memory
    assert memory.safe
    assert memory.reserved_bytes.low <= 29e9
    assert memory.reserved_bytes.high >= 27e9
    asked = {"precision": "bf16-pure", "framework": "llama-recipes"}
    on_24, on_40 = (
        estimate("llama2-7b", name, gpus, layout=layout, **asked)
        for name, gpus, layout in (("RTX-3090-24GB", 8, FSDP8), ("A100-SXM-40GB", 4, FSDP4))
    )
    assert on_24.memory.safe
    assert any("before it is sharded" in said for said in on_24.warnings)
    assert not any("before it is sharded" in said for said in on_40.warnings)


def test_fit_13b_full_8xa100_80_48gb():
    """48 GB on 8x 80 GB at batch 4; 8x 40 GB is tight, 16x is not; offload on 4x needs 240 GB of host."""
    asked = {"micro_batch": 4}
    on_8 = estimate("llama2-13b", "A100-SXM-80GB", 8, layout=FSDP8, **asked).memory
    tight = estimate("llama2-13b", "A100-SXM-40GB", 8, layout=FSDP8, **asked).memory
    on_16 = estimate("llama2-13b", "A100-SXM-40GB", 16, layout=FSDP16, **asked).memory
    kept_out = estimate("llama2-13b", "A100-SXM-40GB", 4, layout=FSDP4, offload="params+optimizer").memory
    assert on_8.safe
    assert on_8.reserved_bytes.mid == pytest.approx(48e9, rel=0.25)
    assert tight.device_bytes.high > 0.7 * tight.usable_bytes
    assert on_16.device_bytes.mid < 0.8 * tight.device_bytes.mid
    assert kept_out.fits
    assert kept_out.host_bytes == pytest.approx(240e9, rel=0.35)


def test_oom_litllama_full_7b_8xa100():
    """Runs on 4 and 8 of 40 GB went out of memory at micro-batch 1; with offload they run."""
    asked = {"framework": "lit-llama", "layout": FSDP8}
    assert not estimate("llama2-7b", "A100-SXM-40GB", 8, **asked).memory.safe
    assert not estimate("llama2-7b", "A100-SXM-40GB", 4, framework="lit-llama", layout=FSDP4).memory.fits
    assert estimate("llama2-7b", "A100-SXM-40GB", 8, offload="params+optimizer", **asked).memory.safe


def test_torchtune_lora_dist_slower():
    """Sharding a model that fits on one card only adds communication."""
    asked = {"kind": "lora", "framework": "torchtune", "micro_batch": 2}
    plain = estimate(3.8e9, "RTX-4090-24GB", 4, layout=DDP4, **asked)
    sharded = estimate(3.8e9, "RTX-4090-24GB", 4, layout=FSDP4, **asked)
    assert plain.memory.safe
    assert plain.speed.step_s.mid < sharded.speed.step_s.mid
    assert plain.speed.limiting_link_share < sharded.speed.limiting_link_share


def test_seq_14k_limit_gemma3_12b_h100():
    """14,000 tokens fit, 15,000 do not: logits of 262,144 words are what grows."""
    asked = {"kind": "lora", "lora": {"rank": 16, "base_bits": 8}, "loss": "plain"}
    fits = {
        length: estimate("gemma-3-12b", "H100-SXM-80GB", seq_len=length, **asked).memory
        for length in (6_000, 14_000, 28_000)
    }
    assert fits[6_000].safe
    assert fits[14_000].fits
    assert not fits[28_000].fits
    parts = dict(fits[28_000].parts_bytes)
    assert max(parts, key=parts.__getitem__) == "logits"


def test_oom_qwen2_7b_10k_8x4090():
    """More of the same cards do not help plain data parallel; 4-bit weights and a fused loss do."""
    asked = {"seq_len": 10_000, "layout": DDP8, "framework": "LLaMA-Factory"}
    assert not estimate("qwen2-7b", "RTX-4090-24GB", 8, kind="lora", **asked).memory.fits
    helped = estimate("qwen2-7b", "RTX-4090-24GB", 8, kind="qlora", loss="fused-linear", **asked).memory
    assert helped.safe


def test_oom_t4_llama2_4x():
    """An 8-bit base that is not sharded does not fit; a single T4 with 4 bit and short sequences does."""
    asked = {"precision": "fp16-mixed"}
    eight = estimate(
        "llama2-7b", "T4-16GB", 4, kind="lora", lora={"rank": 8, "base_bits": 8}, layout=DDP4,
        recompute="none", **asked,
    )  # fmt: skip
    assert not eight.memory.fits
    assert estimate("llama2-7b", "T4-16GB", kind="qlora", seq_len=512, **asked).memory.safe
    assert 14.4 * GIB < gpu("T4").usable_memory_bytes < 14.8 * GIB


def test_oom_after_steps_13b_qlora_24gb():
    """Samples near 4,096 tokens break what 512 tokens fit in: memory is that of the longest sequence."""
    assert estimate(13.02e9, "RTX-3090-24GB", kind="qlora", seq_len=512).memory.safe
    assert not estimate(13.02e9, "RTX-3090-24GB", kind="qlora", seq_len=4096).memory.safe


@pytest.mark.parametrize(
    ("kind", "model", "gpus", "ran"),
    [
        ("full-finetune", "llama2-7b", 4, False),
        ("full-finetune", "llama3-8b", 4, False),
        ("full-finetune", "llama3.1-8b", 4, False),
        ("lora", "gemma-7b", 1, False),
        ("lora", "gemma-2-9b", 1, False),
        ("lora", "llama3-8b", 1, True),
        ("qlora", "gemma-7b", 1, True),
        ("qlora", "gemma-2-9b", 1, True),
        ("lora", "phi-2", 1, True),
    ],
)
def test_llama3_8b_full_a10g(kind: str, model: str, gpus: int, ran: bool):
    """The recipes of litgpt on a 24 GB A10G: which ran."""
    asked: dict[str, Any] = {"framework": "litgpt", "precision": "bf16-pure", "seq_len": 512}
    asked |= {"layout": FSDP4, "micro_batch": 4} if gpus > 1 else {"recompute": None}
    assert estimate(model, "A10G-24GB", gpus, kind=kind, **asked).memory.safe is ran


def test_grad_accum_confusion_560ms():
    """560 ms an iteration of 5 micro-batches is normal: tokens a second say so."""
    asked = {"kind": "pretrain", "seq_len": 1024, "micro_batch": 12, "layout": DDP8, "recompute": "none"}
    one, five = (
        estimate("gpt2", "A100-SXM-40GB", 8, framework="nanoGPT", compile=True, grad_accum=n, **asked).speed
        for n in (1, 5)
    )
    assert five.step_s.mid == pytest.approx(0.56, rel=0.35)
    assert five.tokens_per_s_per_gpu.mid == pytest.approx(one.tokens_per_s_per_gpu.mid, rel=0.25)


def test_gpt_neo_1_dot_3b_16gb():
    """16 bytes a parameter do not fit for 1.3B, whatever the batch; 125M does at a small one."""
    asked = {"precision": "fp16-mixed", "seq_len": 512}
    assert not estimate(1.3e9, "P100-PCIE-16GB", **asked).memory.fits
    assert estimate(1.25e8, "P100-PCIE-16GB", **asked).memory.safe


def test_v100_bf16_error():
    """bf16 on Volta is refused with what to use instead."""
    with pytest.raises(UserError, match="bf16 needs Ampere") as error:
        estimate("llama2-13b", "V100-SXM-32GB", 8, micro_batch=2)
    assert "fp16" in error.value.hint


def test_ds_zero3_13b_fp32_8x48():
    """States alone are 26 GB a GPU; more comes on top, and loading wants more than 150 GB of host memory."""
    found = estimate(
        13e9, "A6000-48GB", 8, precision="fp32", layout=FSDP8, framework="DeepSpeed", seq_len=512
    )
    assert found.memory.device_bytes.mid > 1.25 * 26e9
    assert found.memory.host_bytes > 150e9
    assert any("host memory" in said for said in found.warnings)


def test_lora_no_faster():
    """LoRA took 29 h, full fine-tuning 30.5 h: memory is saved, not time."""
    asked = {"seq_len": 512, "micro_batch": 16, "precision": "fp16-mixed", "recompute": "none"}
    lora, full = (
        estimate("roberta-base", "V100-SXM-16GB", kind=kind, **asked).speed.step_s.mid
        for kind in ("lora", "full-finetune")
    )
    assert 0.6 < lora / full <= 1.0


def test_70b_qlora_time_1xa100():
    """13B on 4 cards took 1.45 times as long as 7B. Hours of the 70B run need its tokens: not said."""
    asked = {"grad_accum": 2, "precision": "bf16-pure", "layout": FSDP4, "micro_batch": 4}
    small, large = (
        estimate(name, "A100-SXM-80GB", 4, **asked).speed.tokens_per_s_per_gpu.mid
        for name in ("llama2-7b", "llama2-13b")
    )
    assert 1.45 / 2 < small / large < 1.45 * 2
    assert estimate("llama2-70b", "A100-SXM-80GB", kind="qlora").memory.safe
