"""Runs collectives on gloo ranks for ``test_collectives.py`` and the lab: cases in on stdin, results as JSON.

``local``: all ranks here, as processes. ``rank R``: this process is rank R, the others are on other hosts.
"""

import json
import sys
import tempfile
import warnings
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from clusters.probe import place as places
from clusters.probe.collectives import slowest_pairs, sweep
from clusters.probe.collectives.culprits import find_culprits
from clusters.probe.request import PlanCollective

CPU = torch.device("cpu")


def spoil(how: str) -> None:
    """Make this rank's sums wrong: the value that it adds, or the value that it is left with."""
    honest = dist.all_reduce

    def wrong(tensor: torch.Tensor, *args: object, **more: object) -> None:
        if how == "input":
            tensor[0] += 1
        honest(tensor, *args, **more)
        if how == "output":
            tensor[-1] += 1

    dist.all_reduce = wrong


def measure(case: dict, place: places.Place) -> object:
    if case["kind"] == "pairs":
        return [asdict(pair) for pair in slowest_pairs(place, case["bytes"], case["budget_s"])]
    if case["kind"] == "culprits":
        return find_culprits(place)
    own = [PlanCollective(**each) for each in case.get("own", [])]
    said: list[tuple[int, int]] = []
    found = sweep(
        place,
        case["sizes"],
        own,
        case["budget_s"],
        repeats=case.get("repeats", 3),
        report=lambda done, of: said.append((done, of)),
    )
    return {**asdict(found), "said": said}


def run(rank: int, asked: dict) -> dict:
    """All cases on this rank, in the process group that is up."""
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    place = places.find_place(asked["nodes"][rank], f"host{asked['nodes'][rank]}", CPU)
    if rank == asked.get("spoiler"):
        spoil(asked["how"])
    results = {name: measure(case, place) for name, case in asked["cases"].items()}
    every: list[dict] = [{}] * place.num_ranks
    dist.all_gather_object(every, results)
    return {**results, "alike": all(each == results for each in every)}


def rank_main(rank: int, folder: str, asked: dict) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=len(asked["nodes"])
    )
    found = run(rank, asked)
    if rank == 0:
        Path(folder, "results.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    if sys.argv[1] == "rank":
        rank = int(sys.argv[2])
        dist.init_process_group("gloo", init_method=asked["store"], rank=rank, world_size=len(asked["nodes"]))
        found = run(rank, asked)
        print(json.dumps(found))
        dist.destroy_process_group()
    else:
        with tempfile.TemporaryDirectory() as scratch:
            mp.start_processes(
                rank_main, (scratch, asked), nprocs=len(asked["nodes"]), start_method="fork"
            )  # forked: each rank has torch already
            print(Path(scratch, "results.json").read_text())
