"""``plan adopt``: write the ledger row of a launch that only its cloud knows. Nothing is changed there."""

from __future__ import annotations

import typer

from clusters.launch import adopting
from clusters.launch.adopting import Machine, Orphan
from clusters.ledger.locks import HeldError
from planner.cli import store
from planner.cli.launch import clouds_asked, ledger
from planner.cli.launch import hands as launch_hands
from planner.cli.launch import orphans as launches_orphans
from planner.cli.launch.progress import screen_for
from planner.cli.launch.rows import row
from planner.cli.request import Options
from planner.errors import UserError, did_you_mean
from planner.results import Plan
from providers import registry


def run(options: Options) -> int:
    """Adopt; refuses a launch that this ledger has and that is not gone."""
    hands = launch_hands.hands({"no_calibration": True}, screen_for(options["json"], quiet=False))
    wanted, known = options["launch"].strip(), ledger.launches()
    alive = [x for x in known if x.id == wanted and x.state != "gone"]
    if alive:
        raise UserError(f"{wanted} is in this ledger already, {alive[0].state}", f"plan down {wanted}")
    found = clouds_asked.ask(launches_orphans.regions_of(options), known, hands)
    orphan = next((o for o in found.orphans if o.launch_id == wanted), None)
    for line in launches_orphans.not_asked(found):
        typer.echo(line, err=True)
    if orphan is None:
        near = did_you_mean(wanted, [o.launch_id for o in found.orphans])
        raise UserError(
            f"no cloud that answered names anything of {wanted!r:.60}{near}",
            "plan ls --orphans --region us-east-1",
        )
    plan = _plan(orphan)
    try:
        adopted = adopting.adopt(orphan, plan, None if plan else _machine(orphan), hands)
    except HeldError as error:
        raise UserError(str(error), f"plan adopt {wanted}   once it has ended") from None
    now = hands.now()
    if options["json"]:
        typer.echo(row(adopted, now).model_dump_json())
        return 0
    cost = "" if plan else "; its plan is not saved here, so what it costs is unknown"
    typer.echo(f"{launches_orphans.headline(orphan, now)}: adopted{cost}")
    typer.echo(f"hint: plan down {wanted}   deletes it; plan ls shows it", err=True)
    return 0


def _plan(orphan: Orphan) -> Plan | None:
    """The plan of its tags, where it is saved here."""
    wanted = orphan.marks.plan_id
    return store.find(wanted) if wanted in store.saved_ids() else None


def _machine(orphan: Orphan) -> Machine | None:
    """What the catalog knows of its type of machine."""
    if orphan.kind not in registry.provider_names():
        return None
    for offer in registry.offers([orphan.kind]).offers:
        if offer.instance_type == orphan.marks.machine_type:
            return Machine(gpu=offer.gpu, gpus_per_node=offer.gpus_per_node)
    return None
