"""Hardware readings fail closed: tools that are absent, hang, fail, or print nonsense never pass a check.

The fake ``nvidia-smi`` prints what real ones print: rows of ``--query-gpu`` as documented by
``nvidia-smi --help-query-gpu``; links as stas00/ml-engineering (compute/accelerator/nvidia/debug.md) shows
them for H100; the matrix and its legend as LLMServe/DistServe issue 35 shows ``topo -p2p``.
"""

import time
from pathlib import Path

import pytest

from clusters.probe.hardware import gpu, node
from clusters.probe.request import Expected
from clusters.probe.results import Reading
from planner.hardware import gpus

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
