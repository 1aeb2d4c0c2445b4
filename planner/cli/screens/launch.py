"""The screens of launch, down, ls and doctor, as text. Each line at most as wide as the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal

from clusters.clouds.base import PreflightCheck
from clusters.launch.nouns import Confirmation, Finished
from clusters.launch.pricing import usd_per_hour
from planner import units
from planner.cli import text
from planner.cli.text import Terminal
from planner.launched import Event
from planner.results import Plan

_LABEL = 10
_MARKS = {True: "✔", False: "✘"}
_TELL_OUTCOME = {
    "committed": "committed",
    "declined": "declined",
    "torn_down": "torn down, nothing left",
    "left_running": "left running on purpose",
    "may_still_bill": "MAY STILL COST MONEY",
}


def confirmation(c: Confirmation, now: datetime, term: Terminal) -> str:
    """What it costs and what happens on Ctrl-C, before the question."""
    return "\n".join(line for block in _confirmation(c, now, term) for line in block)


def _confirmation(c: Confirmation, now: datetime, term: Terminal) -> Iterator[list[str]]:
    plan = c.plan
    shown, node = (units.usd_per_hour(v) for v in (c.shown_usd_per_hour, c.node_usd_per_hour))
    price = "unchanged" if shown == node else f"{node} a node, was {shown}"
    here = c.kind == "local"
    age = units.age((now - plan.created).total_seconds())
    asked = "nothing is rented" if here else f"price checked again now: {price}"
    yield text.paragraph(f"Plan {plan.id}, suggested {age} ago; {asked}", term, " ")
    where = f"this machine, in place of {machines(plan)}" if here else machines(plan)
    where += {"hosts": ", on hosts that exist"}.get(c.kind, "")
    yield _labelled("Cluster", f"{where}   {units.usd_per_hour(_of(c, 'node', 'head'))}", term)
    for block in (i for i in c.items if i.usd_once is not None):
        yield _labelled(
            "Block", f"${units.usd_cents(block.usd_once)} for the whole of it; {block.source}", term
        )
    if also := _also(c):
        yield _labelled("Also", f"{also} · egress not estimated", term)
    bounds = "creation ({}), probe ({}) and teardown ({})".format(
        *(
            units.duration(s)
            for s in (c.limits.create_timeout_s, c.limits.probe_timeout_s, c.limits.teardown_timeout_s)
        )
    )
    at_most = f", which cost at most {units.usd_exact(c.at_most_usd)}" if not here else ""
    yield _labelled("Probe", f"on the real model and layout; limits: {bounds}{at_most}", term)
    yield _labelled("Then", _then(c), term)
    if c.keep:
        yield _labelled("Keep", "a cluster whose probe fails is left running, at its price (exit 7)", term)
    if not c.tried:
        yield _labelled(
            "Untried", "this way has never been started on the real provider, only on a stand-in", term
        )
    end = c.deadline.strftime("%Y-%m-%d %H:%M UTC")
    yield _labelled("Safety", f"the cluster ends itself at {end}, even if this machine is gone", term)
    yield text.paragraph(
        "Until you commit, Ctrl-C tears everything down (exit 130, or 6 if unconfirmed); after that it only"
        " detaches.",
        term,
        " ",
    )


def machines(plan: Plan) -> str:
    """``1 × g6e.12xlarge (4× L40S), aws us-east-1, on-demand``."""
    offer = plan.candidate.offer
    return (
        f"{plan.candidate.num_nodes} × {offer.instance_type} ({offer.gpus_per_node}× {offer.gpu}),"
        f" {offer.provider} {offer.region}, {offer.market}"
    )


def _of(c: Confirmation, *items: str) -> Decimal | None:
    return usd_per_hour(tuple(i for i in c.items if i.item in items))


def _also(c: Confirmation) -> str:
    names = {"disk": "disk", "address": "public IPv4 address"}
    parts = []
    for item in c.items:
        if item.item in names:
            each = "unknown" if item.usd_per_hour is None else f"${float(item.usd_per_hour):.3f} / h"
            parts.append(f"{item.quantity} × {names[item.item]} {each}")
    return " · ".join(parts)


def _then(c: Confirmation) -> str:
    candidate = c.plan.candidate
    what = "the full run"
    if c.kind != "local":  # what it takes on this machine nobody has said
        what += f", {units.hours_band(candidate.hours)}, {units.usd_band(candidate.cost_usd)}"
    budget = "" if c.budget_usd is None else f"; never past {units.usd(c.budget_usd)}"
    command = f": {c.then}" if c.then else "; its address is handed over to you"
    return f"{what}{budget}{command}"


def _labelled(label: str, said: str, term: Terminal) -> list[str]:
    return text.paragraph(f"{label:<{_LABEL}}{said}", term, " ", " " * _LABEL)


def checks(found: Sequence[PreflightCheck], term: Terminal) -> str:
    """What was looked at before anything bills."""
    lines: list[str] = []
    width = max((len(c.name) for c in found), default=0)
    for check in found:
        word = "ok" if check.passed else "fail"
        lines += text.paragraph(
            f"{_MARKS[check.passed]} {check.name:<{width}}  {word:<4}  {check.detail}",
            term,
            " ",
            " " * (width + 10),
        )
        if check.hint and not check.passed:
            lines += text.paragraph(f"hint: {check.hint}", term, " " * (width + 11))
    return "\n".join(lines)


def event(e: Event, since: datetime) -> str:
    """One line as a state is entered: what, spent, how long since the start."""
    minutes, seconds = divmod(int((e.time - since).total_seconds()), 60)
    spent = "" if e.spent_usd is None else units.usd_exact(e.spent_usd)
    tail = f"   {spent}   {minutes}:{seconds:02d}"
    *lines, last = text.paragraph(f"{e.state:<12} {e.detail}", Terminal(text.WIDE - len(tail)), " ", " " * 13)
    return "\n".join([*lines, last.ljust(text.WIDE - len(tail) - 4) + tail])


def ended(f: Finished, spent: Decimal | None, term: Terminal) -> str:
    """How it ended and what was spent."""
    outcome = "nothing was created" if f.nothing_created else _TELL_OUTCOME[f.outcome]
    lines = text.paragraph(f"{f.launch_id}: {outcome}. {f.message}", term)
    if spent is not None:
        lines.append(f"Spent {units.usd_exact(spent)}.")
    if f.outcome == "may_still_bill":
        lines += ["", "THIS MAY STILL COST MONEY."]
    return "\n".join(lines)


def hint(f: Finished) -> str:
    """What to do next, to paste."""
    if not f.hint:
        return ""
    first, *more = f.hint.splitlines()
    return "\n".join(["", f"hint: {first}", *(f"      {line}" for line in more)])
