"""Measured bus bandwidth is that of links of a known rate, and a host with a slow link is named.

Hosts are network namespaces, joined by links that the kernel shapes; gloo is the real one.
"""

import os

import pytest

from clusters.probe import progress
from planner.hardware.expected import expected_busbw_bytes_per_s, slow_ranks, wire_busbw_bytes_per_s
from planner.probed import CollectiveTiming, PairTiming, ProbeResult
from planner.types import Links
from tests.clusters import lab_links, lab_ray

WHY_NOT = lab_links.why_not()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")

GBIT = 1e9 / 8
OPS = ["all_reduce", "scatter", "send_recv"]
SWEEP = {"kind": "sweep", "sizes": [2**10, 2**24], "ops": OPS, "budget_s": 100, "repeats": 2}
BEST = {
    **SWEEP,
    "kind": "best",
    "sizes": [2**10, 2**25],
    "least_bytes": 2**24,
    "enough": 0.955 * GBIT,
    "tries": 8,
}
PAIRS = {"kind": "pairs", "bytes": 2**23, "budget_s": 100}
LINK = Links(intra="none", inter="ethernet", inter_gbit_per_s=1.0)


@pytest.mark.parametrize("hosts", [2, 3])
def test_bus_bandwidth_is_within_five_percent_of_a_gigabit_link(hosts):
    best = lab_links.measure(["1gbit"] * hosts, {"best": BEST})["best"]
    assert set(best) == set(OPS)
    for op, rate in best.items():
        assert rate == pytest.approx(GBIT, rel=0.05), op
        assert wire_busbw_bytes_per_s(op, hosts, 1, LINK) == pytest.approx(GBIT)


def test_a_host_with_a_slow_link_disappoints_and_is_named():
    found = lab_links.measure(["1gbit", "200mbit", "1gbit"], {"sweep": SWEEP, "pairs": PAIRS})
    whole = [CollectiveTiming.model_validate(t) for t in found["sweep"]["timings"]]
    (total,) = [t for t in whole if t.op == "all_reduce" and t.bytes > 2**20]
    expected = expected_busbw_bytes_per_s("all_reduce", total.bytes, 3, 1, LINK, 1)
    assert expected is not None
    assert total.busbw_bytes_per_s < 0.21 * GBIT < expected / 2
    assert total.correct
    pairs = [PairTiming.model_validate(p) for p in found["pairs"]]
    assert {(p.rank_a, p.rank_b) for p in pairs[:2]} == {(0, 1), (1, 2)}
    assert slow_ranks(pairs, {0: 0, 1: 1, 2: 2}) == (1,)


@pytest.mark.skipif(not os.environ.get("PLAN_LONG_LABS"), reason="two minutes: PLAN_LONG_LABS=1 runs it")
def test_the_probes_job_on_a_ray_cluster_of_two_hosts_measures_their_link(tmp_path):
    model = {
        "name": "tiny", "num_layers": 2, "hidden_size": 64, "num_heads": 4, "num_kv_heads": 4,
        "head_dim": 16, "ffn_size": 128, "vocab_size": 256,
    }  # fmt: skip
    run = {"model": model, "training": {"seq_len": 128, "precision": "fp32"}, "layout": {"dp": 2}}
    request = {
        "plan": {"run": run},
        "use_gpu": False,
        "num_workers": 2,
        "phases": ["hardware", "collectives"],
        "max_collective_bytes": 2**24,
        "collectives_s": 120.0,
        "expected": {"transport": "gloo"},
        "probe_timeout_s": 400.0,
    }
    said = lab_ray.probe(["1gbit", "1gbit"], request, tmp_path)
    (line,) = filter(None, map(progress.read_result, said.splitlines()))
    result = ProbeResult.model_validate_json(line)
    assert result.failures == ()
    assert [(h.rank, h.node, h.transport, h.nic) for h in result.hardware] == [
        (0, 0, "gloo", "eth0"),
        (1, 1, "gloo", "eth0"),
    ]
    skews = [r for h in result.hardware for r in h.readings if r.name == "clock skew"]
    assert all(r.passed for r in skews), skews
    total = [t for t in result.collectives if t.op == "all_reduce" and t.bytes == 2**24]
    assert [(t.scope, t.nodes, t.correct) for t in total] == [("all", 2, True)]
    # what Ray does meanwhile on this machine takes processor time: the link itself is measured above
    assert 0.5 * GBIT < total[0].busbw_bytes_per_s < 1.05 * GBIT
    assert [(p.rank_a, p.rank_b) for p in result.pairs] == [(0, 1)]
