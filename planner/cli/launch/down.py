"""``plan down``: delete everything of a launch, or of all of this ledger, and look until it is gone.

What carries a tag of ours and has no row here may be another laptop's launch: it is listed, and goes only
where ``--orphans`` says so or after ``plan adopt``.
"""

from __future__ import annotations

from collections.abc import Sequence

from clusters.faults import CloudFault
from clusters.launch import adopting, down, teardown
from clusters.launch.adopting import Orphan
from clusters.launch.nouns import DONE, FAILED, MAY_BILL, USAGE, Finished, Hands, Limits
from clusters.ledger.locks import HeldError
from planner.cli.launch import clouds_asked, ledger
from planner.cli.launch import found as launches_found
from planner.cli.launch import hands as launch_hands
from planner.cli.launch import orphans as launches_orphans
from planner.cli.launch import run as launch
from planner.cli.launch.clouds_asked import Answers
from planner.cli.launch.progress import TerminalScreen, screen_for
from planner.cli.request import Options
from planner.errors import UserError
from planner.launched import Launch

_WORST_FIRST = (MAY_BILL, FAILED, USAGE, DONE)
_RENTED = ("aws", "gcp", "azure")


def run(options: Options) -> int:
    """Tear down; 6 if anything may still bill."""
    screen = screen_for(options["json"], options["quiet"])
    hands = launch_hands.hands({**options, "no_calibration": True}, screen)
    if options["all"]:
        if options["launch"]:
            raise UserError("--all takes every launch, and no id beside it", "plan down --all --yes")
        return _all(options, hands, screen)
    if options["orphans"]:
        raise UserError("--orphans goes with --all", "plan ls --orphans   lists them; plan adopt LAUNCH")
    if not options["launch"]:
        raise UserError("which launch?", "plan ls   lists them; plan down --all takes every one")
    launch_id = launches_found.launch_id_of(options["launch"])
    return launch.show(_down(launch_id, hands), hands, screen)


def _down(launch_id: str, hands: Hands) -> Finished:
    """End a launch of this ledger, begun here or adopted."""
    found = hands.ledger.launch(launch_id)
    if not adopting.is_adopted(found, hands):
        return down.down(launch_id, hands)
    cloud = clouds_asked.cloud_in(found.kind, launch_id, (found.region,), hands)
    try:
        return adopting.down(found, cloud, hands, Limits())
    except HeldError as error:
        raise UserError(str(error), f"plan down {launch_id}   once it has ended") from None


def _all(options: Options, hands: Hands, screen: TerminalScreen) -> int:
    """Every launch that is not gone, and what is left of those that were taken for gone."""
    known = ledger.launches()
    found = clouds_asked.ask(launches_orphans.regions_of(options), known, hands)
    left = [o.launch_id for o in found.orphans if o.why == "gone"]
    ours = [*(x.id for x in known if x.state != "gone"), *left]
    others = [o for o in found.orphans if o.why == "no-row"]
    if not _confirmed(options, ours, others, hands):
        return FAILED
    codes = [launch.show(_down(launch_id, hands), hands, screen) for launch_id in dict.fromkeys(ours)]
    for orphan in others:
        codes.append(_end(orphan, hands) if options["orphans"] else _leave(orphan, hands))
    codes.append(_silent(found, known, hands))
    return next((code for code in _WORST_FIRST if code in codes), DONE)


def _confirmed(options: Options, ours: Sequence[str], others: Sequence[Orphan], hands: Hands) -> bool:
    """Name everything that goes, and ask. Raises ``UserError`` where nobody can answer."""
    if options["yes"]:
        return True
    names = ", ".join(ours) or "none that the ledger knows"
    if options["orphans"] and others:
        names += f"; without a row here: {', '.join(map(_named, others))}"
    if hands.ask is None:
        again = "plan down --all --orphans --yes" if options["orphans"] else "plan down --all --yes"
        raise UserError(f"plan down --all would end {names}", again)
    return hands.ask(f"End every launch ({names})?")


def _named(orphan: Orphan) -> str:
    return f"{orphan.launch_id} of {orphan.marks.owner or 'an unknown owner'}"


def _leave(orphan: Orphan, hands: Hands) -> int:
    """Name what has no row here, and leave it."""
    bills = "it bills" if orphan.bills else "nothing of it bills"
    hands.screen.say(
        f"not ended: {_named(orphan)} has no row in this ledger, {bills};"
        f" plan adopt {orphan.launch_id}, or plan down --all --orphans"
    )
    return DONE


def _end(orphan: Orphan, hands: Hands) -> int:
    """Delete everything of one launch that has no row here."""
    hands.screen.say(f"ending {_named(orphan)}")
    try:
        cloud = clouds_asked.cloud_of(orphan, hands)
        found = teardown.clear(cloud, orphan.launch_id, hands, Limits())
    except (CloudFault, UserError) as error:
        hands.screen.say(f"{orphan.launch_id}: {error}")
        return MAY_BILL if orphan.bills else FAILED
    for resource in found.left:
        hands.screen.say(f"left: {resource.kind} {resource.id}   {cloud.by_hand(resource)}")
    return MAY_BILL if found.may_bill else DONE


def _silent(found: Answers, known: Sequence[Launch], hands: Hands) -> int:
    """Name clouds that did not answer; where launches of ours were rented there, something may still bill."""
    for line in launches_orphans.not_asked(found):
        hands.screen.say(line)
    kinds = {a.kind for a in found.asked if not a.answered} & {x.kind for x in known}
    return MAY_BILL if kinds & set(_RENTED) else DONE
