"""A planned run on 4× L40S, what a probe measures where all is well, and small changes of it."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache

from planner.model.shapes import shape_for
from planner.probed import (
    CollectiveTiming,
    Failure,
    MeasuredSteps,
    PairTiming,
    ProbeResult,
    RankHardware,
    RankMemory,
    Reading,
)
from planner.types import Layout, Links, Offer, Run, Shape, TrainingSpec
from planner.verdict import Subject, cpu
from planner.verdict.machine import expected_and_wire
from planner.verdict.own import own_collectives
from planner.verdict.subject import estimate, num_params

NOW = datetime(2026, 12, 1, 14, 2, tzinfo=UTC)
GB = 1e9
LINKS = Links(intra="pcie4-p2p", inter="ethernet", inter_gbit_per_s=100.0)
MODEL = shape_for(1e9)
TRAINING = TrainingSpec(seq_len=2048, num_tokens=2e9)
OFFER = Offer(
    provider="aws",
    instance_type="g6e.12xlarge",
    region="us-east-1",
    market="on-demand",
    gpu="L40S",
    gpus_per_node=4,
    links=LINKS,
    usd_per_hour=Decimal("10.49"),
    source="a price list",
)


def run(layout: Layout | None = None, nodes: int = 1, **training: object) -> Run:
    return Run(
        id="p-1",
        model=MODEL,
        training=TRAINING.model_copy(update=training),
        layout=layout or Layout(dp=4 * nodes, zero_stage=3, micro_batch=4, grad_accum=4),
        shape=Shape(gpu="L40S", gpus_per_node=4, num_nodes=nodes, links=LINKS),
    )


@lru_cache(maxsize=8)
def subject(nodes: int = 1) -> Subject:
    return Subject(predicted=estimate(run(nodes=nodes)), offer=OFFER, budget_usd=Decimal(1000))


def hardware(ranks: int = 4, per_node: int = 4, **changed: object) -> tuple[RankHardware, ...]:
    return tuple(
        RankHardware.model_validate(
            {
                "rank": rank,
                "node": rank // per_node,
                "host": f"node-{rank // per_node}",
                "device": "NVIDIA L40S",
                "backend": "nccl",
                "driver": "580.65",
                "nic": "ens5",
                "transport": "P2P",
                "readings": (Reading(name="ECC errors", value="0", expected="0", passed=True),),
                **changed,
            }
        )
        for rank in range(ranks)
    )


def timings(asked: Subject, speed: float = 1.0) -> tuple[CollectiveTiming, ...]:
    """The plan's own sizes and three of a sweep, each at ``speed`` times what is expected."""
    ranks, nodes = asked.num_ranks, asked.run.shape.num_nodes
    sizes = [("all_reduce", 2**20, ""), ("all_reduce", 2**26, ""), ("all_reduce", 2**30, "")]
    sizes += [(own.op, own.bytes, own.purpose) for own in own_collectives(asked.run)]
    return tuple(timing(asked, op, size, purpose, ranks, nodes, speed) for op, size, purpose in sizes)


def timing(
    asked: Subject, op: str, size: int, purpose: str, ranks: int, nodes: int, speed: float = 1.0
) -> CollectiveTiming:
    blank = CollectiveTiming.model_validate(
        {
            "op": op,
            "scope": "all",
            "ranks": ranks,
            "nodes": nodes,
            "bytes": size,
            "time_s": 1e-3,
            "algbw_bytes_per_s": GB,
            "busbw_bytes_per_s": GB,
            "correct": True,
            "purpose": purpose,
        }
    )
    expected, _ = expected_and_wire(asked, blank)
    return blank.model_copy(update={"busbw_bytes_per_s": (expected or GB) * speed})


def steps(median_s: float, ranks: int = 4, slowest: float = 1.02, tokens: int | None = None) -> MeasuredSteps:
    layout = run().layout
    each = 4 * layout.micro_batch * layout.grad_accum * TRAINING.seq_len
    return MeasuredSteps(
        seconds=tuple(median_s * f for f in (0.99, 1.0, 1.0, 1.0, 1.0, 1.01)),
        median_s_by_rank=tuple([median_s] * (ranks - 1) + [median_s * slowest]),
        loader_s=0.001,
        tokens_per_step=tokens or each,
        loss=(10.4, 10.1, 9.8, 9.5, 9.3, 9.1, 9.0, 8.9),
    )


