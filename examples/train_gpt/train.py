"""Trains a GPT as a plan says, on Ray Train: the layout, numerics and step that the plan was reckoned with.

    python train.py --plan plan.json --text sonnets.txt --steps 20

Run it again with the same ``--name`` and ``--storage`` and it goes on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# before Ray is imported: nothing is reported to anyone, and Ray asks for its token
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_AUTH_MODE", "token")

import ray
import ray.train
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, get_device

import clusters
from clusters.probe import checkpoint, step
from clusters.probe.parallel import data_rank
from clusters.probe.refusals import refusal
from clusters.probe.spec import RefusedError, read_plan

HERE = Path(__file__).parent
STORAGE = Path("~/plan_runs")
NUM_BYTES = 256
COLLECTIVE_TIMEOUT_S = 300
REFUSED = 2


def main(words: list[str]) -> int:
    """Parse, check the plan, train, print where it got to."""
    args = parse(words)
    plan = json.loads(args.plan.read_text(encoding="utf-8"))
    text = args.text.read_bytes()
    scaling = scaling_config(plan)
    try:
        check(plan, text, "cuda" if scaling.use_gpu else "cpu")
    except RefusedError as error:
        print(f"cannot run {args.plan}: {error}", file=sys.stderr)
        return REFUSED
    start_ray(args.address, scaling.num_workers)
    try:
        print(json.dumps(train(args, plan, text)))
    finally:
        ray.shutdown()
    return 0


def scaling_config(plan: dict[str, Any]) -> ScalingConfig:
    """Workers of the plan: as its ``scaling_config`` says, else one GPU for each rank of the layout."""
    told = plan.get("scaling_config")
    if told:
        return ScalingConfig(**told)
    return ScalingConfig(num_workers=read_plan(plan).world_size, use_gpu=True)


def train(
    args: argparse.Namespace,
    plan: dict[str, Any],
    text: bytes,
    loop: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train on the cluster that Ray is connected to; returns what rank 0 has to say.

    ``loop``: what each worker runs, ``train_loop`` unless another example brings its own; ``more``: what
    that one needs to know.
    """
    scaling = scaling_config(plan)
    config = {
        "plan": plan,
        "text": text,
        "steps": args.steps,
        "checkpoint_every": args.checkpoint_every,
        "seed": args.seed,
        "learning_rate": args.learning_rate,
        **(more or {}),
    }
    trainer = TorchTrainer(
        loop or train_loop,
        train_loop_config=config,
        scaling_config=scaling,
        torch_config=TorchConfig(
            backend="nccl" if scaling.use_gpu else "gloo", timeout_s=COLLECTIVE_TIMEOUT_S
        ),
        run_config=RunConfig(
            name=args.name,
            storage_path=args.storage or plan.get("storage_path") or str(STORAGE.expanduser()),
            failure_config=FailureConfig(max_failures=args.max_failures, controller_failure_limit=0),
        ),
    )
    told: dict[str, Any] = trainer.fit().return_value
    return told


def train_loop(config: dict[str, Any]) -> dict[str, Any]:
    """What each worker runs: build the model, then its steps."""
    run = read_plan(config["plan"])
    trainer = step.build(run, get_device(), seed=config["seed"], learning_rate=config["learning_rate"])
    return steps(trainer, config)


def steps(trainer: step.Trainer, config: dict[str, Any]) -> dict[str, Any]:
    """Go on from the run's last checkpoint where there is one: step, report and save."""
    first = _restore(trainer)
    text = torch.frombuffer(bytearray(config["text"]), dtype=torch.uint8)
    losses: list[float] = []
    started = time.monotonic()
    for number in range(first, config["steps"]):
        batches = text_batches(trainer, text, number, config["seed"])
        losses.append(step.mean_over_ranks(step.train_step(trainer, batches)))
        done = number + 1
        metrics = {"step": done, "loss": losses[-1]}
        saved = done % config["checkpoint_every"] == 0 or done == config["steps"]
        if saved:
            _save(trainer, done, metrics)
        if ray.train.get_context().get_world_rank() == 0:
            sys.stdout.write(f"step {done}  loss {losses[-1]:.4f}\n")  # print() is doubled by Ray Train
            if saved:
                sys.stdout.write(f"checkpoint at step {done}\n")  # plan launch counts lost work from here
    seconds = (time.monotonic() - started) / max(len(losses), 1)
    return {"first_step": first, "steps_done": config["steps"], "losses": losses, "step_s": seconds}


def text_batches(trainer: step.Trainer, text: torch.Tensor, number: int, seed: int) -> list[step.Batch]:
    """Micro-batches of one step: bytes of ``text`` from places that depend on seed, step and data rank."""
    run = trainer.run
    length = run.training.seq_len + 1
    rank = data_rank(run, ray.train.get_context().get_world_rank())
    generator = torch.Generator().manual_seed((seed * 1_000_003 + number) * 4099 + rank)
    count = run.layout.grad_accum * run.layout.micro_batch
    starts = torch.randint(len(text) - length + 1, (count,), generator=generator)
    rows = torch.stack([text[start : start + length] for start in starts.tolist()]).long()
    return [step.as_batch(part, trainer) for part in rows.split(run.layout.micro_batch)]


def _restore(trainer: step.Trainer) -> int:
    """Go on from the run's last checkpoint where there is one; returns the steps done before."""
    last = ray.train.get_checkpoint()
    if last is None:
        return 0
    with last.as_directory() as directory:
        return checkpoint.load(trainer, Path(directory))


def _save(trainer: step.Trainer, done: int, metrics: dict[str, Any]) -> None:
    """Save every rank's shards; Ray merges them in the run's storage."""
    with tempfile.TemporaryDirectory() as directory:
        checkpoint.save(trainer, Path(directory), done)
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(directory))


def check(plan: dict[str, Any], text: bytes, device_type: str) -> None:
    """Raise ``RefusedError`` for what the step cannot run, before any worker starts."""
    run = read_plan(plan)
    why = refusal(run, device_type, scaling_config(plan).num_workers)
    if run.model.vocab_size < NUM_BYTES:
        why = f"text is read as bytes: a vocabulary of {run.model.vocab_size} is less than {NUM_BYTES}"
    if len(text) <= run.training.seq_len:
        why = f"the text has {len(text)} bytes, a sequence {run.training.seq_len}"
    if why:
        raise RefusedError(why)


def start_ray(address: str | None, num_workers: int) -> None:
    """Join the cluster at ``address`` and bring our package to its workers, or start Ray here."""
    if address:
        package = str(Path(clusters.__file__).parent)
        ray.init(address=address, runtime_env={"py_modules": [package]})
    else:
        ray.init(address="local", num_cpus=max(num_workers, os.cpu_count() or 1))


def parse(words: list[str]) -> argparse.Namespace:
    """Read the options of the command line."""
    return parser(__doc__ or "").parse_args(words)


def parser(about: str) -> argparse.ArgumentParser:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--plan", type=Path, default=HERE / "plan.json", help="the plan to train by")
    parser.add_argument("--text", type=Path, default=HERE / "sonnets.txt", help="text to train on, as bytes")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps in all, resumed ones included")
    parser.add_argument("--checkpoint-every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--storage", help=f"shared by all nodes; default: the plan's, else {STORAGE}")
    parser.add_argument("--name", default="train_gpt", help="the run: the same name resumes")
    parser.add_argument("--address", default=os.environ.get("RAY_ADDRESS"), help="Ray cluster; none: here")
    parser.add_argument("--max-failures", type=int, default=0, help="restarts from the last checkpoint")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
