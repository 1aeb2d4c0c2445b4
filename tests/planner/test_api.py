"""The public functions: suggest and estimate agree, and missing parts are chosen as suggest would."""

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.api import estimate, estimate_each, suggest, what_if
from planner.errors import UserError
from planner.model.presets import preset
from planner.model.shapes import shape_for
from planner.results import Candidate, Estimate
from planner.runs import RunRequest, parse_line, parse_run, pins_of
from planner.types import Goal, LayoutPins, LoraSpec, Offer, Run, TrainingSpec

ONE_B = shape_for(1e9)


def request_of(candidate: Candidate) -> RunRequest:
    run = candidate.run
    return RunRequest(
        id=candidate.id,
        model=run.model,
        training=run.training,
        layout=run.layout,
        pins=pins_of(run.layout),
        gpu=run.shape.gpu,
        num_gpus=run.shape.gpus_per_node * run.shape.num_nodes,
        gpus_per_node=run.shape.gpus_per_node,
        interconnect=None,
        shape=run.shape,
    )


def a_line(**changed: Any) -> RunRequest:
    plain = {
        "id": "run",
        "kind": "pretrain",
        "model": {"params": 1e9},
        "gpu": "H100-SXM5-80GB",
        "gpus": 8,
        "gpus_per_node": 8,
        "interconnect": "NVLink",
        "seq_len": 2048,
        "precision": "bf16-mixed",
        "optimizer": "adamw",
        "framework": "torchtitan",
    }
    return parse_run({**plain, **changed})


def test_a_suggested_candidate_is_estimated_with_the_same_figures(offers: tuple[Offer, ...]) -> None:
    found = suggest(ONE_B, TrainingSpec(seq_len=2048), Goal(), offers, top=10)
    assert len(found.candidates) > 5
    again = estimate([request_of(c) for c in found.candidates])
    for candidate, answer in zip(found.candidates, again, strict=True):
        assert answer.memory is not None
        assert answer.speed is not None
        assert answer.memory.device_bytes.mid == pytest.approx(candidate.memory.device_bytes.mid, rel=1e-12)
        assert answer.speed.step_s.mid == pytest.approx(candidate.speed.step_s.mid, rel=1e-12)
        assert answer.memory.safe == candidate.memory.safe


def test_one_run_alone_and_in_a_batch_have_the_same_figures() -> None:
    requests = [
        a_line(),
        a_line(model={"name": "llama-3-8b"}, gpus=64),
        a_line(kind="lora", lora={"rank": 8}, gpus=1, gpus_per_node=1),
    ]
    together = estimate(requests)
    for request, answer in zip(requests, together, strict=True):
        alone = estimate([request])[0]
        assert figures(alone) == pytest.approx(figures(answer), rel=1e-9)


def figures(answer: Estimate) -> list[float]:
    assert answer.memory is not None
    assert answer.speed is not None
    return [answer.memory.device_bytes.mid, answer.memory.allocated_bytes.mid, answer.speed.step_s.mid]


def test_missing_parts_are_chosen_safe_and_said() -> None:
    answer = estimate([a_line(framework="transformers")])[0]
    assert answer.memory is not None
    assert answer.memory.safe
    layout = answer.run.layout
    assert layout.dp * layout.tp * layout.pp * layout.cp == 8
    assert any("safe layout was chosen" in w for w in answer.warnings)
    assert any("global batch" in w for w in answer.warnings)


def test_degrees_that_are_given_stay() -> None:
    answer = estimate([a_line(layout={"tp": 2, "sharding": "zero3"}, micro_batch=2, global_batch=64)])[0]
    layout = answer.run.layout
    assert (layout.tp, layout.dp, layout.zero_stage, layout.micro_batch) == (2, 4, 3, 2)
    assert layout.dp * layout.micro_batch * layout.grad_accum == 64


def test_a_run_that_fits_nowhere_is_estimated_and_called_unfit() -> None:
    answer = estimate([a_line(model={"params": 7e10}, gpus=1, gpus_per_node=1, offload="none")])[0]
    assert answer.memory is not None
    assert answer.memory.fits is False
    assert any("no layout fits" in w for w in answer.warnings)


def test_one_bad_run_never_stops_the_others() -> None:
    bad = a_line(gpu="T4", gpus=1, gpus_per_node=1)
    worse = a_line(layout={"tp": 3, "dp": 1, "pp": 1, "cp": 1}, gpus=3, gpus_per_node=3)
    good = a_line()
    answers = estimate_each([bad, good, worse])
    assert [isinstance(a, UserError) for a in answers] == [True, False, True]
    assert "bf16" in str(answers[0])
    assert "attention heads" in str(answers[2])
    with pytest.raises(UserError, match="bf16"):
        estimate([good, bad])


def test_tokens_add_a_whole_run_and_a_price_its_cost() -> None:
    without, with_tokens, priced = estimate(
        [a_line(), a_line(tokens=2e10), a_line(tokens=2e10, usd_per_gpu_hour=2.5)]
    )
    assert without.whole is None
    assert with_tokens.whole is not None
    assert with_tokens.whole.cost_usd is None
    assert priced.whole is not None
    assert priced.whole.cost_usd is not None
    assert priced.whole.gpu_hours.mid == pytest.approx(8 * priced.whole.hours.mid)
    assert priced.whole.cost_usd.mid == pytest.approx(2.5 * priced.whole.gpu_hours.mid)


