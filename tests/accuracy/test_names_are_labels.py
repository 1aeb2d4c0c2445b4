"""No source, case id or model name reaches the estimator: hidden ones change no figure."""

import json

import answering
import pytest
import scoring

from planner import api
from planner.runs import parse_line


def renamed(case: scoring.Case) -> str:
    description = {k: v for k, v in case.description.items() if k not in ("measured", "source", "group")}
    model = {**description["model"], "name": "a model"}
    return json.dumps({**description, "id": "a case", "model": model})


def figures(estimate):
    return (
        estimate.memory.allocated_bytes,
        estimate.memory.device_bytes,
        estimate.speed.step_s,
        estimate.run.layout,
    )


@pytest.mark.parametrize("name", ["memory", "throughput"])
def test_a_run_under_another_name_gets_the_same_figures(name):
    answered = [case for case, _ in answering.answers(name).answered]
    with_dims = [case for case in answered if "layers" in case.description["model"]][::7]
    assert len(with_dims) > 40
    requests = [(parse_line(case.line), parse_line(renamed(case))) for case in with_dims]
    known = api.estimate([request for request, _ in requests])
    unknown = api.estimate([request for _, request in requests])
    assert [figures(e) for e in known] == [figures(e) for e in unknown]
