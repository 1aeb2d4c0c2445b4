"""Wall time of a probe by phase, and what measuring adds to a step: printed, nothing about time asserted."""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from clusters.probe import measure, spec, step

pytestmark = pytest.mark.benchmark
MODEL = {
    "name": "25M",
    "num_layers": 6,
    "hidden_size": 512,
    "num_heads": 8,
    "num_kv_heads": 8,
    "head_dim": 64,
    "ffn_size": 1536,
    "vocab_size": 4096,
}
ROUNDS, STEPS = 6, 5


def silent(done: int, of: int) -> None:
    """Progress that nobody reads: on a cluster it is one message that nobody waits for."""


def bare_s(trainer: step.Trainer) -> float:
    """CPU seconds of a step, without anything of the probe's around it: other work here does not count."""
    start = time.process_time()
    for _ in range(STEPS):
        step.train_step(trainer, step.synthetic_batches(trainer, 0))
    return (time.process_time() - start) / STEPS


def measured_s(trainer: step.Trainer) -> float:
    """CPU seconds of a step while the probe measures."""
    start = time.process_time()
    measure.run_steps(trainer, 0, STEPS, 0, silent)
    return (time.process_time() - start) / STEPS


def test_what_measuring_adds_to_a_step():
    torch.set_num_threads(1)
    run = spec.read_plan(
        {"model": MODEL, "training": {"seq_len": 128, "precision": "fp32"}, "layout": {"micro_batch": 2}}
    )
    trainer = measure.built(run, torch.device("cpu"), 0)
    bare_s(trainer)
    pairs = [(bare_s(trainer), measured_s(trainer)) for _ in range(ROUNDS)]
    bare, measured = (min(side) for side in zip(*pairs, strict=True))
    print(f"\nstep {bare * 1e3:.1f} ms of CPU, measured {measured * 1e3:.1f} ms: {measured / bare - 1:+.2%}")
    assert bare > 0


def test_wall_time_of_a_local_probe_by_phase(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path), "PLAN_DATA_DIR": str(tmp_path)}
    walls = []
    for number in range(4):
        start = time.perf_counter()
        done = subprocess.run(
            [str(Path(sys.executable).with_name("plan")), "probe", "--json"],
            capture_output=True, text=True, timeout=600, env=environment, cwd=tmp_path,
        )  # fmt: skip
        walls.append(time.perf_counter() - start)
        phases = json.loads(done.stdout).get("phase_s", {})
        told = " · ".join(f"{name} {seconds:.1f} s" for name, seconds in phases.items())
        print(f"\n{'cold' if number == 0 else 'warm'}: {walls[-1]:.1f} s ({told})")
    print(f"median of 3 warm runs: {statistics.median(walls[1:]):.1f} s")
    assert len(walls) == 4
