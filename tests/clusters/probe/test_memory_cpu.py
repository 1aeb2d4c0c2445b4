"""Peak memory of a process on a CPU, and its limit: each case in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clusters.probe import memory_cpu

ROOT = Path(__file__).parents[3]
MIB = 2**20
CODE = """
import json, sys
from clusters.probe import memory_cpu as memory
MIB = 2**20
told = {}
%s
print(json.dumps(told))
"""

pytestmark = pytest.mark.skipif(not memory_cpu.STATUS.exists(), reason="no /proc: not Linux")


def ran(code: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", CODE % code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_peak_is_seen_after_it_is_over_and_begins_anew_when_told():
    told = ran("""
memory.keep_freed(keep=False)
memory.reset_peak()
baseline = memory.held()
block = bytearray(64 * MIB)
del block
told["first"] = memory.peak_above(baseline)
memory.reset_peak()
small = bytearray(8 * MIB)
told["second"] = memory.peak_above(baseline)
""")
    assert told["first"] == pytest.approx(64 * MIB, rel=0.05)
    assert told["second"] == pytest.approx(8 * MIB, rel=0.25)


def test_freed_blocks_go_back_at_once_or_are_kept_as_told():
    told = ran("""
def left(keep):
    memory.keep_freed(keep=keep)
    before = memory.held().resident
    blocks = [bytearray(MIB) for _ in range(48)]
    del blocks
    return memory.held().resident - before
told["back"], told["kept"] = left(False), left(True)
""")
    assert told["back"] < 4 * MIB
    assert told["kept"] > 32 * MIB


def test_a_limit_refuses_what_is_above_it_and_can_be_lifted():
    told = ran("""
memory.limit(32 * MIB)
told["free"] = memory.free_bytes()
within = bytearray(16 * MIB)
try:
    bytearray(64 * MIB)
except MemoryError:
    told["refused"] = True
memory.lift_limit()
told["lifted"] = len(bytearray(64 * MIB))
""")
    assert told == {"free": told["free"], "refused": True, "lifted": 64 * MIB}
    assert 24 * MIB < told["free"] <= 32 * MIB


def test_without_a_limit_what_is_free_is_the_machines():
    told = ran("""told["free"] = memory.free_bytes()""")
    assert told["free"] > 32 * MIB


def test_room_of_a_control_group_leaves_out_pages_of_files_that_can_go(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 250\n")
    monkeypatch.setattr(memory_cpu, "CGROUP", tmp_path)
    assert memory_cpu.free_bytes() == 550


@pytest.mark.parametrize("most", ["max\n", None])
def test_a_control_group_without_a_limit_bounds_nothing(tmp_path, monkeypatch, most):
    if most is not None:
        (tmp_path / "memory.max").write_text(most)
        (tmp_path / "memory.current").write_text("700\n")
    monkeypatch.setattr(memory_cpu, "CGROUP", tmp_path)
    assert memory_cpu.free_bytes() > 32 * MIB


def test_a_line_that_linux_does_not_have_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "status").write_text("Name:\tpython\n")
    monkeypatch.setattr(memory_cpu, "STATUS", tmp_path / "status")
    with pytest.raises(OSError, match="has no VmRSS"):
        memory_cpu.held()
