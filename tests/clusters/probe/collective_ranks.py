"""Collectives and hardware checks on gloo ranks, for tests and the lab: cases in on stdin, results as JSON.

``local``: all ranks here, as processes. ``rank R``: this process is rank R, the others are on other hosts.
"""

import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from clusters.probe import hardware
from clusters.probe import place as places
from clusters.probe.collectives import Sweep, slowest_pairs, sweep
from clusters.probe.collectives.exchanges import OPS
from clusters.probe.collectives.sweeping import Report
from clusters.probe.hardware import host
from clusters.probe.request import Expected, PlanCollective

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")


def on_ranks(nodes: list[int], cases: dict[str, dict]) -> dict:
    """Run cases on as many gloo ranks as ``nodes`` has numbers."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.clusters.probe.collective_ranks", "local"],
        cwd=ROOT,
        input=json.dumps({"nodes": nodes, "cases": cases}),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found.pop("alike"), "ranks disagree about what was measured"
    return found


@contextmanager
def spoilt(how: str) -> Iterator[None]:
    """Make sums of this rank wrong (the value that it adds, or is left with), or its version of Python."""
    honest, version = dist.all_reduce, host.platform.python_version

    def wrong(tensor: torch.Tensor, *args: object, **more: object) -> None:
        if how == "input":
            tensor[0] += 1
        honest(tensor, *args, **more)
        if how == "output":
            tensor[-1] += 1

    if how == "version":
        host.platform.python_version = lambda: "2.7.18"
    else:
        dist.all_reduce = wrong
    yield
    dist.all_reduce, host.platform.python_version = honest, version


def measure(case: dict, place: places.Place) -> object:
    if case["kind"] == "pairs":
        return [asdict(pair) for pair in slowest_pairs(place, case["bytes"], case["budget_s"])]
    if case["kind"] == "hardware":
        told: list[dict] = [{}] * place.num_ranks
        dist.all_gather_object(told, asdict(hardware.read(Expected(**case["expected"]), place)))
        return told
    if case["kind"] == "best":
        return best(case, place)
    said: list[tuple[int, int]] = []
    found = timed(case, place, lambda done, of: said.append((done, of)))
    return {**asdict(found), "said": said}


def timed(case: dict, place: places.Place, report: Report = lambda done, of: None) -> Sweep:
    return sweep(
        place,
        case["sizes"],
        [PlanCollective(**each) for each in case.get("own", [])],
        case["budget_s"],
        ops=case.get("ops", OPS),
        repeats=case.get("repeats", 3),
        report=report,
    )


def best(case: dict, place: places.Place) -> dict[str, float]:
    """Best rate of each operation at sizes from ``least_bytes``, measured until all reach ``enough``.

    Other work on this machine can only lower a rate: the best of several tries is the link's.
    """
    found: dict[str, float] = {}
    for _ in range(case["tries"]):
        for t in timed(case, place).timings:
            if t.bytes >= case["least_bytes"]:
                found[t.op] = max(found.get(t.op, 0.0), t.busbw_bytes_per_s)
        if all(rate >= case["enough"] for rate in found.values()):
            break
    return found


def run(rank: int, asked: dict) -> dict:
    """All cases on this rank, in the process group that is up."""
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    place = places.find_place(asked["nodes"][rank], f"host{asked['nodes'][rank]}", CPU)
    results = {}
    for name, case in asked["cases"].items():
        with spoilt(case["spoilt"]) if rank == case.get("spoiler") else nullcontext():
            results[name] = measure(case, place)
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
