"""The ledger of launches, as the commands read it. Nothing is made where nothing was launched."""

from __future__ import annotations

from planner.cli import store
from planner.launched import BilledAmount, Launch


def launches() -> tuple[Launch, ...]:
    """All launches, oldest first."""
    directory = store.data_dir()
    if not directory.exists():
        return ()
    from clusters.ledger.store import Ledger

    return Ledger(directory, scrub=str).launches()


def billed(launch: Launch, amount: BilledAmount) -> Launch:
    """Write down what was billed for a launch; the same bill again changes nothing."""
    from clusters.ledger.store import Ledger

    if launch.billed and launch.billed[-1] == amount:
        return launch
    changed = launch.model_copy(update={"billed": (*launch.billed, amount)})
    Ledger(store.data_dir(), scrub=str).save(changed)
    return changed
