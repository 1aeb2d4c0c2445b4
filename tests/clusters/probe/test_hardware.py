"""Hardware readings fail closed: tools that are absent, hang, fail, or print nonsense never pass a check.

The fake ``nvidia-smi`` prints what real ones print: rows of ``--query-gpu`` as documented by
``nvidia-smi --help-query-gpu``; links as stas00/ml-engineering (compute/accelerator/nvidia/debug.md) shows
them for H100; the matrix and its legend as LLMServe/DistServe issue 35 shows ``topo -p2p``; logs of NCCL as
in NVIDIA/nccl issues and aws-samples/awsome-distributed-training.
"""

import os
import time
from pathlib import Path

import pytest
import torch

from clusters.probe.hardware import across, gpu, host, node, tools, transport
from clusters.probe.place import Place
from clusters.probe.request import Expected
from clusters.probe.results import Reading
from planner.hardware import gpus
from tests.clusters.collective_ranks import on_ranks

UUID = "GPU-5f0d3c11-7a1e-4c38-9c1d-0d5b9e7a4f02"
H100 = gpu.Card(name="NVIDIA H100 80GB HBM3", uuid=UUID, usable_memory_bytes=84_929_347_584)
WANTED = Expected(
    gpu="H100-SXM5-80GB",
    gpu_names=("H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
    gpus_per_node=8,
    usable_memory_bytes=84_900_000_000.0,
    ecc=True,
    pcie_gen=5.0,
    pcie_lanes=16,
    nvlink=True,
    peer_to_peer=True,
)
ROW = "570.86.15, Enabled, 0, 0, 1965, 1980, 2619, 2619, 5, 5, 16, 16"
LINKS = f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {UUID})\n" + "".join(
    f"\t Link {i}: 26.562 GB/s\n" for i in range(18)
)
UUIDS = "".join(f"GPU-5f0d3c11-7a1e-4c38-9c1d-0d5b9e7a4f0{i}\n" for i in range(8))
HEADING = "\t" + "\t".join(f"GPU{i}" for i in range(4))
LEGEND = "\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"


def matrix(cells: list[str], more: str = "") -> str:
    rows = "".join(f"\n GPU{i}\t{row}" for i, row in enumerate(cells))
    return f"{HEADING}{more}{rows}{LEGEND}"


P2P = matrix(["X OK OK OK", "OK X OK OK", "OK OK X OK", "OK OK OK X"])
TOPO = "\x1b[4m" + matrix(
    [
        "X\tNV18\tNV18\tSYS\tPIX\t0-47\t0\t\tN/A",
        "NV18\tX\tNV18\tSYS\tPIX\t0-47\t0\t\tN/A",
        "NV18\tNV18\tX\tSYS\tSYS\t48-95\t1\t\tN/A",
        "SYS\tSYS\tSYS\tX\tSYS\t48-95\t1\t\tN/A",
    ],
    "\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m",
)
GOOD = {
    "--query-gpu=driver_version": ROW,
    "--query-gpu=uuid": UUIDS,
    "--query-gpu=clocks_event_reasons.active": "0x0000000000000004",
    "--query-remapped-rows": "0, 0",
    "nvlink": LINKS,
    "topo -p2p": P2P,
    "topo -m": TOPO,
}


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write an ``nvidia-smi`` that gives ``answers``, and a ``dmesg``; nothing else is on the path."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    monkeypatch.setenv("PATH", str(bin_dir))

    def write(answers: dict[str, str], body: str = "", log: str | None = "") -> None:
        lines = ["#!/bin/bash", body]
        for i, (begin, text) in enumerate(answers.items()):
            (tmp_path / f"answer{i}").write_text(text)
            lines.append(f'[[ "$*" == "{begin}"* ]] && {{ echo "$(<{tmp_path}/answer{i})"; exit 0; }}')
        lines += ['echo "Field \\"${1#*=}\\" is not a valid field to query."', "exit 2"]
        tool(bin_dir / "nvidia-smi", "\n".join(lines))
        if log is not None:
            (tmp_path / "log").write_text(log)
            tool(bin_dir / "dmesg", f'#!/bin/bash\necho "$(<{tmp_path}/log)"')

    return write


def tool(path: Path, text: str) -> None:
    path.write_text(text + "\n")
    path.chmod(0o755)


def readings(
    expected: Expected = WANTED, card: gpu.Card = H100, timeout_s: float = 5.0
) -> dict[str, Reading]:
    """All readings of a rank's GPU and of its node, by name."""
    found = [
        *gpu.card_readings(expected, card, timeout_s),
        *node.node_readings(expected, "node-3", timeout_s),
    ]
    assert len({r.name for r in found}) == len(found)
    return {r.name: r for r in found}


def failed(found: dict[str, Reading]) -> set[str]:
    return {name for name, reading in found.items() if reading.passed is False}


