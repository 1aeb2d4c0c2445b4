"""Questions at random: an answer or one error, and no figure that cannot be."""

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.cli import main

MODELS = st.one_of(
    st.sampled_from(["1M", "125M", "350M", "1B", "7B", "70B", "405B", "1T"]).map(lambda p: ["--params", p]),
    st.sampled_from(["gpt2", "llama-3-8b", "mixtral-8x7b", "bert-base", "deepseek-v3", "qwen2.5-0.5b"]).map(
        lambda name: ["--model", name]
    ),
)


def option(flag: str, *values: str) -> st.SearchStrategy[list[str]]:
    """The flag with one of the values, or nothing."""
    return st.one_of(st.just([]), st.sampled_from(values).map(lambda v: [flag, v]))


QUESTIONS = st.tuples(
    MODELS,
    option("--tokens", "1k", "10M", "1B", "20B", "1e13"),
    option("--seq-len", "1", "128", "2048", "8192", "131072", "1000000"),
    option("--global-batch", "2048", "262144", "4M"),
    option("--method", "pretrain", "full", "lora", "qlora"),
    option("--precision", "fp32", "tf32", "bf16", "bf16-pure", "fp16", "fp8"),
    option("--optimizer", "adamw", "adamw-8bit", "adafactor", "sgd", "lion", "muon"),
    option("--budget", "0.01", "5", "200", "10000", "1e9"),
    option("--deadline", "1s", "10m", "2d", "50w"),
    option("--gpu", "H100", "A100", "RTX 3060", "T4", "MI300X", "L4,L40S"),
    option("--provider", "aws", "lambda", "runpod"),
    option("--market", "any", "on-demand", "spot"),
    option("--max-gpus", "1", "2", "3", "8", "64", "100"),
    option("--headroom", "0", "0.2", "0.9"),
    option("--stage", "experiment", "production"),
    option("--zero", "0", "1", "2", "3"),
    option("--tp", "1", "2", "8"),
    option("--pp", "1", "2", "4"),
    option("--cp", "1", "2"),
    option("--ep", "1", "2", "8"),
    option("--micro-batch", "1", "4", "7"),
    option("--recompute", "none", "selective", "full"),
    option("--offload", "none", "optimizer", "params+optimizer", "activations"),
    option("--sort", "cost", "time"),
    st.sampled_from([[], ["--allow-slow-link"], ["--loss", "chunked"], ["--frozen-layers", "2"]]),
).map(lambda parts: [word for part in parts for word in part])


