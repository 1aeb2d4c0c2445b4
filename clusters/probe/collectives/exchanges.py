"""Each collective with buffers of one size and the values that it must leave in them.

``bytes`` as nccl-tests counts them (NVIDIA/nccl-tests, doc/PERFORMANCE.md): the reduced buffer of AllReduce,
what every rank ends with (AllGather) or starts with (ReduceScatter), the root's buffer (Broadcast, Scatter,
Gather), one rank's buffer (All-to-all), what one rank sends (send/receive, to the next rank of the ring).

Values are small whole numbers, so that sums are exact in fp32 in whatever order they are taken, and differ
by place and by rank, so that a chunk from the wrong rank or at the wrong place is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from ..place import settle
from ..results import Collective
from .groups import Group

ELEMENT_BYTES = 4  # fp32: what DDP reduces
PERIOD = 7  # of the values by place; shares no factor with chunk sizes of powers of two
MOST_BUFFERS = 6  # of the buffer's size that one operation holds while its values are checked
OPS: tuple[Collective, ...] = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "scatter",
    "gather",
    "all_to_all",
    "send_recv",
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective, ready to run. ``source`` is filled with ``sent`` before it; ``target`` must be ``due``.

    ``target`` is ``source`` where the operation works in place; ``None`` where this rank receives nothing.
    """

    bytes: int
    source: Tensor
    sent: Tensor
    target: Tensor | None
    due: Tensor | None
    run: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What all operations share: values by place, and this rank among those of the group."""

    base: Tensor
    pg: ProcessGroup
    me: int
    size: int

    def chunk(self, index: int) -> Tensor:
        """The part of the values that belongs to rank ``index`` of the group."""
        width = self.base.numel() // self.size
        return self.base[index * width : (index + 1) * width]

    def chunks(self, weigh: Callable[[int], float]) -> Tensor:
        """All parts one after the other, each times its rank's weight."""
        return torch.cat([self.chunk(i) * weigh(i) for i in range(self.size)])


