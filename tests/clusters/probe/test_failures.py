"""Errors of torch, gloo and Ray in words that advice can use; the texts are those of the libraries."""

import pytest

from clusters.probe.failures import Where, WrongCountError, causes, failure_of, kind_of, shorten
from clusters.probe.results import Failure
from clusters.probe.spec import RefusedError

GPU_OOM = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB of which"
    " 512.00 MiB is free. Including non-PyTorch memory, this process has 78.58 GiB memory in use."
)
CPU_OOM = (
    "[enforce fail at alloc_cpu.cpp:131] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
    " allocate 4194304000 bytes. Error code 12 (Cannot allocate memory)"
)
LATE = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 60000ms for recv"
)
GONE = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4711"
WHERE = Where(phase="memory", rank=3, node="b (10.0.0.2)", bytes_free=1e6)
NODES = {0: "a", 1: "a", 2: "b", 3: "b"}


def told(rank: int, kind: str, message: str = "…") -> Failure:
    return Failure(kind=kind, phase="steps", rank=rank, node=NODES[rank], message=message)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RefusedError("context parallel (2) is not in this step"), "refused"),
        (WrongCountError("1 parameters, the plan was reckoned with 2"), "wrong-count"),
        (RuntimeError(GPU_OOM), "oom"),
        (RuntimeError(CPU_OOM), "oom"),
        (MemoryError(), "oom"),
        (OSError(12, "Cannot allocate memory"), "oom"),
        (RuntimeError(LATE), "timeout"),
        (RuntimeError(GONE), "worker-lost"),
        (ConnectionResetError("reset"), "worker-lost"),
        (KeyError("data"), "error"),
    ],
)
def test_an_error_is_sorted_by_its_type_or_its_text(error, kind):
    assert kind_of(error) == kind


def test_a_gpu_without_memory_says_what_was_asked_and_free():
    failure = failure_of(RuntimeError(GPU_OOM), WHERE)
    assert (failure.rank, failure.phase, failure.node) == (3, "memory", "b (10.0.0.2)")
    assert failure.bytes_asked == 2.5 * 2**30
    assert failure.bytes_free == 512 * 2**20


def test_a_cpu_without_memory_says_what_was_asked_and_linux_what_was_free():
    failure = failure_of(RuntimeError(CPU_OOM), WHERE)
    assert (failure.bytes_asked, failure.bytes_free) == (4194304000, 1e6)


def test_an_error_of_another_kind_says_nothing_of_memory_but_its_own_name():
    failure = failure_of(KeyError("data"), WHERE)
    assert (failure.bytes_asked, failure.bytes_free) == (None, None)
    assert failure.message == "KeyError: 'data'"


def test_frames_of_libraries_and_long_tails_are_left_out():
    assert shorten("it broke\nException raised from call at x.cpp:1\nframe #0") == "it broke"
    assert len(shorten("x" * 5000)) == 600


def test_the_rank_that_ran_out_of_memory_counts_not_those_that_lost_it():
    found = causes([told(0, "worker-lost"), told(3, "oom"), told(1, "timeout")], {}, [2], NODES, "steps")
    assert [(f.kind, f.rank) for f in found] == [("oom", 3)]


def test_a_process_that_died_is_named_with_its_node():
    found = causes([told(0, "worker-lost", GONE)], {2: "killed by SIGKILL"}, [1], NODES, "steps")
    assert [(f.kind, f.rank, f.node, f.message) for f in found] == [
        ("worker-lost", 2, "b", "killed by SIGKILL")
    ]


def test_a_process_that_ray_killed_for_memory_ran_out_of_memory():
    found = causes(
        [], {1: "killed due to the node running low on memory: memory pressure"}, [], NODES, "memory"
    )
    assert [(f.kind, f.rank, f.phase) for f in found] == [("oom", 1, "memory")]


def test_the_one_rank_that_never_answered_is_named_by_those_that_waited():
    found = causes(
        [told(0, "timeout", LATE), told(2, "timeout", LATE), told(3, "timeout", LATE)],
        {},
        [1],
        NODES,
        "steps",
    )
    assert [(f.kind, f.rank, f.node) for f in found] == [("timeout", 1, "a")]
    assert "rank 1 gave no answer" in found[0].message


def test_where_several_never_answered_nobody_is_blamed():
    found = causes([told(0, "worker-lost", GONE)], {}, [1, 2], NODES, "steps")
    assert [(f.kind, f.rank) for f in found] == [("worker-lost", None)]


def test_a_plan_that_every_rank_refuses_is_refused_once():
    found = causes([told(1, "refused"), told(0, "refused")], {}, [], NODES, "steps")
    assert [(f.kind, f.rank) for f in found] == [("refused", 0)]


def test_nothing_known_is_no_cause():
    assert causes([], {}, [0, 1], NODES, "start") == ()


def test_a_host_that_goes_while_the_ranks_start_is_a_lost_worker_and_its_reason_outlives_the_traceback():
    said = (
        "Training failed due to controller error:\nTraceback (most recent call last):\n"
        + '  File "worker_group.py", line 494, in _create_workers\n    ray.get(actors)\n' * 9
        + "ray.exceptions.ActorDiedError: The actor died because its node has died. Node Id: 08629b"
    )
    failure = failure_of(RuntimeError(said), Where(phase="start"))
    assert failure.kind == "worker-lost"
    assert failure.message.endswith("The actor died because its node has died. Node Id: 08629b")