def memory(reserved_bytes: float, ranks: int = 4, **changed: object) -> tuple[RankMemory, ...]:
    return tuple(
        RankMemory.model_validate(
            {
                "rank": rank,
                "allocated_bytes": reserved_bytes * 0.95,
                "reserved_bytes": reserved_bytes * (1.0 if rank == ranks - 1 else 0.99),
                "device_bytes": reserved_bytes * 1.02,
                "num_alloc_retries": 0,
                "num_ooms": 0,
                **changed,
            }
        )
        for rank in range(ranks)
    )


def result(asked: Subject | None = None, **changed: object) -> ProbeResult:
    """Everything as predicted."""
    asked = asked or subject()
    predicted = asked.predicted
    assert predicted.memory is not None
    assert predicted.speed is not None
    return ProbeResult.model_validate(
        {
            "started": NOW,
            "wall_s": 241.0,
            "phase_s": {"start": 30.0, "hardware": 5.0, "collectives": 60.0, "steps": 140.0},
            "versions": {"ray": "2.60.0", "torch": "2.13.0", "nccl": "2.28.9"},
            "num_nodes": asked.run.shape.num_nodes,
            "num_ranks": asked.num_ranks,
            "num_layers": asked.run.model.num_layers,
            "num_params": num_params(asked.run, asked.run.model.num_layers),
            "hardware": hardware(asked.num_ranks),
            "collectives": timings(asked),
            "memory": memory(predicted.memory.reserved_bytes.mid, asked.num_ranks),
            "steps": steps(predicted.speed.step_s.mid, asked.num_ranks),
            **changed,
        }
    )


def oom(rank: int = 3, phase: str = "steps") -> Failure:
    return Failure(
        kind="oom", phase=phase, rank=rank, node="node-0", bytes_asked=2.0 * 2**30, bytes_free=0.5 * 2**30
    )


def pairs(
    slow_rank: int, ranks: int = 3, fast: float = 0.12 * GB, slow: float = 0.02 * GB
) -> tuple[PairTiming, ...]:
    return tuple(
        PairTiming(rank_a=a, rank_b=b, bytes=2**24, busbw_bytes_per_s=slow if slow_rank in (a, b) else fast)
        for a in range(ranks)
        for b in range(a + 1, ranks)
    )


def cpu_subject() -> Subject:
    model = shape_for(1e7)
    asked = cpu.run(model, TrainingSpec(seq_len=128, precision="fp32"), Layout(dp=2, micro_batch=2))
    return Subject(predicted=cpu.estimate(asked))


def cpu_result(asked: Subject, **changed: object) -> ProbeResult:
    predicted = asked.predicted.memory
    assert predicted is not None
    own = own_collectives(asked.run)
    return ProbeResult.model_validate(
        {
            "started": NOW,
            "wall_s": 61.0,
            "phase_s": {"start": 20.0, "hardware": 1.0, "collectives": 12.0, "memory": 9.0, "steps": 12.0},
            "versions": {"ray": "2.60.0", "torch": "2.13.0"},
            "num_nodes": 1,
            "num_ranks": 2,
            "num_layers": asked.run.model.num_layers,
            "num_params": num_params(asked.run, asked.run.model.num_layers),
            "hardware": hardware(
                2, 2, device="a processor", backend="gloo", driver=None, transport="gloo over loopback"
            ),
            "collectives": tuple(timing(asked, o.op, o.bytes, o.purpose, 2, 1) for o in own),
            "memory": memory(
                predicted.reserved_bytes.mid * 0.92,
                2,
                allocated_bytes=None,
                device_bytes=None,
                num_alloc_retries=None,
                num_ooms=None,
            ),
            "steps": steps(0.6, 2, tokens=512),
            **changed,
        }
    )
