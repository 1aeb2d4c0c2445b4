"""``plan doctor``: the preflight of a launch alone; without a plan, this machine and every launch."""

from __future__ import annotations

import tempfile

import typer

from clusters.clouds.base import PreflightCheck
from clusters.faults import CloudFault
from clusters.launch import before
from clusters.launch.nouns import FAILED, NO_CREDENTIALS, Hands, LaunchRequest
from planner.cli import text
from planner.cli.launch import hands as launch_hands
from planner.cli.launch import here as doctor_here
from planner.cli.launch import ledger
from planner.cli.launch import request as launch_request
from planner.cli.launch.here import Look
from planner.cli.launch.progress import screen_for
from planner.cli.request import Options
from planner.cli.screens import launch as screens_launch
from planner.types import Record

SCHEMA_VERSION = 1
_ID = "l-doctor"


class DoctorDocument(Record):
    """``plan doctor --json``. ``here``: without a plan, what was looked at on this machine."""

    schema_version: int
    passed: bool
    checks: tuple[PreflightCheck, ...]
    here: tuple[Look, ...] = ()


def run(options: Options) -> int:
    """Look, and start nothing; 1 where a check fails, 4 where credentials are missing."""
    here = () if options["plan"] else doctor_here.looks()
    found = _of_plan(options) if options["plan"] else _of_launches(here)
    passed = all(c.passed for c in found) and all(look.state != "failed" for look in here)
    if options["json"]:
        document = DoctorDocument(schema_version=SCHEMA_VERSION, passed=passed, checks=found, here=here)
        typer.echo(document.model_dump_json())
    else:
        if here:
            typer.echo(doctor_here.screen(here, text.terminal()))
        if found:
            typer.echo(screens_launch.checks(found, text.terminal()))
        if here:
            typer.echo("\nnext: plan doctor 1   looks at what a launch of that plan needs")
    if passed:
        return 0
    failed = [c for c in found if not c.passed]
    return NO_CREDENTIALS if any(before.credentials_missing(c) for c in failed) else FAILED


def _of_plan(options: Options) -> tuple[PreflightCheck, ...]:
    hands = launch_hands.hands({**options, "no_calibration": True}, screen_for(options["json"], quiet=False))
    plan = launch_request.plan_of(options)
    request = launch_request.request_of(options, plan, launch_request.now())
    with tempfile.TemporaryDirectory(prefix="plan-doctor-") as directory:
        return _looked(request.model_copy(update={"directory": directory}), hands)


def _looked(request: LaunchRequest, hands: Hands) -> tuple[PreflightCheck, ...]:
    plan = request.plan
    live = [x for x in ledger.launches() if x.plan_id == plan.id and x.state != "gone"]
    own = PreflightCheck(
        name="no live launch",
        passed=not live,
        detail=f"{live[0].id} of this plan is {live[0].state}" if live else "of this plan",
        hint=f"plan down {live[0].id}" if live else "",
    )
    price = before.priced(request, hands)
    try:
        return (own, *before.preflight(hands.cloud_of(request), request, _ID, price, hands))
    except CloudFault as fault:
        failed = PreflightCheck(name=fault.kind, passed=False, detail=str(fault), hint=fault.hint)
        return (own, before.price_check(request, price), before.budget_check(request, price), failed)


def _of_launches(here: tuple[Look, ...]) -> tuple[PreflightCheck, ...]:
    """Launches that are left half-way; none where the ledger cannot be read, which ``here`` says."""
    if any(look.name == "ledger" and look.state == "failed" for look in here):
        return ()
    known = ledger.launches()
    half = [x for x in known if x.state not in ("gone", "committed") and x.outcome != "left_running"]
    return tuple(
        PreflightCheck(
            name=x.id,
            passed=False,
            detail=f"left in state {x.state} since {x.transitions[-1].at:%Y-%m-%d %H:%M UTC}",
            hint=f"plan launch --resume {x.id}   or   plan down {x.id}",
        )
        for x in half
    )
