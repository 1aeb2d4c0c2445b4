"""Runs training steps on several gloo ranks for ``test_step.py``: cases in on stdin, results out as JSON.

A script of its own: the ranks are processes, and the process group needs sockets.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.tensor import DTensor

from clusters.probe import checkpoint, parallel, spec, step


def local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def state_bytes(trainer: step.Trainer) -> int:
    """Bytes of optimizer states that this rank holds."""
    parts = [getattr(part, "optim", part) for part in trainer.optimizer.parts]
    states = [tensor for part in parts for state in part.state.values() for tensor in state.values()]
    return sum(local(t).numel() * t.element_size() for t in states if torch.is_tensor(t) and t.dim())


def measure(case: dict, folder: Path) -> dict:
    run = spec.read_plan(case)
    trainer = step.build(run, torch.device("cpu"), seed=case.get("seed", 0), learning_rate=1e-2)
    first = checkpoint.load(trainer, folder / case["load"]) if "load" in case else 0
    evaluated = step.mean_over_ranks(step.evaluate(trainer, step.synthetic_batches(trainer, 0)))
    losses = []
    for number in range(first, first + case.get("steps", 3)):
        loss = step.train_step(trainer, step.synthetic_batches(trainer, number % 2))
        losses.append(step.mean_over_ranks(loss))
        if case.get("save") and number == 1:
            checkpoint.save(trainer, folder / case["save"], number + 1)
    parameters = list(parallel.unwrap(trainer.model).parameters())
    return {
        "losses": losses,
        "first": first,
        "evaluated": evaluated,
        "weight_bytes": sum(local(p).numel() * p.element_size() for p in parameters),
        "state_bytes": state_bytes(trainer),
    }


def rank_main(rank: int, world: int, folder: str, cases: dict) -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)  # ZeRO's module uses it
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=world)
    results = {}
    for name, case in cases.items():
        try:
            results[name] = measure(case, Path(folder))
        except ValueError as error:
            results[name] = {"refused": str(error)}
    if rank == 0:
        Path(folder, "results.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        world = int(sys.argv[1])
        # forked: each rank has torch already
        mp.start_processes(
            rank_main, (world, scratch, json.load(sys.stdin)), nprocs=world, start_method="fork"
        )
        print(Path(scratch, "results.json").read_text())