def test_a_healthy_node_passes_everything_that_is_expected_of_it(smi):
    smi(GOOD)
    found = readings()
    assert failed(found) == set()
    assert found["driver"].value == "570.86.15"
    assert found["SM clock"].value == "1965 of 1980 MHz"
    assert found["PCIe lanes"].value == "16 of 16"
    assert found["NVLink links up"].value == "18 of 18"
    assert found["GPUs in the node"].value == "8"
    assert found["peer to peer"].value == "6 of 6 pairs"
    assert found["paths between GPUs"].value == "NV18 × 3, SYS × 3"
    assert found["clock events"].value == "power cap"
    assert found["Xid errors"].value == "none"
    assert {n for n, r in found.items() if r.passed} >= {"GPU", "usable memory", "ECC", "PCIe generation"}


def test_what_nothing_is_expected_of_is_shown_and_not_judged(smi):
    half_a_slot = ROW.replace("16, 16", "8, 16")
    smi({**GOOD, "--query-gpu=driver_version": half_a_slot})
    found = readings(Expected())
    assert found["PCIe lanes"].value == "8 of 16"
    for name in ("GPU", "usable memory", "ECC", "NVLink links up", "peer to peer", "GPUs in the node"):
        assert found[name].value is not None
        assert found[name].passed is None
    assert failed(found) == set()


TOOL_READINGS = {
    *gpu.SMI_NAMES,
    "row remapping pending",
    "row remapping failed",
    "clock events",
    "NVLink links up",
    "GPUs in the node",
    "peer to peer",
    "paths between GPUs",
}


@pytest.mark.parametrize("expected", [WANTED, Expected()], ids=["expected", "nothing expected"])
def test_every_reading_fails_where_the_tool_is_absent(smi, tmp_path, expected):
    found = readings(expected)
    assert failed(found) == TOOL_READINGS
    assert all(found[name].value is None for name in TOOL_READINGS)
    assert all("nvidia-smi cannot be run: No such file" in found[name].why for name in TOOL_READINGS)


def test_every_reading_fails_where_the_tool_fails_even_with_output_that_looks_right(smi):
    smi({}, body='echo "570.86.15, Enabled, 0, 0, 1965, 1980, 2619, 2619, 5, 5, 16, 16"; exit 9')
    assert failed(readings()) == TOOL_READINGS


def test_the_tools_own_words_are_the_reason(smi):
    said = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    smi({}, body=f'echo "{said}"; exit 9')
    assert readings()["driver"].why == f"nvidia-smi failed (exit 9): {said}"


def test_every_reading_fails_where_the_tool_hangs_and_nothing_waits_for_it(smi):
    sleep = "/bin/sleep"
    smi({}, body=f"trap '' TERM; {sleep} 60 & {sleep} 60")
    began = time.monotonic()
    found = gpu.card_readings(WANTED, H100, timeout_s=0.2)
    assert time.monotonic() - began < 30  # four calls that would take a minute each
    assert {r.name for r in found if r.passed is False} == TOOL_READINGS - {
        "GPUs in the node",
        "peer to peer",
        "paths between GPUs",
    }
    assert all("did not answer" in r.why for r in found if r.passed is False)


@pytest.mark.parametrize("nonsense", ["", "hello\nworld", "\x00\xff�", "1, 2, 3", "<html>502</html>"])
def test_nonsense_never_passes(smi, nonsense):
    smi(dict.fromkeys(GOOD, nonsense))
    found = readings()
    passed = {name for name, reading in found.items() if reading.passed}
    assert passed == {"GPU", "usable memory", "Xid errors"}, "these are not nvidia-smi's"
    for name in gpu.SMI_NAMES:
        assert found[name].passed is False


@pytest.mark.parametrize(
    ("place", "cell", "name"),
    [
        (0, "[Unknown Error]", "driver"),
        (1, "[Unknown Error]", "ECC"),
        (2, "ERR!", "ECC errors uncorrected"),
        (2, "3", "ECC errors uncorrected"),
        (3, "-1", "ECC errors uncorrected, lifetime"),
        (4, "[GPU requires reset]", "SM clock"),
        (6, "x", "memory clock"),
        (8, "1", "PCIe generation"),
        (8, "[N/A]", "PCIe generation"),
        (10, "8", "PCIe lanes"),
        (1, "Disabled", "ECC"),
        (1, "[N/A]", "ECC"),
    ],
)
def test_one_wrong_cell_fails_its_own_reading_and_no_other(smi, place, cell, name):
    cells = ROW.split(", ")
    cells[place] = cell
    smi({**GOOD, "--query-gpu=driver_version": ", ".join(cells)})
    assert failed(readings()) == {name}


def test_geforce_cards_have_no_ecc_and_count_no_errors(smi):
    row = "570.86.15, [N/A], [N/A], [N/A], 2520, 3105, 10251, 10501, 4, 4, 16, 16"
    smi({**GOOD, "--query-gpu=driver_version": row, "--query-remapped-rows": "[N/A], [N/A]", "nvlink": ""})
    found = readings(Expected(gpus_per_node=8))
    assert failed(found) == set()
    assert found["ECC"].value == "not supported"
    assert found["ECC errors uncorrected"].value == "not counted"
    assert found["row remapping pending"].value == "not supported"
    assert found["NVLink links up"].value == "0 of 0"


