"""Readings of a host and of its network, and what only ranks together can tell, fail closed.

Logs of NCCL are as in NVIDIA/nccl issues and aws-samples/awsome-distributed-training.
"""

import os
from pathlib import Path

import pytest
import torch

from clusters.probe.hardware import across, host, tools, transport
from clusters.probe.place import Place
from clusters.probe.request import Expected
from clusters.probe.results import Reading
from tests.clusters.probe.collective_ranks import on_ranks


def failed(found: dict[str, Reading]) -> set[str]:
    return {name for name, reading in found.items() if reading.passed is False}


# ------------------------------------------------------------------------------- transport

EFA = """\
ip-10-0-0-7:11:22 [3] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
ip-10-0-0-7:11:22 [3] NCCL INFO Using network Libfabric
"""
OLD_EFA = """\
worker-0:26:26 [0] NCCL INFO NET/OFI Selected Provider is efa
worker-0:26:26 [0] NCCL INFO Using network AWS Libfabric
"""
IB = """\
n1:21:28 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [RO]; OOB eno1:10.0.0.9<0>
n1:21:28 [0] NCCL INFO Using network IB
n1:21:28 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
n1:21:28 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
n1:21:28 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
"""
SOCKET = """\
w:152:386 [0] NCCL INFO NET/IB : Using [RO]; OOB eth0:10.0.4.51<0>
w:152:386 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.4.51<0> [1]eth1:10.0.5.51<0>
w:152:386 [0] NCCL INFO Using network Socket
w:152:386 [0] NCCL INFO Channel 00 : 0[1b000] -> 1[43000] via SHM/direct/direct
"""
CLOUD = "n:1:2 [0] NCCL INFO Using network FasTrak\n"


@pytest.mark.parametrize(
    ("log", "kind", "nics", "paths"),
    [
        (EFA, "efa", 16, ()),
        (OLD_EFA, "efa", None, ()),
        (IB, "ib", 3, (("NET", 1), ("P2P", 2))),
        (SOCKET, "socket", 2, (("SHM", 1),)),
        (CLOUD, "fastrak", None, ()),
        (CLOUD.replace("FasTrak", "IBext_v8"), "ib", None, ()),
        (CLOUD.replace("FasTrak", "gIB"), "ib", None, ()),
        (CLOUD.replace("FasTrak", "FastSocket"), "socket", None, ()),
    ],
)
def test_transport_is_what_nccl_says_it_uses(log, kind, nics, paths):
    found = transport.parse_log(log)
    assert found is not None
    assert (found.kind, found.num_nics, found.paths) == (kind, nics, paths)


def nccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: str, expected: Expected) -> dict[str, Reading]:
    monkeypatch.setenv("NCCL_DEBUG_FILE", transport.nccl_environment(str(tmp_path))["NCCL_DEBUG_FILE"])
    name = os.uname().nodename.split(".")[0]
    (tmp_path / f"plan-probe-nccl.{name}.{os.getpid()}").write_text(log)
    _, found = transport.transport_readings(expected, "nccl", num_nodes=2)
    assert list(tmp_path.iterdir()) == [], "the log is gone once it is read"
    return {r.name: r for r in found}


def test_a_fall_back_to_sockets_fails_by_name(tmp_path, monkeypatch):
    found = nccl(tmp_path, monkeypatch, SOCKET, Expected(transport="efa", num_nics=16, peer_to_peer=True))
    assert failed(found) == {"transport", "adapters in use", "NCCL channels"}
    assert found["transport"].why == "traffic between nodes goes over TCP sockets, not EFA"
    assert found["adapters in use"].why == "NCCL uses 2 of 16 adapters"


def test_the_transport_of_the_plan_passes(tmp_path, monkeypatch):
    found = nccl(tmp_path, monkeypatch, EFA, Expected(transport="efa", num_nics=16))
    assert found["transport"].passed
    assert found["adapters in use"].passed


@pytest.mark.parametrize("log", ["", "nonsense\n", "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\n"])
def test_a_log_that_does_not_say_fails(tmp_path, monkeypatch, log):
    found = nccl(tmp_path, monkeypatch, log, Expected())
    assert failed(found) == {"transport"}


