"""Allocated bytes of real steps, traced on fake CUDA tensors, against the closed form.

Traces: torch 2.13.0, transformers 5.24.0, peft 0.21.2; steady state from the second optimizer step on. A
trace sees what torch hands out, not what the allocator reserves, and nothing was measured on hardware.
"""

from __future__ import annotations

from typing import Any

import pytest

from planner.types import Layout, LoraSpec, ModelSpec
from tests.planner.memory_tools import GIB, a_training, memory_of

WITHIN = 0.02


def _llama(
    layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int, tied: bool = False
) -> ModelSpec:
    return ModelSpec(
        name="traced",
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv,
        head_dim=hidden // heads,
        ffn_size=ffn,
        vocab_size=vocab,
        tied_embeddings=tied,
    )


def _gpt2(layers: int, hidden: int, heads: int, vocab: int, **changed: Any) -> ModelSpec:
    plain: dict[str, Any] = {
        "name": "traced",
        "num_layers": layers,
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": hidden // heads,
        "ffn_size": 4 * hidden,
        "vocab_size": vocab,
        "tied_embeddings": True,
        "norm": "layer",
        "gated_ffn": False,
        "positional": "learned",
        "max_position": 1024,
    }
    return ModelSpec(**{**plain, **changed})


TINY = _llama(22, 2048, 32, 4, 5632, 32000)
TINY_SMALL_VOCAB = _llama(22, 2048, 32, 4, 5632, 1024)
LLAMA_1B = _llama(16, 2048, 32, 8, 8192, 128256, tied=True)
LLAMA_1B_OWN_HEAD = _llama(16, 2048, 32, 8, 8192, 128256)
LLAMA_8B = _llama(32, 4096, 32, 8, 14336, 128256)
GPT2 = _gpt2(12, 768, 12, 50304)
GPT2_SMALL_VOCAB = _gpt2(12, 768, 12, 1024)
GPT2_XL = _gpt2(48, 1600, 25, 50304)
GPT2_HF = _gpt2(12, 768, 12, 50257, bias="all")
BERT = _gpt2(24, 1024, 16, 30522, bias="all", kind="encoder", max_position=512, mlm_head=True)

HF, NANO, TITAN = "trace hf", "nanogpt", "torchtitan 2024-12"
# name, traced GiB, model, batch, sequence, precision, recompute, optimizer, framework, layout
FULL: list[tuple[str, float, ModelSpec, int, int, str, str, str, str, dict[str, Any]]] = [
    ("1.1B bf16", 24.32, TINY, 4, 2048, "bf16-pure", "none", "fused", HF, {}),
    ("1.1B bf16 recompute", 10.38, TINY, 4, 2048, "bf16-pure", "full", "fused", HF, {}),
    ("1.1B amp", 35.87, TINY, 4, 2048, "bf16", "none", "fused", HF, {}),
    ("1.1B amp recompute foreach", 20.49, TINY, 4, 2048, "bf16", "full", "foreach", HF, {}),
    ("1.1B fp32", 45.29, TINY, 4, 2048, "fp32", "none", "fused", HF, {}),
    ("1.1B amp recompute", 16.53, TINY, 1, 2048, "bf16", "full", "fused", HF, {}),
    ("1B bf16", 34.00, LLAMA_1B, 2, 4096, "bf16-pure", "none", "fused", HF, {}),
    ("1B amp recompute", 29.16, LLAMA_1B, 2, 4096, "bf16", "full", "fused", HF, {}),
    ("1B amp accumulating", 28.12, LLAMA_1B, 1, 2048, "bf16", "none", "fused", HF, {"grad_accum": 2}),
    ("124M nanoGPT amp", 12.39, GPT2, 12, 1024, "bf16", "none", "fused", NANO, {}),
    ("124M nanoGPT bf16", 22.10, GPT2, 32, 1024, "bf16-pure", "none", "fused", NANO, {}),
    ("1.5B nanoGPT amp", 32.83, GPT2_XL, 4, 1024, "bf16", "none", "fused", NANO, {}),
    ("BERT large amp", 15.17, BERT, 16, 512, "bf16", "none", "fused", "trace bert", {}),
    ("124M HF amp", 12.94, GPT2_HF, 8, 1024, "bf16", "none", "fused", "trace gpt2", {}),
    ("small vocabulary", 11.75, TINY_SMALL_VOCAB, 16, 2048, "bf16-pure", "full", "fused", HF, {}),
    ("small vocabulary, nanoGPT", 4.00, GPT2_SMALL_VOCAB, 12, 1024, "bf16-pure", "none", "fused", NANO, {}),
    ("DDP", 22.36, TINY, 4, 2048, "bf16", "full", "fused", HF, {"dp": 2}),
    ("DDP bucket views", 18.57, TINY, 1, 512, "bf16", "full", "fused", "trace views", {"dp": 2}),
    ("8B FSDP2 op", 68.63, LLAMA_8B, 2, 8192, "bf16", "selective", "foreach", TITAN, {"dp": 8}),
    ("8B FSDP2 none", 141.64, LLAMA_8B, 2, 8192, "bf16", "none", "foreach", TITAN, {"dp": 8}),
    ("8B FSDP2 full", 41.57, LLAMA_8B, 2, 8192, "bf16", "full", "foreach", TITAN, {"dp": 8}),
    ("8B FSDP2 op, 128 GPUs", 58.12, LLAMA_8B, 2, 8192, "bf16", "selective", "foreach", TITAN, {"dp": 128}),
    ("8B FSDP2 short", 7.68, LLAMA_8B, 1, 512, "bf16", "full", "foreach", TITAN, {"dp": 64}),
    ("8B FSDP2 one sequence", 17.8, LLAMA_8B, 1, 8192, "bf16", "full", "foreach", TITAN, {"dp": 64}),
    ("1B FSDP2", 13.96, LLAMA_1B_OWN_HEAD, 1, 1024, "bf16", "none", "foreach", TITAN, {"dp": 2}),
]

