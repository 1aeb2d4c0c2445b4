"""Requests and results as they travel: JSON there and back, and the same fields on both sides."""

import dataclasses
import json
import typing

import pytest
from pydantic_core import PydanticUndefined

from clusters.probe import progress, request, results
from clusters.probe.progress import Progress
from clusters.probe.request import Expected, PlanCollective, ProbeRequest
from planner import probed

MODEL = {
    "name": "small",
    "num_layers": 2,
    "hidden_size": 64,
    "num_heads": 4,
    "num_kv_heads": 4,
    "head_dim": 16,
    "ffn_size": 128,
    "vocab_size": 256,
}
PLAN = {"run": {"model": MODEL, "training": {"seq_len": 32}, "layout": {"dp": 2}}}
MIRRORED = [
    kind for _, kind in vars(results).items() if dataclasses.is_dataclass(kind) and isinstance(kind, type)
]


def asked(**changes) -> ProbeRequest:
    return ProbeRequest(**{"plan": PLAN, "use_gpu": False, "num_workers": 2, **changes})


def result() -> results.ProbeResult:
    hardware = results.RankHardware(
        rank=0,
        node=0,
        host="a",
        device="cpu",
        backend="gloo",
        driver=None,
        nic="eth0",
        transport="gloo",
        readings=(results.Reading(name="disk", value=None, passed=False, why="df: not found"),),
    )
    steps = results.MeasuredSteps(
        seconds=(0.5, 0.25),
        median_s_by_rank=(0.375,),
        loader_s=0.125,
        tokens_per_step=64,
        loss=(5.0, 4.0),
    )
    memory = results.RankMemory(
        rank=0,
        allocated_bytes=None,
        reserved_bytes=1.0,
        device_bytes=None,
        num_alloc_retries=None,
        num_ooms=None,
    )
    return results.ProbeResult(
        started="2026-11-30T12:00:00+00:00",
        wall_s=30.5,
        phase_s={"start": 10.0},
        versions={"ray": "2.60.0"},
        num_nodes=1,
        num_ranks=1,
        num_layers=2,
        num_params=1000,
        hardware=(hardware,),
        memory=(memory,),
        steps=steps,
        depths=(results.Depth(num_layers=1, memory=(memory,), steps=steps),),
        precision=results.PrecisionCheck(precision="bf16", loss_fp32=(5.0,), loss=(5.125,)),
        failures=(results.Failure(kind="oom", phase="memory", rank=3, node="b", bytes_asked=8.0),),
    )


@pytest.mark.parametrize("ours", MIRRORED, ids=lambda kind: kind.__name__)
def test_a_record_of_the_result_has_the_fields_and_defaults_of_the_planners(ours):
    theirs = getattr(probed, ours.__name__)
    mine = {field.name: field.default for field in dataclasses.fields(ours)}
    read = {
        name: dataclasses.MISSING if field.default is PydanticUndefined else field.default
        for name, field in theirs.model_fields.items()
    }
    assert mine == read


def test_the_planner_reads_what_a_probe_writes_and_loses_nothing():
    line = progress.result_line(result())
    read = probed.ProbeResult.model_validate_json(progress.read_result(line))
    assert json.loads(results.to_json(result())) == {
        **json.loads(read.model_dump_json()),
        "started": result().started,
    }


def test_a_figure_that_is_not_finite_is_never_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        results.to_json(dataclasses.replace(result(), wall_s=float("nan")))


def test_phases_are_the_planners():
    assert request.PHASES == probed.PHASES
    assert typing.get_args(results.Collective) == typing.get_args(probed.Collective)


def test_a_request_comes_back_as_it_was():
    whole = asked(
        collectives=(PlanCollective(op="all_reduce", bytes=25 * 2**20, purpose="gradient bucket"),),
        expected=Expected(
            gpu="H100-SXM5-80GB", gpu_names=("NVIDIA H100 80GB HBM3",), versions={"ray": "2.60.0"}
        ),
        phases=("memory", "steps"),
        num_params=1000,
        scale="auto",
        entrypoint="mine:train",
        memory_limit_bytes=1e9,
    )
    assert request.from_json(request.to_json(whole)) == whole


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phases": ("hardwear",)}, "hardwear"),
        ({"phases": ()}, "phases"),
        ({"scale": "some"}, "scale 'some'"),
        ({"scale": "0"}, "scale '0'"),
        ({"num_steps": 5}, "num_steps 5: at least 6"),
        ({"num_workers": 0}, "num_workers 0"),
        ({"entrypoint": "train"}, "entrypoint 'train'"),
        ({"probe_timeout_s": 0}, "probe_timeout_s 0"),
        ({"collectives": (PlanCollective(op="sum", bytes=1, purpose=""),)}, "'sum'"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_by_its_field(changes, said):
    with pytest.raises(ValueError, match="probe request") as refused:
        asked(**changes)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "not a JSON object"),
        ('{"plan": {}, "use_gpu": false}', "no field 'num_workers'"),
        ('{"plan": {}, "use_gpu": false, "num_workers": 2, "speed": 3}', "unknown field 'speed'"),
        ('{"plan": {}, "use_gpu": false, "num_workers": 2, "expected": {"color": 1}}', "'color' in Expected"),
    ],
)
def test_a_request_with_fields_of_another_version_is_refused(text, said):
    with pytest.raises(ValueError, match="probe request") as refused:
        request.from_json(text)
    assert said in str(refused.value)


def test_lines_of_the_probe_are_found_among_others():
    told = Progress(phase="steps", rank=1, done=3, of=8, seconds_left=500.5)
    line = progress.progress_line(told)
    assert progress.read_progress("(worker pid=1) " + line) == told
    assert progress.read_result(line) is None
    assert progress.read_progress(progress.result_line(result())) is None


@pytest.mark.parametrize(
    "line", ["step 3 done", "PLAN_PROBE {broken", 'PLAN_PROBE {"phase": "steps"}', "PLAN_PROBE 1"]
)
def test_a_line_that_is_cut_off_tells_nothing(line):
    assert progress.read_progress(line) is None