def test_no_log_at_all_fails(monkeypatch):
    monkeypatch.delenv("NCCL_DEBUG_FILE", raising=False)
    word, found = transport.transport_readings(Expected(), "nccl", num_nodes=1)
    assert word is None
    assert [r.passed for r in found] == [False]
    assert "not told to write a log" in found[0].why


def test_gloo_is_named_and_held_against_what_is_expected():
    word, found = transport.transport_readings(Expected(transport="gloo"), "gloo", num_nodes=2)
    assert (word, found[0].passed) == ("gloo", True)
    _, found = transport.transport_readings(Expected(transport="efa"), "gloo", num_nodes=2)
    assert found[0].passed is False


# ------------------------------------------------------------------------------- the host

CPU = torch.device("cpu")


def place(rank: int = 0, nodes: tuple[int, ...] = (0, 1), device: torch.device = CPU) -> Place:
    return Place(rank=rank, device=device, node_of_rank=nodes, host_of_rank=tuple(f"node-{n}" for n in nodes))


def host_named(expected: Expected, where: Place) -> dict[str, Reading]:
    return {r.name: r for r in host.host_readings(expected, where)}


def test_this_host_is_read_without_a_gpu():
    found = host_named(Expected(), place(nodes=(0,)))
    assert failed(found) == set()
    assert found["torch"].value == torch.__version__
    assert found["Python"].value
    assert "GiB" in (found["disk free"].value or "")
    assert "CUDA" not in found
    assert host.cpu_name()


@pytest.mark.parametrize(
    ("pinned", "passed"), [("2.13", True), ("2.13.0", True), ("2.1", False), ("2.12.1", False)]
)
def test_versions_are_those_that_the_plan_pins(pinned, passed):
    found = host._version("torch", "2.13.0+cpu", pinned)
    assert found.passed is passed


def test_a_package_that_is_not_there_fails():
    found = host._version("Ray", host._installed("no-such-package-here"), None)
    assert (found.value, found.passed) == (None, False)


@pytest.fixture
def net(tmp_path, monkeypatch):
    """A /sys/class/net with one adapter, ``eth7``, of a speed."""
    monkeypatch.setattr(host, "SYS_NET", tmp_path / "net")
    monkeypatch.setattr(host, "SYS_RDMA", tmp_path / "infiniband")
    monkeypatch.setattr(host, "_interfaces", lambda: ["lo", "eth7"])
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    (tmp_path / "net/eth7").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("speed", "passed", "value"),
    [
        ("100000", True, "100 Gbit/s"),
        ("25000", False, "25 Gbit/s"),
        ("-1", None, "not stated by the adapter"),
        ("fast", False, None),
    ],
)
def test_adapter_speed_between_nodes(net, speed, passed, value):
    (net / "net/eth7/speed").write_text(f"{speed}\n")
    found = host_named(Expected(nic_gbit_per_s=100.0), place())
    assert found["network adapter"].value == "eth7"
    assert (found["network speed"].passed, found["network speed"].value) == (passed, value)


def test_an_adapter_that_refuses_to_state_its_speed_is_left_to_the_collectives(net):
    found = host_named(Expected(nic_gbit_per_s=100.0), place())["network speed"]
    assert (found.passed, found.why) == (None, "collectives measure it")


