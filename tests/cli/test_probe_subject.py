"""What ``plan probe`` probes: a saved plan, or a run that suits what is found; and what the job is asked."""

import os
from pathlib import Path
from typing import Any

import pytest

from clusters.probe.request import from_json, to_json
from clusters.probing import Wishes, request_of
from planner.cli import store
from planner.cli.probe import subject as probe_subject
from planner.cli.probe.subject import Found, found_here, found_on, subject_of
from planner.errors import UserError
from planner.probed import PHASES
from planner.verdict import Subject
from tests.clusters import tools
from tests.planner import probe_tools as t

NO_GPU = Found(None, 0, 1)
OPTIONS: dict[str, Any] = dict.fromkeys(
    (*probe_subject._OF_A_RUN, "plan", "address", "headroom", "budget", "only", "entrypoint"), None
) | {"no_calibration": True, "check_precision": False}


def options(**given: object) -> dict[str, Any]:
    return {**OPTIONS, **given}


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ``nvidia-smi`` that runs the script that a test writes into it."""
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tool


def answer(tool: Path, script: str) -> None:
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


# ------------------------------------------------------------------------------ what is there


def test_gpus_of_this_machine_are_those_that_the_driver_lists(smi: Path) -> None:
    answer(smi, "for i in 1 2 3 4; do echo 'NVIDIA L40S, 46068'; done")
    assert found_here() == Found("L40S", 4, 1)


def test_a_machine_without_the_drivers_tool_has_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert found_here() == NO_GPU


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'No devices were found'; exit 6", "nvidia-smi failed: No devices were found"),
        ("exit 0", "nvidia-smi failed"),
        ("echo 'Geforce 256, 32'", "Geforce 256"),
        ("echo 'NVIDIA L40S, 46068'; echo 'NVIDIA A10, 23028'", "different kinds"),
    ],
)
def test_a_driver_that_makes_no_sense_is_never_taken_for_no_gpu(smi: Path, script: str, said: str) -> None:
    answer(smi, script)
    with pytest.raises(UserError, match=said):
        found_here()


def test_a_driver_that_hangs_is_not_waited_for_for_ever(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(smi, "exec sleep 100")
    monkeypatch.setattr(probe_subject, "SMI_TIMEOUT_S", 0.2)
    with pytest.raises(UserError, match="no answer"):
        found_here()


def node(gpus: float, kind: str = "L40S", alive: bool = True) -> dict[str, Any]:
    resources = {"CPU": 8.0, "GPU": gpus, f"accelerator_type:{kind}": 1.0} if gpus else {"CPU": 8.0}
    return {"NodeID": "n", "NodeManagerHostname": "h", "Alive": alive, "Resources": resources}


def test_gpus_of_a_cluster_are_those_of_its_nodes_that_live() -> None:
    assert found_on([node(0), node(4), node(4), node(4, alive=False)], None) == Found("L40S", 4, 2)
    assert found_on([node(0)], None) == NO_GPU


def test_a_cluster_of_nodes_that_differ_is_refused() -> None:
    with pytest.raises(UserError, match="several kinds"):
        found_on([node(4), node(2)], None)


# ------------------------------------------------------------------------------ what runs there


def test_without_gpus_two_workers_train_a_small_model_in_fp32() -> None:
    subject = subject_of(options(), NO_GPU)
    assert subject.on_cpu
    assert subject.num_ranks == 2
    assert subject.run.model == probe_subject.SMALL
    assert subject.run.training.precision == "fp32"
    assert subject.predicted.speed is None


def test_on_gpus_the_fastest_safe_layout_is_taken() -> None:
    subject = subject_of(options(params="1B"), Found("L40S", 4, 1))
    held = subject.predicted.memory
    assert subject.num_ranks == 4
    assert held is not None
    assert held.usable_bytes is not None
    assert held.reserved_bytes.mid <= 0.8 * held.usable_bytes


def test_what_is_pinned_stays() -> None:
    subject = subject_of(options(params="10M", zero="3", micro_batch="4", seq_len="64"), NO_GPU)
    layout = subject.run.layout
    assert (layout.dp, layout.zero_stage, layout.micro_batch) == (2, 3, 4)
    assert subject.run.training.seq_len == 64


def test_phases_run_in_their_order_whatever_was_written() -> None:
    assert subject_of(options(only="steps,hardware"), NO_GPU).phases == ("hardware", "steps")
    assert subject_of(options(), NO_GPU).phases == PHASES


def test_fp32_is_not_compared_with_itself() -> None:
    with pytest.raises(UserError, match="fp32 already"):
        subject_of(options(check_precision=True), NO_GPU)
    assert subject_of(options(check_precision=True, precision="bf16"), NO_GPU).check_precision


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PLAN_DATA_DIR", str(tmp_path))
    plan = tools.plan()
    store.save_shown([plan.candidate], "plan suggest", tools.NOW)
    return plan.id


def test_a_saved_plan_is_probed_as_it_was_shown(saved: str) -> None:
    subject = subject_of(options(plan=saved, budget="50"), Found("L40S", 4, 1))
    assert subject.predicted.memory == tools.plan().candidate.memory
    assert subject.budget_usd == 50


def test_a_plan_for_machines_that_are_not_here_is_refused(saved: str) -> None:
    for found in (NO_GPU, Found("L40S", 2, 1)):
        with pytest.raises(UserError, match="this machine has"):
            subject_of(options(plan=saved), found)


def test_a_plan_and_a_run_contradict_each_other(saved: str) -> None:
    with pytest.raises(UserError, match="--params contradicts it"):
        subject_of(options(plan=saved, params="1B"), NO_GPU)


# ------------------------------------------------------------------------------ what the job is asked


def test_the_request_carries_what_the_plan_expects_and_reads_back() -> None:
    request = request_of(t.subject(nodes=2), Wishes(own_software=True), "p-1")
    assert from_json(to_json(request)) == request
    assert (request.use_gpu, request.num_workers) == (True, 8)
    expected = request.expected
    assert (expected.gpu, expected.gpus_per_node, expected.num_nodes) == ("L40S", 4, 2)
    assert (expected.transport, expected.peer_to_peer, expected.nvlink) == ("socket", True, False)
    assert expected.nic_gbit_per_s == 100
    assert set(expected.versions) == {"ray", "torch", "python"}
    assert request.min_busbw_bytes_per_s is not None
    assert {c.op for c in request.collectives} == {"all_gather", "reduce_scatter"}


def test_nothing_is_expected_of_what_nobody_states() -> None:
    run = t.run()
    links = run.shape.links.model_copy(update={"intra": "unknown-intra"})
    unknown = run.model_copy(update={"shape": run.shape.model_copy(update={"links": links})})
    subject = t.subject()
    other = Subject(predicted=subject.predicted.model_copy(update={"run": unknown}))
    expected = request_of(other, Wishes()).expected
    assert (expected.nvlink, expected.peer_to_peer, expected.transport) == (None, None, None)
    assert expected.versions == {}


def test_a_probe_on_cpus_asks_for_workers_without_gpus() -> None:
    request = request_of(t.cpu_subject(), Wishes())
    assert (request.use_gpu, request.num_workers, request.expected.transport) == (False, 2, "gloo")
    assert request.min_busbw_bytes_per_s is None


@pytest.mark.parametrize("wishes", [{"scale": "some"}, {"repeat": 0}, {"probe_timeout_s": 0.0}])
def test_wishes_that_make_no_sense_are_refused(wishes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wishes))):
        request_of(t.cpu_subject(), Wishes.model_validate(wishes))
