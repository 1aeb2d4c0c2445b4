"""What must hold for the seconds of a step whatever the efficiencies are, and a few magnitudes."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.columns import SpeedColumns
from planner.hardware.gpus import gpu
from planner.hardware.links import links_for, machine_columns
from planner.layouts import layout_columns
from planner.model import model_columns
from planner.speed import estimate
from planner.training.execution import execution_columns
from planner.training.numerics import training_columns
from planner.types import Layout, LoraSpec, ModelSpec, Moe, Shape, TrainingSpec

PARTS = ("matmul", "attention", "memory_bound", "exposed_communication", "bubble", "optimizer", "overhead")
AXES = ("dp_s", "tp_s", "pp_s", "cp_s", "ep_s", "offload_s")
FAST = "NVLink + 8x400 Gb/s InfiniBand"

LLAMA_8B = ModelSpec(
    name="llama-8b", num_layers=32, hidden_size=4096, num_heads=32, num_kv_heads=8, head_dim=128,
    ffn_size=14336, vocab_size=128256,
)  # fmt: skip
GPT2 = ModelSpec(
    name="gpt2", num_layers=12, hidden_size=768, num_heads=12, num_kv_heads=12, head_dim=64, ffn_size=3072,
    gated_ffn=False, vocab_size=50304, tied_embeddings=True, norm="layer", bias="all", positional="learned",
    max_position=1024,
)  # fmt: skip
MIXTRAL = LLAMA_8B.model_copy(
    update={
        "name": "mixtral",
        "moe": Moe(num_experts=8, experts_per_token=2, expert_ffn_size=14336),
    }
)


def shape(card: str, gpus: int, per_node: int = 8, interconnect: str = FAST) -> Shape:
    per_node = min(per_node, gpus)
    nodes = gpus // per_node
    return Shape(
        gpu=card,
        gpus_per_node=per_node,
        num_nodes=nodes,
        links=links_for(gpu(card), per_node, interconnect, num_nodes=nodes),
    )


def speed(
    model: ModelSpec = LLAMA_8B,
    layout: Layout | None = None,
    card: str = "H100-SXM5-80GB",
    interconnect: str = FAST,
    **training,
) -> SpeedColumns:
    layout = layout or Layout(dp=8, zero_stage=3)
    spec = TrainingSpec(**{"seq_len": 4096, **training})
    machine = shape(card, layout.dp * layout.tp * layout.pp * layout.cp, interconnect=interconnect)
    return estimate(
        model_columns([model]),
        training_columns([spec]),
        execution_columns([spec]),
        layout_columns([layout]),
        machine_columns([machine], [spec.precision]),
    )


def tokens_per_s(found: SpeedColumns, gpus: int) -> float:
    return float(found.tokens_per_step / found.step_s / gpus)


@st.composite
def runs(draw) -> tuple[ModelSpec, Layout, str, dict]:
    """A run of any kind: model, layout, GPU, training."""
    model = draw(st.sampled_from([LLAMA_8B, GPT2, MIXTRAL]))
    tp = draw(st.sampled_from([1, 2, 4]))
    dp, pp = draw(st.sampled_from([1, 2, 8])), draw(st.sampled_from([1, 2, 4]))
    cp = draw(st.sampled_from([1, 2]))
    ep = draw(st.sampled_from([1, 2])) if model.moe and dp > 1 else 1
    layout = Layout(
        dp=dp, tp=tp, pp=pp, cp=cp, ep=ep,
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])),
        sequence_parallel=draw(st.booleans()),
        interleave=draw(st.sampled_from([1, 2])) if pp > 1 else 1,
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        micro_batch=draw(st.integers(1, 16)),
        grad_accum=draw(st.integers(1, 64)),
        offload=draw(st.sampled_from(["none", "optimizer", "params+optimizer", "activations"])),
    )  # fmt: skip
    method = draw(st.sampled_from(["pretrain", "full", "lora", "qlora"]))
    training = {
        "method": method,
        "seq_len": draw(st.sampled_from([128, 1024, 8192])),
        "precision": draw(st.sampled_from(["fp32", "tf32", "bf16", "bf16-pure", "fp16", "fp8"])),
        "attention": draw(st.sampled_from([None, "flash", "sdpa", "eager"])),
        "compile": draw(st.sampled_from([None, True, False])),
        "framework": draw(st.sampled_from(["plan", "HF Trainer", "Megatron-LM", "torchtitan", "unknown"])),
        "frozen_layers": draw(st.sampled_from([0, 4])),
        "lora": LoraSpec(rank=8, base_bits=4 if method == "qlora" else 16) if "lora" in method else None,
    }
    return model, layout, draw(st.sampled_from(["H100-SXM5-80GB", "L40S", "B200-SXM-180GB"])), training


@given(runs())
def test_parts_are_seconds_and_add_up_to_the_step(run):
    model, layout, card, training = run
    found = speed(model, layout, card, **training)
    for field in fields(SpeedColumns):
        value = float(getattr(found, field.name))
        assert np.isfinite(value), field.name
        assert value >= 0, field.name
    assert found.step_s > 0
    assert sum(float(getattr(found, part)) for part in PARTS) == pytest.approx(float(found.step_s))
    assert sum(float(getattr(found, axis)) for axis in AXES) == pytest.approx(
        float(found.exposed_communication), abs=1e-12
    )


@given(runs(), st.sampled_from(["micro_batch", "grad_accum", "seq_len"]))
def test_more_tokens_never_take_less_time(run, what):
    model, layout, card, training = run
    before = speed(model, layout, card, **training)
    if what == "seq_len":
        after = speed(model, layout, card, **{**training, "seq_len": 2 * training["seq_len"]})
    else:
        more = layout.model_copy(update={what: 2 * getattr(layout, what)})
        after = speed(model, more, card, **training)
    assert after.step_s >= before.step_s * (1 - 1e-9)


@given(runs())
def test_a_faster_network_never_slows_a_step(run):
    model, layout, card, training = run
    slow = speed(model, layout, card, interconnect="NVLink + 100 Gb/s RoCE", **training)
    fast = speed(model, layout, card, interconnect="NVLink + 400 Gb/s RoCE", **training)
    assert fast.step_s <= slow.step_s * (1 + 1e-9)


@given(runs())
def test_full_recompute_costs_up_to_two_fifths_of_the_compute(run):
    model, layout, card, training = run
    if training["method"] in ("lora", "qlora") or training["frozen_layers"]:
        return
    work = {
        recompute: sum(
            float(
                getattr(
                    speed(model, layout.model_copy(update={"recompute": recompute}), card, **training), part
                )
            )
            for part in ("matmul", "attention", "memory_bound")
        )
        for recompute in ("none", "full")
    }
    assert 1.0 < work["full"] / work["none"] < 1.5


@given(runs())
def test_hardware_does_at_least_the_flops_of_the_model(run):
    model, layout, card, training = run
    found = speed(model, layout, card, **training)
    assert found.hardware_flops >= found.model_flops > 0


@given(st.lists(runs(), min_size=2, max_size=5))
def test_many_runs_at_once_take_what_each_takes_alone(several):
    specs = [TrainingSpec(**training) for _, _, _, training in several]
    machines = [shape(card, layout.dp * layout.tp * layout.pp * layout.cp) for _, layout, card, _ in several]
    together = estimate(
        model_columns([model for model, _, _, _ in several]),
        training_columns(specs),
        execution_columns(specs),
        layout_columns([layout for _, layout, _, _ in several]),
        machine_columns(machines, [spec.precision for spec in specs]),
    )
    alone = [float(speed(m, layout, card, **training).step_s) for m, layout, card, training in several]
    assert together.step_s == pytest.approx(alone)


def test_fp8_multiplies_take_less_time_than_bf16():
    half, eighth = speed(precision="bf16"), speed(precision="fp8")
    assert eighth.matmul < 0.75 * half.matmul
    assert eighth.attention == pytest.approx(float(half.attention))
    assert eighth.step_s < half.step_s


def test_tf32_is_between_fp32_and_bf16():
    seconds = [float(speed(precision=p, card="A100-SXM4-80GB").step_s) for p in ("bf16", "tf32", "fp32")]
    assert seconds == sorted(seconds)


def test_eager_attention_is_slower_than_flash_and_grows_with_the_square_of_the_sequence():
    assert speed(attention="eager").attention > 3 * speed(attention="flash").attention
    short, long = speed(attention="eager", seq_len=2048), speed(attention="eager", seq_len=8192)
    assert 14 < long.attention / short.attention < 18


def test_a_sliding_window_saves_attention():
    window = LLAMA_8B.model_copy(update={"sliding_window": 1024})
    assert speed(window, seq_len=32768).attention < 0.3 * speed(seq_len=32768).attention


def test_more_micro_batches_shrink_the_bubble_and_interleaving_shrinks_it_again():
    def bubble_share(accum: int, interleave: int) -> float:
        layout = Layout(dp=1, tp=1, pp=8, grad_accum=accum, interleave=interleave)
        found = speed(layout=layout, framework="Megatron-LM")
        return float(found.bubble / found.step_s)

    assert bubble_share(8, 1) > bubble_share(32, 1) > bubble_share(32, 2)
    assert bubble_share(8, 1) == pytest.approx(7 / 15, abs=0.1)


def test_stages_that_do_not_divide_evenly_wait_for_the_fullest():
    even = LLAMA_8B.model_copy(update={"vocab_size": 1024})
    uneven = even.model_copy(update={"num_layers": 33})
    layout = Layout(pp=4, grad_accum=64)
    assert speed(uneven, layout).bubble > 1.5 * speed(even, layout).bubble


def test_lora_skips_the_weight_gradients_of_the_frozen_base():
    full = speed(layout=Layout(dp=1), method="full")
    lora = speed(layout=Layout(dp=1), method="lora", lora=LoraSpec(rank=16))
    assert 0.6 < lora.matmul / full.matmul < 0.8
    assert lora.model_flops == pytest.approx(float(full.model_flops) * 4 / 6, rel=0.05)
    assert lora.optimizer < 0.1 * full.optimizer


def test_qlora_is_slower_than_lora_by_the_time_to_unpack():
    lora = speed(layout=Layout(dp=1), method="lora", lora=LoraSpec(rank=16))
    qlora = speed(layout=Layout(dp=1), method="qlora", lora=LoraSpec(rank=16, base_bits=4))
    assert 1.0 < qlora.step_s / lora.step_s < 2.0
    assert qlora.memory_bound > lora.memory_bound


def test_an_adapter_on_the_head_takes_time_and_is_enough_to_train():
    attention, with_head, head = (
        speed(layout=Layout(dp=2), method="lora", lora=LoraSpec(targets=targets))
        for targets in ("q,v", "q,v,head", "head")
    )
    assert with_head.matmul > attention.matmul
    assert np.isfinite(head.step_s)


def test_frozen_layers_take_less_time():
    assert speed(frozen_layers=16).step_s < speed().step_s


def test_splitting_over_tensor_parallel_ranks_is_less_efficient_per_flop():
    alone, split = speed(layout=Layout(tp=1)), speed(layout=Layout(tp=8))
    assert alone.matmul / 8 < split.matmul < alone.matmul
    assert split.tp_s > 0
    assert speed(layout=Layout(tp=8, tp_overlap=True)).tp_s < split.tp_s


def test_experts_with_few_tokens_are_less_efficient():
    many = speed(MIXTRAL, Layout(micro_batch=8))
    few = speed(MIXTRAL, Layout(micro_batch=8), seq_len=128)
    assert few.matmul / few.model_flops > 1.2 * many.matmul / many.model_flops


def test_expert_parallel_exchanges_tokens():
    found = speed(MIXTRAL, Layout(dp=8, ep=8))
    assert found.ep_s > 0
    assert speed(MIXTRAL, Layout(dp=8, ep=8, dispatcher="deepep")).ep_s < found.ep_s
    assert speed(MIXTRAL, Layout(dp=8, ep=8, a2a_overlap=True)).ep_s < found.ep_s


def test_context_parallel_exchanges_keys_and_values():
    assert speed(layout=Layout(cp=4), seq_len=1024).cp_s > 0


def test_sharding_the_optimizer_saves_its_time():
    assert speed(layout=Layout(dp=8, zero_stage=1)).optimizer < 0.2 * speed(layout=Layout(dp=8)).optimizer


def test_an_offloaded_optimizer_costs_transfers_and_cpu_time():
    plain, offloaded = (
        speed(layout=Layout(dp=8, zero_stage=2, offload=offload)) for offload in ("none", "optimizer")
    )
    assert plain.offload_s == 0
    assert offloaded.offload_s > plain.optimizer
    assert offloaded.optimizer == 0


def test_offloaded_activations_show_only_where_compute_does_not_hide_them():
    layout = Layout(activation_offload=True)
    assert speed(layout=layout.model_copy(update={"recompute": "full"}), seq_len=8192).offload_s == 0
    assert speed(layout=layout, seq_len=2048).offload_s > 0


def test_muon_pays_for_its_matrix_multiplies():
    assert speed(GPT2, Layout(), optimizer="muon").optimizer > speed(GPT2, Layout()).optimizer


def test_slow_ethernet_dominates_data_parallel_over_nodes():
    found = speed(layout=Layout(dp=16, zero_stage=3), interconnect="NVLink + 10 Gb/s Ethernet")
    assert found.dp_s > 0.8 * found.step_s


def test_a_small_model_at_a_small_batch_waits_for_launches():
    small = speed(GPT2, Layout(dp=1), seq_len=128, framework="HF Trainer")
    large = speed(GPT2, Layout(dp=1, micro_batch=64), seq_len=1024, framework="HF Trainer")
    assert small.overhead / small.step_s > 0.3
    assert large.overhead / large.step_s < 0.25


def test_widths_that_do_not_fill_tiles_are_slow():
    odd = GPT2.model_copy(update={"vocab_size": 50257})
    layout = Layout(dp=1, micro_batch=32)
    assert speed(odd, layout, seq_len=1024).matmul > 1.15 * speed(GPT2, layout, seq_len=1024).matmul


@pytest.mark.parametrize(
    ("model", "card", "layout", "training", "low", "high"),
    [
        (LLAMA_8B, "H100-SXM5-80GB", Layout(dp=8, zero_stage=3, micro_batch=2, recompute="selective"),
         {"seq_len": 8192, "compile": True, "framework": "torchtitan 2025-06"}, 5500, 9000),
        (GPT2, "A100-SXM4-80GB", Layout(dp=8, micro_batch=64),
         {"seq_len": 1024, "compile": True}, 140_000, 260_000),
        (LLAMA_8B, "RTX 4090", Layout(micro_batch=1, recompute="full"),
         {"seq_len": 2048, "method": "qlora", "lora": LoraSpec(base_bits=4), "framework": "HF"}, 1200, 3500),
    ],
    ids=["8B on eight H100", "124M on eight A100", "8B QLoRA on one RTX 4090"],
)  # fmt: skip
def test_throughput_has_the_magnitude_that_people_report(model, card, layout, training, low, high):
    found = speed(model, layout, card, **training)
    assert low < tokens_per_s(found, layout.dp) < high


# ------------------------------------------------------------------------------- pipelines between nodes


def test_a_pipeline_over_several_nodes_waits_for_the_slowest_boundary():
    layout = Layout(dp=4, pp=4, micro_batch=1, grad_accum=64)
    waits = [
        float(speed(layout=layout, interconnect=f"NVLink + {rate} Gbit/s Ethernet").pp_s)
        for rate in (1, 10, 25, 50)
    ]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > 5 * waits[1]


def test_a_pipeline_inside_a_node_sends_nothing_over_the_network():
    layout = Layout(dp=2, pp=4, micro_batch=1, grad_accum=64)
    slow, fast = (speed(layout=layout, interconnect=f"NVLink + {rate} Gbit/s Ethernet") for rate in (1, 50))
    assert slow.pp_s == fast.pp_s