def test_an_adapter_that_is_not_there_fails_between_nodes_and_does_not_matter_on_one(net, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth9")
    found = host_named(Expected(), place())["network adapter"]
    assert (found.value, found.passed) == (None, False)
    assert "eth9" in found.why
    assert host_named(Expected(), place(nodes=(0, 0)))["network adapter"].passed is None


def test_rdma_ports_are_counted(net):
    for name, state in (("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN")):
        port = net / "infiniband" / name / "ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(state)
        (port / "rate").write_text("400 Gb/sec (4X NDR)")
    assert host_named(Expected(), place())["RDMA ports active"].value == "1 of 2, 400 Gb/sec (4X NDR)"


def test_a_full_disk_fails(monkeypatch):
    usage = type("Usage", (), {"total": 100 * 2**30, "free": 4 * 2**30})
    monkeypatch.setattr(host.shutil, "disk_usage", lambda path: usage)
    found = host_named(Expected(), place())["disk free"]
    assert found.passed is False
    assert "96% full" in found.why


def test_the_shared_memory_that_docker_gives_is_too_small_for_gpus(monkeypatch):
    usage = type("Usage", (), {"total": 64 * 2**20, "free": 64 * 2**20})
    monkeypatch.setattr(host.shutil, "disk_usage", lambda path: usage)
    assert host._shared_memory(torch.device("cuda")).passed is False
    assert host._shared_memory(CPU).passed is None


def test_a_disk_and_a_shared_memory_that_cannot_be_read_fail(monkeypatch):
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(host.shutil, "disk_usage", refuse)
    found = host_named(Expected(), place())
    assert failed(found) == {"disk free", "shared memory"}


def test_a_file_that_cannot_be_read_has_a_reason():
    assert tools.read_file("/no/such/file").why == "/no/such/file cannot be read: No such file or directory"


# ------------------------------------------------------------------------------- across ranks

FOUR = place(nodes=(0, 0, 1, 2))


def driver(value: str | None) -> Reading:
    return Reading(name="driver", value=value)


def test_the_odd_one_fails_and_is_named_with_what_the_others_have():
    values = ["570.1", "570.1", "560.9", "570.1"]
    odd = across.compared(driver("560.9"), values, FOUR)
    assert odd.passed is False
    assert odd.why == "driver 560.9 on node-1, but 570.1 on node-0, node-2"
    assert across.compared(driver("570.1"), values, FOUR).passed is None


def test_where_no_value_has_most_ranks_all_fail():
    values = ["570.1", "560.9"]
    assert all(across.compared(driver(v), values, place()).passed is False for v in values)


def test_what_is_alike_or_may_differ_is_left_as_it_is():
    assert across.compared(driver("1.0"), ["1.0"] * 4, FOUR).passed is None
    clock = Reading(name="SM clock", value="1")
    assert across.compared(clock, ["1", "2", "3", "4"], FOUR) == clock


def test_a_rank_without_a_value_fails_for_its_own_reason_only():
    absent = Reading(name="driver", value=None, passed=False, why="nvidia-smi is not there")
    assert across.compared(absent, [None, "570.1", "570.1", "570.1"], FOUR) == absent


def test_a_clock_that_is_off_fails_only_where_the_error_allows_to_say_so():
    assert across.judge_skew(0.002, 0.001, "b", "a").passed
    assert across.judge_skew(1.2, 0.3, "b", "a").passed
    off = across.judge_skew(-40.0, 0.01, "b", "a")
    assert off.passed is False
    assert off.why == "clock of b is -40.0 s off that of a"
    unsure = across.judge_skew(0.0, 3.0, "b", "a")
    assert (unsure.value, unsure.passed) == (None, False)


@pytest.fixture(scope="module")
def three_ranks() -> dict[str, list[dict]]:
    odd = {"spoiler": 2, "spoilt": "version"}
    return on_ranks(
        [0, 1, 1],
        {
            "healthy": {"kind": "hardware", "expected": {"transport": "gloo"}},
            "odd": {"kind": "hardware", "expected": {}, **odd},
            "no gpu": {"kind": "hardware", "expected": {"gpu": "H100", "gpus_per_node": 1}},
        },
    )


def by_name(rank: dict) -> dict[str, dict]:
    return {reading["name"]: reading for reading in rank["readings"]}


def test_ranks_read_together(three_ranks):
    told = three_ranks["healthy"]
    assert [(t["rank"], t["node"], t["host"], t["backend"]) for t in told] == [
        (0, 0, "host0", "gloo"),
        (1, 1, "host1", "gloo"),
        (2, 1, "host1", "gloo"),
    ]
    for each in told:
        found = by_name(each)
        assert found["clock skew"]["passed"], found["clock skew"]
        assert found["transport"]["passed"]
        assert found["Python"]["passed"] is None
        assert "GPU" not in found
        assert each["device"]


def test_the_rank_with_another_version_is_named(three_ranks):
    python = [by_name(each)["Python"] for each in three_ranks["odd"]]
    assert [r["passed"] for r in python] == [None, None, False]
    assert "Python 2.7.18 on host1" in python[2]["why"]


def test_a_rank_without_the_gpu_that_the_plan_expects_fails(three_ranks):
    reading = by_name(three_ranks["no gpu"][1])["GPU"]
    assert (reading["value"], reading["passed"]) == (None, False)
    assert "rank 1 on host1 runs without a GPU" in reading["why"]
