"""``plan down``: delete everything of a launch, or of all, and look until it is gone."""

from __future__ import annotations

from clusters.clouds.base import CloudFault
from clusters.clouds.registry import cloud_for
from clusters.launch import down, teardown
from clusters.launch.nouns import DONE, FAILED, MAY_BILL, USAGE, Hands, Limits
from planner.cli import launch, launch_hands, launch_request, launches_found, ledger
from planner.cli.launch_screen import TerminalScreen, screen_for
from planner.cli.request import Options
from planner.errors import UserError

_WORST_FIRST = (MAY_BILL, FAILED, USAGE, DONE)


def run(options: Options) -> int:
    """Tear down; 6 if anything may still bill."""
    screen = screen_for(options["json"], options["quiet"])
    hands = launch_hands.hands({**options, "no_calibration": True}, screen)
    if options["all"]:
        if options["launch"]:
            raise UserError("--all takes every launch, and no id beside it", "plan down --all --yes")
        return _all(options, hands, screen)
    if not options["launch"]:
        raise UserError("which launch?", "plan ls   lists them; plan down --all takes every one")
    launch_id = launches_found.launch_id_of(options["launch"])
    return launch.show(down.down(launch_id, hands), hands, screen)


def _all(options: Options, hands: Hands, screen: TerminalScreen) -> int:
    """Every launch that is not gone, then what the clouds know of and the ledger does not."""
    known = ledger.launches()
    alive = [x for x in known if x.state != "gone"]
    names = ", ".join(x.id for x in alive) or "none that the ledger knows"
    if not options["yes"]:
        if hands.ask is None:
            raise UserError(f"plan down --all would end {names}", "plan down --all --yes")
        if not hands.ask(f"End every launch ({names})?"):
            return FAILED
    codes = [launch.show(down.down(x.id, hands), hands, screen) for x in alive]
    regions = tuple(dict.fromkeys(x.region for x in known if x.kind == "aws"))
    codes += [_unknown(kind, regions, hands) for kind in dict.fromkeys(["local", *(x.kind for x in known)])]
    return next((code for code in _WORST_FIRST if code in codes), DONE)


def _unknown(kind: str, regions: tuple[str, ...], hands: Hands) -> int:
    """Delete what carries the tag of any launch of ours on this kind of cloud."""
    limits = Limits()
    try:
        cloud = cloud_for(kind, launch_request.no_choices(), regions=regions)  # type: ignore[arg-type]
        if not cloud.find(None):
            return DONE
        found = teardown.clear(cloud, None, hands, limits)
    except (CloudFault, UserError) as error:
        hands.screen.say(f"{kind}: not looked at: {error}")
        return DONE if kind not in ("aws", "gcp", "azure") else MAY_BILL
    for resource in found.left:
        hands.screen.say(f"left: {resource.kind} {resource.id}   {cloud.by_hand(resource)}")
    return MAY_BILL if found.may_bill else DONE
