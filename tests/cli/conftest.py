"""A small fixed answer, made by hand: screens and documents are tested without the search."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from planner.results import (
    Candidate,
    CostLine,
    Estimate,
    MemoryEstimate,
    MemoryParts,
    Rejection,
    SkippedProvider,
    SpeedEstimate,
    SpeedParts,
    Suggestion,
)
from planner.types import Band, Goal, Layout, Links, ModelSpec, Offer, Run, Shape, TrainingSpec

GIB = 2**30
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

MODEL = ModelSpec(
    name="1B",
    num_layers=17,
    hidden_size=2048,
    num_heads=16,
    num_kv_heads=16,
    head_dim=128,
    ffn_size=5632,
    vocab_size=32000,
)
TRAINING = TrainingSpec(seq_len=2048, num_tokens=20e9, global_batch_tokens=262_144)


def band(mid: float, spread: float = 0.1) -> Band:
    return Band(low=mid * (1 - spread), mid=mid, high=mid * (1 + spread))


def memory(usable_gib: float | None, fill: float) -> MemoryEstimate:
    shares = {
        "parameters": 0.14,
        "gradients": 0.1,
        "optimizer": 0.2,
        "activations": 0.4,
        "logits": 0.07,
        "gathered": 0.0,
        "communication": 0.01,
        "context": 0.02,
        "allocator_slack": 0.06,
    }
    device = (usable_gib or 40) * GIB * fill
    return MemoryEstimate(
        parts_bytes=MemoryParts(**{k: v * device for k, v in shares.items()}),
        allocated_bytes=band(device * 0.91, 0.05),
        reserved_bytes=band(device * 0.97, 0.05),
        device_bytes=band(device, 0.05),
        peak_at="backward",
        usable_bytes=None if usable_gib is None else usable_gib * GIB,
        fits=None if usable_gib is None else fill < 1,
        safe=None if usable_gib is None else fill * 1.05 < 1,
        host_bytes=12 * GIB,
        load_bytes=8 * GIB,
    )


def speed(step_s: float, num_gpus: int, link: str | None = None, share: float = 0.0) -> SpeedEstimate:
    waiting = share * step_s
    rest = step_s - waiting
    return SpeedEstimate(
        parts_s=SpeedParts(
            matmul=0.7 * rest,
            attention=0.1 * rest,
            memory_bound=0.1 * rest,
            exposed_communication=waiting,
            bubble=0.0,
            optimizer=0.06 * rest,
            overhead=0.04 * rest,
        ),
        step_s=band(step_s, 0.12),
        tokens_per_s_per_gpu=band(262_144 / step_s / num_gpus, 0.12),
        mfu=0.41,
        hfu=0.41,
        limiting_link=link,
        limiting_link_share=share,
    )


def offer(
    provider: str, instance: str, gpu: str, per_node: int, price: str, days: float | None, **more: object
) -> Offer:
    fields = {
        "provider": provider,
        "instance_type": instance,
        "region": "us-east-1",
        "market": "on-demand",
        "gpu": gpu,
        "gpus_per_node": per_node,
        "links": Links(intra="nvlink4-nvswitch" if per_node > 1 else "none", inter="ethernet"),
        "usd_per_hour": Decimal(price),
        "price_seen": None if days is None else NOW - timedelta(days=days),
        "source": "a price list",
        **more,
    }
    return Offer.model_validate(fields)


def candidate(
    rank: int,
    verdict: str,
    offer_: Offer,
    layout: Layout,
    mem: MemoryEstimate,
    spd: SpeedEstimate,
    **more: object,
) -> Candidate:
    num_nodes = layout.dp * layout.tp * layout.pp * layout.cp // offer_.gpus_per_node
    shape = Shape(gpu=offer_.gpu, gpus_per_node=offer_.gpus_per_node, num_nodes=num_nodes, links=offer_.links)
    hours = 20e9 / 262_144 * spd.step_s.mid / 3600
    cost = hours * float(offer_.usd_per_hour or 0) * num_nodes
    fields = {
        "id": f"p-{rank:08x}",
        "rank": rank,
        "verdict": verdict,
        "why": "",
        "offer": offer_,
        "num_nodes": num_nodes,
        "run": Run(id=f"p-{rank:08x}", model=MODEL, training=TRAINING, layout=layout, shape=shape),
        "memory": mem,
        "speed": spd,
        "hours": band(hours, 0.12),
        "cost_usd": band(cost, 0.12),
        "cost_is_complete": True,
        "cost_lines": (
            CostLine(
                name="compute",
                quantity=hours,
                unit="node hour",
                usd_per_unit=offer_.usd_per_hour,
                usd=band(cost, 0.12),
            ),
            CostLine(
                name="egress", quantity=None, unit="GB", usd_per_unit=None, usd=None, note="amount not known"
            ),
        ),
        **more,
    }
    return Candidate.model_validate(fields)


def choices() -> tuple[Candidate, ...]:
    return (
        candidate(
            1,
            "ok",
            offer(
                "verda", "1H100.80S.30V", "H100-SXM5-80GB", 1, "1.70", 0.125, market="spot", region="FIN-01"
            ),
            Layout(micro_batch=8, grad_accum=16),
            memory(79.1, 0.493),
            speed(4.76, 1),
        ),
        candidate(
            2,
            "ok",
            offer(
                "aws",
                "p4d.24xlarge",
                "A100-SXM4-40GB",
                8,
                "21.96",
                40,
                links=Links(intra="nvlink3-nvswitch", inter="efa-v1"),
            ),
            Layout(dp=16, zero_stage=3, shard_group=8, micro_batch=2, grad_accum=4, recompute="selective"),
            memory(39.4, 0.62),
            speed(0.52, 16, "efa-v1", 0.18),
            warnings=("no measured run on A100-SXM4-40GB in hsdp: the bands are wider",),
        ),
        candidate(
            3,
            "tight",
            offer("runpod", "RTX PRO 6000 WS", "RTX PRO 6000 Blackwell WS", 2, "3.58", None, region="CA"),
            Layout(dp=1, tp=2, micro_batch=8, grad_accum=16),
            memory(94.9, 0.31),
            speed(3.1, 2, "pcie5-p2p", 0.32),
            why="the upper end of cost, $219, is over the budget of $200",
            cost_is_complete=False,
        ),
    )


def suggestion_of(candidates: tuple[Candidate, ...], **more: object) -> Suggestion:
    fields = {
        "model": MODEL,
        "training": TRAINING,
        "goal": Goal(budget_usd=Decimal(200)),
        "assumptions": ("20 tokens per parameter", "plain cross-entropy"),
        "candidates": candidates,
        "rejections": (
            Rejection(
                reason="memory",
                count=702,
                nearest="nearest 1× RTX 4090: needs 27.9 of 23.5 GiB",
                rescue="--recompute full",
                rescue_verdict="tight",
            ),
            Rejection(
                reason="budget",
                count=431,
                nearest="nearest 8× H100-SXM5-80GB lambda: $231 (201–266), 13 h",
                rescue="--budget 270",
                rescue_verdict="ok",
            ),
            Rejection(reason="price", count=12, nearest="price unknown (azure 9, gcp 3)", rescue=None),
        ),
        "rescues": (),
        "skipped_providers": (
            SkippedProvider(provider="azure", reason="no credentials (AZURE_SUBSCRIPTION_ID)"),
        ),
        "num_offers": 412,
        "num_layouts": 31_200,
        "layouts_by_family": {"single": 200, "ddp": 1000, "fsdp": 30_000},
        **more,
    }
    return Suggestion.model_validate(fields)


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def suggestion() -> Suggestion:
    return suggestion_of(choices())


@pytest.fixture
def nothing_fits() -> Suggestion:
    over = tuple(
        c.model_copy(update={"verdict": "over", "why": f"costs {100 * c.rank} USD more than the budget"})
        for c in choices()
    )
    rescues = ("--tokens 6.4B   aws p4d.24xlarge, $172 (150–198)", "--budget 570   runpod RTX PRO 6000 WS")
    return suggestion_of(over, rescues=rescues)


@pytest.fixture
def estimate() -> Estimate:
    first = choices()[1]
    return Estimate(run=first.run, memory=first.memory, speed=first.speed, warnings=("no price",))


@pytest.fixture
def candidates() -> tuple[Candidate, ...]:
    return choices()
