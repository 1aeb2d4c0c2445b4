"""The probe's clock: it ends at its deadline whatever hangs, and says who was where."""

import pickle
import time
from concurrent.futures import Future

import pytest
from ray.exceptions import RayActorError
from ray.train import TrainingFailedError

from clusters.probe import watch
from clusters.probe.board import Seen, Snapshot, unpacked
from clusters.probe.failures import Where, failure_of
from clusters.probe.progress import read_progress
from clusters.probe.request import ProbeRequest


class WorkersFailedError(TrainingFailedError):
    """Ray Train's error of a worker group, without a cluster."""

    def __init__(self, worker_failures: dict) -> None:
        super().__init__("Training failed due to worker errors")
        self.worker_failures = worker_failures


class UnhealthyError(Exception):
    """Ray Train's wrapper of a worker that gave no sign of life."""

    def __init__(self, failure: Exception) -> None:
        super().__init__("no sign of life")
        self.health_check_failure = failure


def asked(timeout_s=600.0, *, use_gpu=False) -> ProbeRequest:
    return ProbeRequest(plan={}, use_gpu=use_gpu, num_workers=2, probe_timeout_s=timeout_s)


def board(seen=None, finished=(), failures=None, parts=None) -> Snapshot:
    return Snapshot(
        parts={name: {0: pickle.dumps(value)} for name, value in (parts or {}).items()},
        nodes={0: "a (10.0.0.1)", 1: "b (10.0.0.2)"},
        seen=seen or {0: Seen("steps", 3, 8), 1: Seen("steps", 3, 8)},
        failures=failures or {},
        finished=set(finished),
    )


def waited(group: Future, snapshot: Snapshot | None, request: ProbeRequest | None = None, began=None):
    clock = watch.Watch(request or asked(), time.monotonic() if began is None else began)
    return clock.until_done(group, lambda: snapshot), clock


def ended(error: BaseException | None = None, value: object = None) -> Future:
    group: Future = Future()
    if error is None:
        group.set_result(value)
    else:
        group.set_exception(error)
    return group


def test_a_worker_group_that_never_ends_is_left_at_the_deadline_with_what_was_measured():
    snapshot = board(parts={"hardware": "read"})
    failures, clock = waited(Future(), snapshot, asked(timeout_s=0.01), began=time.monotonic() - 1)
    assert [(f.kind, f.phase) for f in failures] == [("timeout", "steps")]
    assert clock.parts == {"hardware": {0: "read"}}
    assert clock.left_s == 0


def test_the_one_rank_that_is_behind_at_the_deadline_is_named():
    snapshot = board(finished=[0])
    failures, _ = waited(Future(), snapshot, asked(timeout_s=0.01), began=time.monotonic() - 1)
    assert [(f.rank, f.node) for f in failures] == [(1, "b (10.0.0.2)")]


def test_a_board_that_gives_no_answer_does_not_keep_the_probe():
    failures, clock = waited(Future(), None, asked(timeout_s=0.01), began=time.monotonic() - 1)
    assert [(f.kind, f.phase) for f in failures] == [("timeout", "start")]
    assert clock.parts == {}


def test_what_rank_0_returns_counts_where_every_rank_got_to_the_end():
    failures, clock = waited(ended(value={"steps 4": {0: "a", 1: "b"}}), board(parts={"steps 4": "a"}))
    assert failures == ()
    assert clock.parts == {"steps 4": {0: "a", 1: "b"}}


def test_a_dead_process_is_lost_with_rank_and_node():
    error = WorkersFailedError({1: UnhealthyError(RayActorError())})
    failures, _ = waited(ended(error), board())
    assert [(f.kind, f.rank, f.node, f.phase) for f in failures] == [
        ("worker-lost", 1, "b (10.0.0.2)", "steps")
    ]


def test_what_a_rank_said_itself_counts_before_what_ray_says():
    said = failure_of(MemoryError(), Where(phase="memory", rank=0, node="a (10.0.0.1)"))
    failures, _ = waited(ended(WorkersFailedError({0: MemoryError()})), board(failures={0: said}))
    assert failures == (said,)


def test_a_process_that_ends_after_a_long_silence_on_gpus_hung(monkeypatch):
    monkeypatch.setattr(watch, "SILENT_SHARE", 0.0)
    error = WorkersFailedError({1: UnhealthyError(RayActorError())})
    failures, _ = waited(ended(error), board(), asked(use_gpu=True))
    assert [(f.kind, f.rank) for f in failures] == [("hang", 1)]


def test_an_error_of_ray_that_no_rank_knows_of_is_told_as_it_is():
    failures, _ = waited(ended(TrainingFailedError("worker group startup timed out")), Snapshot())
    assert [(f.kind, f.phase, f.rank) for f in failures] == [("timeout", "start", None)]


def test_a_mistake_of_ours_is_no_measurement():
    with pytest.raises(AssertionError):
        waited(ended(AssertionError("ours")), board())


def test_progress_is_told_while_it_waits(capsys, monkeypatch):
    monkeypatch.setattr(watch, "POLL_S", 0.01)
    waited(Future(), board(finished=[0]), asked(timeout_s=0.05))
    told = [read_progress(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each.phase, each.rank, each.done, each.of) for each in told] == [("steps", 1, 3, 8)]


def test_parts_are_pickled_on_the_board():
    assert unpacked(board(parts={"depths": (1, 2)})) == {"depths": {0: (1, 2)}}
