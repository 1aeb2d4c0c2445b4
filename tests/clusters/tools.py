"""Plans made by hand, one for each provider and market, and what walks through a document."""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from clusters.config.choices import Choices, Format
from planner.results import Plan
from planner.types import Layout, Links
from tests.cli.conftest import candidate, memory, offer, speed

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


def choices(**more: object) -> Choices:
    fields = {
        "made": NOW,
        "deadline": NOW + timedelta(hours=48),
        "owner": "ada",
        "launch_id": "l-01",
        "subnet": "subnet-0123456789abcdef0",
        "security_group": "sg-0123456789abcdef0",
        "ssh_from": "203.0.113.7/32",
        **more,
    }
    return Choices.model_validate(fields)


def plan(
    provider: str = "aws",
    instance: str = "g6e.12xlarge",
    gpu: str = "L40S",
    per_node: int = 4,
    nodes: int = 1,
    market: str = "on-demand",
    region: str = "us-east-1",
    **more: object,
) -> Plan:
    shown = offer(
        provider,
        instance,
        gpu,
        per_node,
        "10.00",
        1,
        market=market,
        region=region,
        **{"vcpus": 48, "links": Links(intra="pcie4-p2p", inter="ethernet"), **more},
    )
    chosen = candidate(
        1,
        "ok",
        shown,
        Layout(dp=per_node * nodes, zero_stage=3, micro_batch=1),
        memory(45.0, 0.5),
        speed(1.0, 8),
    )
    chosen = chosen.model_copy(update={"id": "p-0123456789ab"})
    return Plan(id=chosen.id, created=NOW, command="plan suggest", candidate=chosen)


def big(nodes: int = 2, market: str = "on-demand") -> Plan:
    return plan("aws", "p5.48xlarge", "H100-SXM5-80GB", 8, nodes, market, vcpus=192)


def gcp(nodes: int = 1, market: str = "on-demand", machine: str = "a3-megagpu-8g") -> Plan:
    return plan("gcp", machine, "H100-SXM5-80GB", 8, nodes, market, "us-central1", vcpus=208)


def azure(nodes: int = 1, market: str = "on-demand") -> Plan:
    return plan("azure", "Standard_ND96isr_H100_v5", "H100-SXM5-80GB", 8, nodes, market, "eastus", vcpus=96)


def rented(nodes: int = 2) -> Plan:
    return plan("lambda", "gpu_8x_h100_sxm5", "H100-SXM5-80GB", 8, nodes, region="us-west-1", vcpus=None)


HOSTS = ("10.77.0.2", "10.77.0.3")
CASES: dict[str, tuple[Plan, Choices, Format]] = {
    "aws-on-demand": (plan(nodes=2), choices(), "aws"),
    "aws-spot": (plan(market="spot"), choices(), "aws"),
    "aws-capacity-block-efa": (big(2, "capacity-block"), choices(reservation="cr-0123456789abcdef0"), "aws"),
    "aws-reservation-session-manager": (
        big(2),
        choices(session_manager=True, reservation="cr-0123456789abcdef0", storage="s3://bucket/runs"),
        "aws",
    ),
    "aws-cpu-head": (plan(nodes=2), choices(cpu_head=True), "aws"),
    "gcp-on-demand": (
        gcp(),
        choices(subnet=None, project="lab", ssh_public_key="ssh-ed25519 A"),
        "gcp",
    ),
    "gcp-spot-tcpxo": (gcp(2, "spot"), choices(subnet=None, project="lab", reservation="mine"), "gcp"),
    "azure-on-demand": (azure(), choices(subscription="00000000-0000-0000-0000-000000000001"), "azure"),
    "azure-spot": (azure(2, "spot"), choices(spot_cap_usd_per_hour="40", cpu_head=True), "azure"),
    "local": (rented(), choices(hosts=HOSTS), "local"),
    "kuberay": (big(2), choices(), "kuberay"),
}


def misspelt(document: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each document that differs from the given one in one letter of one key, with the place of the key."""
    if isinstance(document, dict):
        for key in document:
            wrong = {(_wrong(k) if k == key else k): copy.deepcopy(v) for k, v in document.items()}
            yield f"{path}.{key}", wrong
            for place, inner in misspelt(document[key], f"{path}.{key}"):
                yield place, {**document, key: inner}
    elif isinstance(document, list):
        for i, item in enumerate(document):
            for place, inner in misspelt(item, f"{path}[{i}]"):
                yield place, [*document[:i], inner, *document[i + 1 :]]


def _wrong(key: str) -> str:
    return key[:-1] if len(key) > 2 else key + "x"
