"""What runs on the workers of ``test_job.py``: a user's loop, and a rank that adds wrongly."""

import os
import signal
import time

import torch
import torch.distributed as dist

from clusters.probe import worker

_calls = []


def trains_then_dies(context) -> None:
    """A user's loop that learns one number; when it is called again its second rank is killed.

    Linux kills a process like that where memory is short.
    """
    _calls.append(context)
    weight = torch.ones(1, requires_grad=True)
    while True:
        with context.loading():
            target = torch.zeros(1)
        loss = (weight - target).pow(2).sum()
        loss.backward()
        if len(_calls) > 1 and context.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(weight.grad)
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
        if not context.step_done(loss):
            break


def sleeps(context) -> None:
    """A loop that never ends."""
    while context.rank >= 0:
        time.sleep(1)


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
