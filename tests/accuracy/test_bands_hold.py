"""Bands against measured runs: 80 % intervals hold about 80 % of them, overall and in each large class."""

import answering
import make_bands
import pytest
import scoring

from planner import bands
from planner.gpus import gpu

SIZEABLE = 30


def inside(name: str) -> list[tuple[scoring.Case, bool]]:
    """Whether each measured figure lies in its band."""
    held = []
    for case, estimate in answering.answers("memory" if name == "memory" else "throughput").answered:
        if name == "memory":
            kind = case.measured.get("memory_kind") or answering.UNSAID_MEMORY_KIND
            band, value = getattr(estimate.memory, f"{kind}_bytes"), case.measured.get("peak_memory_gib")
            value = value and value * scoring.GIB
        else:
            band, value = estimate.speed.tokens_per_s_per_gpu, case.measured.get("tokens_per_s_per_gpu")
        if value:
            held.append((case, band.low <= value <= band.high))
    return held


@pytest.mark.parametrize("name", ["memory", "step"])
def test_four_bands_of_five_hold_what_was_measured(name: str) -> None:
    by_id = make_bands.runs()
    held = inside(name)
    share = sum(ok for _, ok in held) / len(held)
    print(f"\n{name}: {share:.0%} of {len(held)}")
    members: dict[str, list[bool]] = {}
    for case, ok in held:
        run = by_id[case.id]
        num_gpus = run.shape.gpus_per_node * run.shape.num_nodes
        scale = bands.scale_of(num_gpus, run.shape.num_nodes)
        for key in (
            run.shape.gpu,
            gpu(run.shape.gpu).gpu_class,
            bands.method_class(run.training.method),
            scale,
        ):
            members.setdefault(key, []).append(ok)
    for key, oks in sorted(members.items()):
        if len(oks) >= SIZEABLE:
            print(f"  {key}: {sum(oks) / len(oks):.0%} of {len(oks)}")
            assert sum(oks) / len(oks) >= 0.65, key
    assert 0.72 <= share <= 0.93
