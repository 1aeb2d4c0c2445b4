"""Which launch a word on the command line means: its id, the beginning of one, or its plan."""

from __future__ import annotations

from planner.cli.launch import ledger
from planner.errors import UserError, did_you_mean
from planner.launched import Launch


def launch_id_of(name: str) -> str:
    """Id of the launch. Of several launches of a plan the one that is not gone counts, else the last.

    Raises:
        UserError: none, or several, are meant.

    """
    wanted, known = name.strip().lower(), ledger.launches()
    exact = [x for x in known if x.id == wanted]
    found = exact or _of_plan(wanted, known) or [x for x in known if wanted and x.id.startswith(wanted)]
    if not found:
        near = did_you_mean(wanted, [x.id for x in known])
        raise UserError(f"no launch {name!r:.60}{near}", "plan ls")
    alive = [x for x in found if x.state != "gone"] or found[-1:]
    if len(alive) > 1:
        ids = ", ".join(x.id for x in alive)
        raise UserError(f"{name!r:.60} can mean several launches: {ids}", f"plan down {alive[0].id}")
    return alive[0].id


def _of_plan(wanted: str, known: tuple[Launch, ...]) -> list[Launch]:
    """Launches of the plan of that id, or of the one plan whose id begins so."""
    if not wanted.startswith("p-") or len(wanted) < len("p-") + 3:
        return []
    return [x for x in known if x.plan_id.startswith(wanted)]
