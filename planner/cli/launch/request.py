"""From the options of ``plan launch`` and ``plan doctor`` to what is asked: plan, choices, bounds."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from clusters.config.choices import Choices, format_of
from clusters.launch import blocks
from clusters.launch.nouns import LaunchRequest, Limits
from clusters.launch.pricing import MACHINES_OF_THEIR_OWN, price_items, usd_per_hour
from clusters.scrub import secrets_of
from planner import units
from planner.cli import budgets, cluster, store
from planner.cli.launch import inputs as launch_inputs
from planner.cli.launch import ledger
from planner.cli.request import Options
from planner.errors import UserError
from planner.launched import CloudKind
from planner.results import Plan

_LONGEST_S = 3.15e9  # about a century: as far as dates go
_HOUR_S = 3600
_BOUGHT = ("capacity-block", "reserved")


def request_of(options: Options, plan: Plan, now: datetime) -> LaunchRequest:
    """Read the options. Raises ``UserError`` for what makes no sense together."""
    kind = kind_of(options, plan)
    _refuse_spot_without_storage(options, plan, kind)
    _refuse_reservation(options, plan, kind)
    choices = cluster.choices_of({**options, "deadline": None, "project": options["gcp_project"]}, plan, now)
    request = LaunchRequest(
        plan=plan,
        choices=choices,
        kind=kind,
        user=(options["owner"] or getpass.getuser())[:60],
        directory=str(store.data_dir() / "launches"),
        budget_usd=_budget(options, plan, kind, now),
        reservation_usd=_reservation_usd(options, plan),
        project=options.get("project"),
        then=_then(options.get("then")),
        working_dir=_working_dir(options),
        keep=options.get("keep", False),
        yes=options.get("yes", False),
        accept_price=options.get("accept_price", False),
        next_on_fail=options.get("next_on_fail", False),
        limits=_limits(options),
    )
    request = request.model_copy(update={"choices": _until(request, options, now)})
    launch_inputs.check(request, options)
    return request


def kind_of(options: Options, plan: Plan) -> CloudKind:
    """Where the plan is launched: this machine, hosts that are named, or the provider's own machines."""
    wanted = options["provider"]
    if wanted == "local":
        if options["hosts"]:
            raise UserError(
                "--hosts names machines, --provider local takes this one", "leave one of them out"
            )
        return "local"
    if wanted == "kuberay":
        return "kuberay"
    if wanted is not None and wanted != plan.candidate.offer.provider:
        raise UserError(
            f"--provider {wanted!r:.40}: {plan.id} is on {plan.candidate.offer.provider}",
            f"plan launch {plan.id} --provider local   tries it on this machine",
        )
    if options["hosts"]:
        return "hosts"
    kind = format_of(plan, None)
    if kind == "local":
        raise UserError(f"machines of {plan.candidate.offer.provider} are not rented from here", _ways(plan))
    return kind


def _ways(plan: Plan) -> str:
    """Say what starts a plan on machines that we do not rent."""
    ssh = f"plan launch {plan.id} --hosts ADDRESS,…"
    if plan.candidate.offer.market != "owned":
        return f"{ssh}   with machines that you have rented"
    local = (
        f"plan launch {plan.id} --provider local   this machine; " if plan.candidate.num_nodes == 1 else ""
    )
    return f"{local}{ssh}   over SSH; plan launch {plan.id} --provider kuberay   Kubernetes"


def _budget(options: Options, plan: Plan, kind: CloudKind, now: datetime) -> Decimal | None:
    """What may be spent: what was said, else the plan's upper cost; never more than its project has left."""
    said = options["budget"]
    if said is not None:
        budget: Decimal | None = units.parse_usd(said, "--budget")
    elif kind != "local" and plan.candidate.verdict == "over":
        upper = units.usd(plan.candidate.cost_usd.high).removeprefix("$").replace(",", "")
        raise UserError(
            f"{plan.id} lost in its suggest: {plan.candidate.why}", f"plan launch {plan.id} --budget {upper}"
        )
    elif kind == "local" or plan.candidate.offer.usd_per_hour is None:
        budget = None
    else:
        budget = Decimal(str(plan.candidate.cost_usd.high)).quantize(Decimal("0.01"))
    return budgets.within(budget, options.get("project"), now)