@pytest.mark.parametrize("cells", ["1, 0", "0, 1", "Yes, No", "No, Yes"])
def test_rows_that_wait_for_a_reset_fail(smi, cells):
    smi({**GOOD, "--query-remapped-rows": cells})
    assert len(failed(readings())) == 1


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        ("0x0000000000000008", "hardware slowdown"),
        ("0x0000000000000060", "software thermal slowdown, hardware thermal slowdown"),
        ("0x0000000000000084", "hardware power brake"),
    ],
)
def test_clocks_held_down_fail_with_the_reason(smi, bits, words):
    smi({**GOOD, "--query-gpu=clocks_event_reasons.active": bits})
    found = readings()
    assert failed(found) == {"clock events"}
    assert words in found["clock events"].why


def test_drivers_before_535_are_asked_by_the_older_name(smi):
    answers = {k: v for k, v in GOOD.items() if "event" not in k}
    smi({**answers, "--query-gpu=clocks_throttle_reasons.active": "0x0000000000000001"})
    assert readings()["clock events"].value == "none"


def test_links_that_are_down_are_not_counted(smi):
    half = "".join(f"\t Link {i}: {'26.562 GB/s' if i < 12 else '<inactive>'}\n" for i in range(18))
    smi({**GOOD, "nvlink": f"GPU 0: NVIDIA H100 PCIe (UUID: {UUID})\n{half}"})
    assert readings()["NVLink links up"].value == "12 of 18"
    smi({**GOOD, "nvlink": LINKS.replace("26.562 GB/s", "<inactive>")})
    assert failed(readings()) == {"NVLink links up"}


def test_seven_of_eight_gpus_name_the_node(smi):
    smi({**GOOD, "--query-gpu=uuid": UUIDS.replace(UUIDS.splitlines()[3] + "\n", "")})
    found = readings()
    assert failed(found) == {"GPUs in the node"}
    assert found["GPUs in the node"].why == "node-3 has 7 of 8 GPUs"


def test_pairs_without_peer_access_are_named(smi):
    smi({**GOOD, "topo -p2p": matrix(["X CNS OK OK", "CNS X OK OK", "OK OK X CNS", "OK OK CNS X"])})
    found = readings()
    assert failed(found) == {"peer to peer"}
    assert found["peer to peer"].why == "GPUs talk through host memory: 0-1 CNS, 2-3 CNS"
    assert failed(readings(Expected(peer_to_peer=False, gpus_per_node=8))) == set()


def test_one_gpu_alone_has_no_pairs(smi):
    alone = "\tGPU0\nGPU0\tX" + LEGEND
    smi({**GOOD, "topo -p2p": alone, "topo -m": alone.replace("GPU0\n", "GPU0\tCPU Affinity\n")})
    found = readings(Expected(gpus_per_node=1, peer_to_peer=True))
    assert found["peer to peer"].value == found["paths between GPUs"].value == "one GPU"
    assert failed(found) == set()


def test_a_fatal_xid_fails_and_a_harmless_one_is_shown(smi):
    smi(GOOD, log="[12345.6] NVRM: Xid (PCI:0000:18:00): 79, pid=1234, GPU has fallen off the bus.\n")
    assert readings()["Xid errors"].why == "fatal Xid 79"
    smi(GOOD, log="[12345.6] NVRM: Xid (PCI:0000:18:00): 13, Graphics SM Warp Exception\n")
    assert readings()["Xid errors"].passed


def test_a_kernel_log_that_only_root_reads_is_not_judged_and_said(smi, tmp_path):
    smi(GOOD)
    tool(
        tmp_path / "bin/dmesg",
        "#!/bin/bash\necho 'dmesg: read kernel buffer failed: Operation not permitted'; exit 1",
    )
    found = readings()["Xid errors"]
    assert found.value is None
    assert found.passed is None
    assert "not permitted" in found.why


def test_another_gpu_than_rented_and_too_little_memory_fail(smi):
    smi(GOOD)
    a100 = gpu.Card(name="NVIDIA A100-SXM4-40GB", uuid=UUID, usable_memory_bytes=42_000_000_000)
    found = readings(card=a100)
    assert failed(found) == {"GPU", "usable memory"}
    assert "NVIDIA A100-SXM4-40GB, not H100-SXM5-80GB" in found["GPU"].why


@pytest.mark.parametrize(
    "name",
    [  # as drivers name them, and the rows of data/gpus.csv that they are
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA B200", "B200-SXM-180GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Server"),
    ],
    ids=lambda pair: pair[1],
)
def test_names_of_drivers_are_known_as_the_rented_gpu(smi, name):
    said, row = name
    smi(GOOD)
    rented = gpus.gpu(row)
    expected = Expected(gpu=rented.id, gpu_names=(rented.id, *rented.aliases))
    found = readings(expected, gpu.Card(name=said, uuid=UUID, usable_memory_bytes=2**34))
    assert found["GPU"].passed, found["GPU"]


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