def test_an_unknown_link_is_said() -> None:
    answer = estimate([a_line(gpus=16, interconnect=None)])[0]
    assert any("not stated" in w for w in answer.warnings)


def test_a_run_that_its_host_cannot_hold_says_so_and_names_one_that_it_can() -> None:
    held = {
        "layout": {"dp": 8, "sharding": "zero3"},
        "micro_batch": 1,
        "global_batch": 8,
        "recompute": "full",
    }
    line = a_line(model={"name": "llama-3-8b"}, offload="params+optimizer", **held)
    run = estimate([line])[0].run
    for host_gib, says in ((32, "would not"), (4096, "")):
        shape = run.shape.model_copy(update={"host_memory_bytes": host_gib * 2**30})
        request = RunRequest(
            id="x", model=run.model, training=run.training, layout=run.layout, pins=pins_of(run.layout),
            gpu=shape.gpu, num_gpus=8, gpus_per_node=8, interconnect=None, shape=shape,
        )  # fmt: skip
        said = " ".join(w for w in estimate([request])[0].warnings if "host memory" in w)
        assert (says in said) if says else not said


def a_run() -> Run:
    return estimate([a_line()])[0].run


def test_what_if_names_changes_and_their_effect() -> None:
    base = estimate([a_line(micro_batch=2, global_batch=128, recompute="none", layout={"dp": 8})])[0]
    found = {o.name: o for o in what_if(base.run)}
    assert base.memory is not None
    for name in ("recompute full", "8-bit optimizer states", "all in bf16"):
        changed = found[name].estimate.memory
        assert changed is not None
        assert changed.device_bytes.mid < base.memory.device_bytes.mid, name
    larger = found["mbs 4 (acc 4)"].estimate.memory
    assert larger is not None
    assert larger.device_bytes.mid > base.memory.device_bytes.mid
    assert found["8-bit optimizer states"].note


def test_the_answer_is_json() -> None:
    json.loads(estimate([a_line()])[0].model_dump_json())


def test_lora_and_qlora_are_searched(offers: tuple[Offer, ...]) -> None:
    for method, bits in (("lora", 16), ("qlora", 4)):
        how = TrainingSpec(method=method, seq_len=1024, num_tokens=1e7, lora=LoraSpec(base_bits=bits))  # type: ignore[arg-type]
        found = suggest(preset("llama-3-8b"), how, Goal(max_gpus=8), offers, pins=LayoutPins())
        assert found.candidates[0].verdict == "ok"


@given(
    model=st.sampled_from(
        [{"params": 1e8}, {"name": "llama-3-8b"}, {"name": "mixtral-8x7b"}, {"name": "bert-base"}]
    ),
    gpu=st.sampled_from(["H100-SXM5-80GB", "A100-SXM4-40GB", "RTX 4090", "T4", "MI300X"]),
    gpus=st.sampled_from([1, 2, 3, 8, 16, 48, 512]),
    kind=st.sampled_from(["pretrain", "full", "lora", "qlora"]),
    precision=st.sampled_from(["fp32", "bf16-mixed", "fp16-mixed", "fp8"]),
    seq_len=st.sampled_from([1, 512, 8192, 1_000_000]),
    offload=st.sampled_from([None, "none", "optimizer", "params+optimizer", "activations"]),
    micro_batch=st.none() | st.integers(1, 40),
    grad_accum=st.none() | st.integers(1, 40),
    global_batch=st.none() | st.integers(1, 5000),
    tokens=st.none() | st.floats(1, 1e15),
    layout=st.fixed_dictionaries(
        {},
        optional={
            "tp": st.sampled_from([1, 2, 3, 8]),
            "pp": st.sampled_from([1, 2, 4]),
            "cp": st.sampled_from([1, 2]),
            "ep": st.sampled_from([1, 2, 8]),
            "sharding": st.sampled_from(["none", "zero1", "zero2", "zero3", "hsdp"]),
        },
    ),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_run_is_estimated_or_refused_in_words(**given_fields: Any) -> None:
    line = {k: v for k, v in given_fields.items() if v is not None}
    try:
        answer = estimate([a_line(**line, gpus_per_node=min(8, given_fields["gpus"]))])[0]
    except UserError:
        return
    assert answer.memory is not None
    assert answer.speed is not None
    shown = [answer.memory.device_bytes, answer.speed.step_s, answer.speed.tokens_per_s_per_gpu]
    if answer.whole is not None:
        shown.append(answer.whole.gpu_hours)
    for band in shown:
        assert 0 <= band.low <= band.mid <= band.high < math.inf


def test_a_small_fine_tuning_on_many_gpus_still_gives_every_rank_a_sequence():
    line = (
        '{"kind": "qlora", "model": {"params": 7e9}, "seq_len": 2048, "tokens": 1e6, "gpus": 8,'
        ' "gpu": "H100-SXM-80GB", "lora": {"rank": 16, "base_bits": 4}}'
    )
    (found,) = estimate([parse_line(line)])
    assert found.run.layout.dp * found.run.layout.micro_batch * found.run.layout.grad_accum >= 8


@pytest.mark.parametrize("changed", [{"frozen_layers": 99}, {"dropout": -1.0}])
def test_a_training_that_its_model_cannot_have_is_refused(changed):
    training = TrainingSpec(seq_len=2048, **changed)
    with pytest.raises(UserError):
        suggest(shape_for(1e9), training, Goal(), ())