def bus_factor(op: Collective, ranks: int) -> float:
    """Factor from algorithm to bus bandwidth (NVIDIA/nccl-tests, doc/PERFORMANCE.md)."""
    if op == "all_reduce":
        return 2.0 * (ranks - 1) / ranks
    if op in ("reduce_scatter", "all_gather", "scatter", "gather", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0


def prepare(op: Collective, bytes_: int, group: Group, rank: int, device: torch.device) -> Exchange:
    """Set buffers of about ``bytes_`` up (whole elements for each rank); ``rank`` must be in the group."""
    assert group.pg is not None
    per_rank = max(1, bytes_ // ELEMENT_BYTES // group.size)
    count = per_rank * group.size
    period = torch.arange(1.0, PERIOD + 1, device=device)
    base = period.repeat(-(-count // PERIOD))[:count]
    frame = _Frame(base, group.pg, group.ranks.index(rank), group.size)
    return _BUILDERS[op](frame, group)


def is_correct(exchange: Exchange, device: torch.device) -> bool:
    """Run once from known values and compare all that this rank received."""
    refill(exchange)
    if exchange.target is not None and exchange.target is not exchange.source:
        exchange.target.fill_(-1.0)
    exchange.run()
    settle(device)
    return exchange.target is None or exchange.due is None or torch.equal(exchange.target, exchange.due)


def refill(exchange: Exchange) -> None:
    """Put the values to send back: what works in place has changed them."""
    exchange.source.copy_(exchange.sent)


def _weight(index: int) -> float:
    """What the values of rank ``index`` are multiplied by."""
    return index + 1.0


def _sum_of_weights(size: int) -> float:
    return size * (size + 1) / 2.0


def _all_reduce(f: _Frame, group: Group) -> Exchange:
    source, sent = torch.empty_like(f.base), f.base * _weight(f.me)
    due = f.base * _sum_of_weights(f.size)
    return Exchange(_bytes(f), source, sent, source, due, lambda: _done(dist.all_reduce(source, group=f.pg)))


def _reduce_scatter(f: _Frame, group: Group) -> Exchange:
    source, sent = torch.empty_like(f.base), f.base * _weight(f.me)
    target, due = torch.empty_like(f.chunk(0)), f.chunk(f.me) * _sum_of_weights(f.size)
    return Exchange(
        _bytes(f),
        source,
        sent,
        target,
        due,
        lambda: _done(dist.reduce_scatter_single(target, source, group=f.pg)),
    )


def _all_gather(f: _Frame, group: Group) -> Exchange:
    sent = f.chunk(f.me) * _weight(f.me)
    source, target = torch.empty_like(sent), torch.empty_like(f.base)
    due = f.chunks(_weight)
    return Exchange(
        _bytes(f),
        source,
        sent,
        target,
        due,
        lambda: _done(dist.all_gather_single(target, source, group=f.pg)),
    )


def _broadcast(f: _Frame, group: Group) -> Exchange:
    sent = f.base if f.me == 0 else torch.zeros_like(f.base)
    source, root = torch.empty_like(f.base), group.ranks[0]
    return Exchange(
        _bytes(f), source, sent, source, f.base, lambda: _done(dist.broadcast(source, root, group=f.pg))
    )


def _scatter(f: _Frame, group: Group) -> Exchange:
    source, target, root = torch.empty_like(f.base), torch.empty_like(f.chunk(0)), group.ranks[0]
    parts = list(source.chunk(f.size)) if f.me == 0 else None
    return Exchange(
        _bytes(f),
        source,
        f.base,
        target,
        f.chunk(f.me),
        lambda: _done(dist.scatter(target, parts, root, group=f.pg)),
    )


def _gather(f: _Frame, group: Group) -> Exchange:
    sent = f.chunk(f.me) * _weight(f.me)
    source, root = torch.empty_like(sent), group.ranks[0]
    if f.me != 0:
        return Exchange(
            _bytes(f), source, sent, None, None, lambda: _done(dist.gather(source, None, root, group=f.pg))
        )
    target = torch.empty_like(f.base)
    parts = list(target.chunk(f.size))
    due = f.chunks(_weight)
    return Exchange(
        _bytes(f), source, sent, target, due, lambda: _done(dist.gather(source, parts, root, group=f.pg))
    )


def _all_to_all(f: _Frame, group: Group) -> Exchange:
    source, sent, target = torch.empty_like(f.base), f.base * _weight(f.me), torch.empty_like(f.base)
    due = torch.cat([f.chunk(f.me) * _weight(i) for i in range(f.size)])
    return Exchange(
        _bytes(f),
        source,
        sent,
        target,
        due,
        lambda: _done(dist.all_to_all_single(target, source, group=f.pg)),
    )


def _send_recv(f: _Frame, group: Group) -> Exchange:
    source, sent, target = torch.empty_like(f.base), f.base * _weight(f.me), torch.empty_like(f.base)
    after, before = (f.me + 1) % f.size, (f.me - 1) % f.size
    due = f.base * _weight(before)
    swap = swapper(source, target, group.ranks[after], group.ranks[before], f.pg)
    return Exchange(_bytes(f), source, sent, target, due, swap)


def swapper(source: Tensor, target: Tensor, to: int, of: int, pg: ProcessGroup) -> Callable[[], None]:
    """Send ``source`` to rank ``to`` and receive ``target`` from rank ``of`` at the same time.

    The receive comes first: gloo tells its peer on the same connection that it may send, and behind data of
    our own that word would wait until all of them have left (seen: half the rate of a shaped link).
    """

    def swap() -> None:
        ops = [dist.P2POp(dist.irecv, target, of, pg), dist.P2POp(dist.isend, source, to, pg)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    return swap


def _bytes(f: _Frame) -> int:
    return f.base.numel() * ELEMENT_BYTES


def _done(work: object) -> None:
    """A blocking collective has nothing left to wait for."""
    assert work is None


_BUILDERS: dict[Collective, Callable[[_Frame, Group], Exchange]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "scatter": _scatter,
    "gather": _gather,
    "all_to_all": _all_to_all,
    "send_recv": _send_recv,
}