def _until(request: LaunchRequest, options: Options, now: datetime) -> Choices:
    """When the machines end themselves: as said, else by the plan's time; never past what the budget pays."""
    said = options.get("expire")
    ends_after = cluster.deadline_s(request.plan) if said is None else units.parse_duration(said, "--expire")
    items = price_items(request, request.plan.candidate.offer.usd_per_hour)
    items = blocks.counted(items, ledger.launches())
    hourly = usd_per_hour(items)
    if request.kind != "local" and request.budget_usd is not None and hourly:
        by_the_hour = max(Decimal(0), request.budget_usd - blocks.once_usd(items))
        ends_after = min(ends_after, float(by_the_hour / hourly) * _HOUR_S)
    deadline = (now + timedelta(seconds=min(ends_after, _LONGEST_S))).replace(microsecond=0)
    return request.choices.model_copy(update={"deadline": deadline})


def _then(command: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The command of the full run; it is written down and shown, so no secret may stand in it."""
    if command is not None and any(value in command for value in secrets_of(environment)):
        raise UserError(
            "--then holds a secret of the environment; the command is written to the ledger and to logs",
            "let the job read it from a file or a secret store on the nodes",
        )
    return command


def _refuse_spot_without_storage(options: Options, plan: Plan, kind: CloudKind) -> None:
    """A full run on machines that may be taken away keeps its checkpoints elsewhere. Raises ``UserError``."""
    rented = kind in MACHINES_OF_THEIR_OWN and plan.candidate.offer.market == "spot"
    if rented and options.get("then") and not options["storage"]:
        raise UserError(
            f"{plan.id} is on spot: its machines may be taken away, and the full run with its checkpoints",
            f"plan launch {plan.id} --then … --storage s3://BUCKET/runs",
        )


def _refuse_reservation(options: Options, plan: Plan, kind: CloudKind) -> None:
    """A block is launched by its id alone, and an id is no good for spot. Raises ``UserError``."""
    market, named = plan.candidate.offer.market, options["reservation"]
    if kind == "aws" and market in _BOUGHT and not named:
        raise UserError(
            f"{plan.id} is {market}: its machines start only inside what was bought",
            f"plan launch {plan.id} --reservation cr-0123456789abcdef0",
        )
    if named and market == "spot":
        raise UserError(f"--reservation: {plan.id} is on spot, which holds no reservation", "leave it out")
    if named and kind not in ("aws", "gcp"):
        raise UserError(f"--reservation is for aws and gcp, not for {kind}", "leave it out")


def _reservation_usd(options: Options, plan: Plan) -> Decimal | None:
    said = options.get("reservation_usd")
    if said is None:
        return None
    if plan.candidate.offer.market != "capacity-block":
        raise UserError(
            f"--reservation-usd: {plan.id} is {plan.candidate.offer.market}, which bills by the hour",
            "leave it out",
        )
    return units.parse_usd(said, "--reservation-usd")


def _working_dir(options: Options) -> str | None:
    if not options.get("then"):
        return None
    path = Path(options["working_dir"] or ".").resolve()
    if not path.is_dir():
        raise UserError(f"--working-dir: {str(path)!r:.200} is no directory", "--working-dir DIR")
    return str(path)


def _limits(options: Options) -> Limits:
    default = Limits()
    create, probe = options.get("create_timeout"), options.get("probe_timeout")
    return default.model_copy(
        update={
            "create_timeout_s": default.create_timeout_s
            if create is None
            else units.parse_duration(create, "--create-timeout", 86_400),
            "probe_timeout_s": default.probe_timeout_s
            if probe is None
            else units.parse_duration(probe, "--probe-timeout", 86_400),
        }
    )


def plan_of(options: Options) -> Plan:
    """Find the plan that was shown."""
    if not options["plan"]:
        raise UserError(
            "which plan?", "plan ls --plans   lists them; plan launch 1 takes row 1 of the last suggest"
        )
    return store.find(options["plan"])


def no_choices() -> Choices:
    """Choices for looking only: nothing is created with them."""
    moment = now()
    return Choices(made=moment, deadline=moment, owner="-")


def now() -> datetime:
    """Moment of the call, UTC."""
    return datetime.now(UTC)
