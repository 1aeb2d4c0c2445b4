"""What runs on the workers of ``test_probe_job.py``: loops of a user, and a rank that adds wrongly."""

import os
import signal

import torch
import torch.distributed as dist

from clusters.probe import worker


def trains(context) -> None:
    """A user's loop that learns one number."""
    weight = torch.ones(1, requires_grad=True)
    while True:
        with context.loading():
            target = torch.zeros(1)
        loss = (weight - target).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            dist.all_reduce(weight.grad)
            weight -= 0.1 * weight.grad
            weight.grad = None
        if not context.step_done(loss):
            break


def dies(context) -> None:
    """A loop whose second rank is killed, as Linux does where memory is short."""
    context.step_done(1.0)
    if context.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def spoils(config: dict) -> dict:
    """The probe's own work, on ranks of which the second is left with wrong sums."""
    honest = dist.all_reduce

    def wrong(tensor: torch.Tensor, *args: object, **more: object) -> object:
        done = honest(tensor, *args, **more)
        tensor[-1] += 1
        return done

    if dist.get_rank() == 1:
        dist.all_reduce = wrong
    return worker.work(config)