R16 = LoraSpec(rank=16)
NF4 = LoraSpec(rank=16, base_bits=4, quant="nf4-dq")
# name, traced GiB, adapters, precision, recompute, framework; 1B, batch 4 x 1024
ADAPTERS: list[tuple[str, float, LoraSpec, str, str, str]] = [
    ("autocast", 15.47, R16, "bf16", "none", "trace lora"),
    ("dropout", 16.69, LoraSpec(rank=16, dropout=0.05), "bf16", "none", "trace lora"),
    ("fp32 adapters without autocast", 17.96, R16, "bf16-pure", "none", "trace lora"),
    ("bf16 adapters", 14.38, LoraSpec(rank=16, adapter_bits=16), "bf16-pure", "none", "trace lora"),
    ("q and v only", 13.33, LoraSpec(rank=16, targets="q,v"), "bf16", "none", "trace lora"),
    ("recompute", 8.58, R16, "bf16", "full", "trace lora"),
    ("nf4, k-bit preparation", 15.10, NF4, "bf16", "none", "trace kbit"),
    ("nf4, k-bit preparation, recompute", 8.47, NF4, "bf16", "full", "trace kbit"),
    ("nf4, rest bf16, recompute", 7.24, NF4, "bf16", "full", "trace lora"),
]


@pytest.mark.parametrize("case", FULL, ids=[case[0] for case in FULL])
def test_closed_form_equals_the_trace(case: tuple[Any, ...]) -> None:
    _, traced_gib, model, batch, seq_len, precision, recompute, impl, framework, given = case
    training = a_training(
        method="full", precision=precision, seq_len=seq_len, framework=framework, optimizer_impl=impl
    )
    stage = 3 if framework == TITAN else 0
    layout = Layout(micro_batch=batch, recompute=recompute, zero_stage=stage, **given)
    found = float(memory_of(model, training, layout).allocated) / GIB
    assert found == pytest.approx(traced_gib, rel=WITHIN)


@pytest.mark.parametrize("case", ADAPTERS, ids=[case[0] for case in ADAPTERS])
def test_adapters_equal_the_trace(case: tuple[Any, ...]) -> None:
    _, traced_gib, lora, precision, recompute, framework = case
    method = "qlora" if lora.base_bits == 4 else "lora"
    training = a_training(
        method=method,
        precision=precision,
        seq_len=1024,
        framework=framework,
        optimizer_impl="fused",
        lora=lora,
    )
    layout = Layout(micro_batch=4, recompute=recompute)
    found = float(memory_of(LLAMA_1B, training, layout).allocated) / GIB
    assert found == pytest.approx(traced_gib, rel=WITHIN)
