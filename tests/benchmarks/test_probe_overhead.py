"""What measuring adds to a step: printed, nothing about time asserted.

Other work on this machine makes steps differ by more than that, so both are timed apart: a step, and what is
around it when the step itself takes no time.
"""

import time

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
STEPS, EMPTY_STEPS = 5, 5000


def silent(done: int, of: int) -> None:
    """Progress that nobody reads: on a cluster it is one message to an actor, which nobody waits for."""


def test_what_measuring_adds_to_a_step(monkeypatch):
    torch.set_num_threads(1)
    run = spec.read_plan(
        {"model": MODEL, "training": {"seq_len": 128, "precision": "fp32"}, "layout": {"micro_batch": 2}}
    )
    trainer = measure.built(run, torch.device("cpu"), 0)
    step_s = min(measure.run_steps(trainer, 1, STEPS, 0, silent).seconds)
    loss = torch.zeros(())
    monkeypatch.setattr(step, "synthetic_batches", lambda *asked: [])
    monkeypatch.setattr(step, "train_step", lambda *asked: loss)
    start = time.process_time()
    measure.run_steps(trainer, 0, EMPTY_STEPS, 0, silent)
    around_s = (time.process_time() - start) / EMPTY_STEPS
    print(f"\nstep {step_s * 1e3:.0f} ms; measuring adds {around_s * 1e6:.1f} µs, {around_s / step_s:.4%}")
    assert around_s > 0
