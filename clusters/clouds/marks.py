"""What the tags of a launch say about it, to somebody who has no ledger row of it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol, runtime_checkable

from planner.types import Record


class Marks(Record):
    """Tags of one launch and what its machines say of themselves; ``None``: nothing says so.

    ``machines``: ids of those that bill. ``since``: when the first of them started.
    """

    launch_id: str
    plan_id: str | None = None
    owner: str | None = None
    deadline: datetime | None = None
    region: str | None = None
    zone: str | None = None
    market: str | None = None
    machine_type: str | None = None
    machines: tuple[str, ...] = ()
    since: datetime | None = None


@runtime_checkable
class Marked(Protocol):
    """A cloud that can say what the tags of its launches hold."""

    def marks(self, launch_id: str | None) -> tuple[Marks, ...]:
        """Tags of a launch (``None``: of any). May raise ``CloudFault``."""


def merged(found: list[Marks]) -> tuple[Marks, ...]:
    """One record a launch: the first that says a thing counts, and machines add up."""
    by_id: dict[str, Marks] = {}
    for one in found:
        old = by_id.get(one.launch_id)
        by_id[one.launch_id] = one if old is None else _both(old, one)
    return tuple(by_id[name] for name in sorted(by_id))


def _both(a: Marks, b: Marks) -> Marks:
    first = {name: value for name, value in b if getattr(a, name) is None and value is not None}
    begun = [m.since for m in (a, b) if m.since is not None]
    machines = tuple(dict.fromkeys((*a.machines, *b.machines)))
    return a.model_copy(update={**first, "machines": machines, "since": min(begun, default=None)})


def moment(text: str | None) -> datetime | None:
    """Read a moment of a tag, ``None`` where it is none."""
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
