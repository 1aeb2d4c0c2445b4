"""What a node is, read from the node itself and compared with what the plan takes it to be.

Every check fails closed: an absent tool, one that hangs, or a value that makes no sense is a reading whose
value is ``None``, which did not pass, with the reason. What the plan expects nothing of is shown, never
judged. Readings of a node as a whole (its number of GPUs, their matrix) are those of its first rank.
"""

from __future__ import annotations

import torch.distributed as dist

from ..place import Place
from ..request import Expected
from ..results import RankHardware, Reading
from .across import clock_reading, compare
from .gpu import Card, busy, card_readings, read_card
from .host import adapter_name, cpu_name, host_readings
from .node import node_readings
from .tools import unread
from .transport import nccl_environment, transport_readings

__all__ = ["nccl_environment", "read"]

TOOL_TIMEOUT_S = 15.0


def read(expected: Expected, place: Place, timeout_s: float = TOOL_TIMEOUT_S) -> RankHardware:
    """Read and judge the hardware of this rank; all ranks of the default group call this together.

    Never raises for what a machine lacks. Readings that must be the same on all ranks name the odd one.
    ``timeout_s``: what each tool may take.
    """
    card = read_card(place.device) if place.device.type == "cuda" else None
    readings = [*_gpu(expected, place, card, timeout_s), *host_readings(expected, place)]
    transport, said = transport_readings(expected, dist.get_backend(), place.num_nodes)
    readings = [*readings, *said, clock_reading(place)]
    return RankHardware(
        rank=place.rank,
        node=place.node,
        host=place.host,
        device=card.name if card else cpu_name(),
        backend="gloo" if dist.get_backend() == "gloo" else "nccl",
        driver=next((r.value for r in readings if r.name == "driver"), None),
        nic=adapter_name().text,
        transport=transport,
        readings=compare(readings, place),
    )


def _gpu(expected: Expected, place: Place, card: Card | None, timeout_s: float) -> list[Reading]:
    """Readings of the GPU and, on the first rank of a node, of all its GPUs; none where none is expected."""
    if card is None:
        if not expected.gpus_per_node:
            return []
        return [unread("GPU", f"rank {place.rank} on {place.host} runs without a GPU", expected.gpu)]
    readings = []
    if place.local_rank == 0:
        readings = node_readings(expected, place.host, timeout_s)
    with busy(place.device):
        return [*readings, *card_readings(expected, card, timeout_s)]