def numbers(value: object) -> Iterator[float]:
    """Every number anywhere in a document."""
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def check(document: dict, question: list[str], code: int) -> None:
    """Nothing in an answer may contradict what was asked."""
    verdicts = [c["verdict"] for c in document["candidates"]]
    assert (code == 0) == any(v in ("ok", "tight") for v in verdicts)
    assert all(math.isfinite(n) and n >= 0 for n in numbers(document))
    given_ = dict(itertools.pairwise(question))
    for c in document["candidates"]:
        num_gpus = c["shape"]["gpus_per_node"] * c["shape"]["num_nodes"]
        assert num_gpus <= int(given_.get("--max-gpus", "64"))
        degrees = [c["layout"][d] for d in ("dp", "tp", "pp", "cp")]
        assert math.prod(degrees) == num_gpus
        for flag, name in (("--tp", "tp"), ("--pp", "pp"), ("--cp", "cp"), ("--micro-batch", "micro_batch")):
            assert str(c["layout"][name]) == given_.get(flag, str(c["layout"][name]))
        if c["verdict"] == "ok":
            assert c["memory"]["safe"]
            assert c["memory"]["device_gib"]["high"] <= c["memory"]["usable_gib"]
            assert c["cost_usd"]["high"] <= float(document["budget_usd"] or "inf")
            assert c["hours"]["high"] * 3600 <= (document["deadline_s"] or math.inf)
        if c["verdict"] != "over":
            assert c["memory"]["fits"]
            assert c["cost_usd"]["mid"] <= float(document["budget_usd"] or "inf")
        for band in (c["cost_usd"], c["hours"], c["memory"]["device_gib"], c["speed"]["step_s"]):
            assert band["low"] <= band["mid"] <= band["high"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(question=QUESTIONS)
def test_every_question_gets_an_answer_or_one_error(
    question: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    code = main.run(["suggest", *question, "--json"])
    captured = capsys.readouterr()
    assert code in (0, 2, 3), question
    if code == 2:
        assert captured.err.startswith("error: ")
        assert captured.out == ""
        return
    assert captured.err == ""
    check(json.loads(captured.out), question, code)
    assert main.run(["suggest", *question]) == code
    assert "nan" not in capsys.readouterr().out.lower().split()


RUNS = st.tuples(
    MODELS,
    st.sampled_from(["H100-SXM5-80GB", "A100-SXM4-40GB", "RTX 4090", "T4", "MI300X", "GB200-186GB"]).map(
        lambda gpu: ["--gpu", gpu]
    ),
    st.sampled_from(["1", "2", "3", "8", "16", "64", "512"]).map(lambda n: ["--gpus", n]),
    option("--tokens", "10M", "20B"),
    option("--seq-len", "128", "2048", "8192", "131072"),
    option("--method", "full", "lora", "qlora"),
    option("--precision", "fp32", "tf32", "bf16", "bf16-pure", "fp16", "fp8"),
    option("--optimizer", "adamw-8bit", "adafactor", "sgd", "muon", "adamw-paged-8bit"),
    option("--zero", "0", "1", "2", "3"),
    option("--tp", "1", "2", "8"),
    option("--pp", "1", "2", "4"),
    option("--ep", "1", "8"),
    option("--recompute", "none", "selective", "full"),
    option("--offload", "optimizer", "params+optimizer", "activations"),
    option("--loss", "plain", "compiled", "chunked", "fused", "fused-linear"),
    option("--framework", "torchtitan", "megatron-core", "hf", "deepspeed", "unsloth", "litgpt"),
    option("--numerics", "fp32", "bf16-all", "fsdp-mixed", "16bit-weights-fp32-master"),
    option("--interconnect", "NVLink", "PCIe", "Ethernet 10Gb", "NVLink + 8x400Gb IB", "string"),
).map(lambda parts: [word for part in parts for word in part])


def check_estimate(document: dict) -> None:
    """Figures add up, stand in order and cannot be impossible."""
    memory, speed = document["memory"], document["speed"]
    assert all(math.isfinite(n) and n >= 0 for n in numbers(document))
    assert sum(memory["parts_gib"].values()) == pytest.approx(memory["device_gib"]["mid"])
    assert sum(speed["parts_s"].values()) == pytest.approx(speed["step_s"]["mid"])
    kinds = [memory[f"{kind}_gib"]["mid"] for kind in ("allocated", "reserved", "device")]
    assert kinds[0] <= kinds[1] * (1 + 1e-9) <= kinds[2] * (1 + 2e-9)
    assert memory["fits"] or not memory["safe"]
    assert 0 < speed["mfu"] <= speed["hfu"] * (1 + 1e-9) <= 1 + 1e-9


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(run=RUNS)
def test_every_run_gets_an_estimate_that_its_own_line_repeats(
    run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.run(["estimate", *run, "--json"])
    captured = capsys.readouterr()
    if code == 2:
        assert captured.err.startswith("error: ")
        return
    assert code == 0
    document = json.loads(captured.out)
    check_estimate(document)
    line = {key: document[key] for key in ("id", "model", "training", "shape", "layout")}
    (tmp_path / "line.jsonl").write_text(json.dumps(line))
    assert main.run(["estimate", "--runs", str(tmp_path / "line.jsonl"), "--json"]) == 0
    repeated = json.loads(capsys.readouterr().out)
    assert (repeated["memory"], repeated["speed"]) == (document["memory"], document["speed"])
    assert main.run(["estimate", *run]) == 0
    assert "PEAK" in capsys.readouterr().out
