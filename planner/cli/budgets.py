"""Budgets on disk (``budgets.json`` in the user's data directory), and who is told when one is crossed."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from pydantic import ValidationError

from planner import units
from planner.budgets import ProjectBudget, Standing, beginning, standing
from planner.cli import store
from planner.cli.launch import ledger
from planner.errors import UserError, did_you_mean

_FILE, _TOLD = "budgets.json", "budgets_told.json"
_TIMEOUT_S = 20


def all_budgets() -> tuple[ProjectBudget, ...]:
    """Every budget that was set. Raises ``UserError`` for a file that cannot be read: never read as none."""
    path = store.data_dir() / _FILE
    try:
        return tuple(ProjectBudget.model_validate(b) for b in json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, ValidationError) as error:
        raise UserError(
            f"budgets cannot be read: {path} ({type(error).__name__})", f"mend or remove {path}"
        ) from None


def save(budgets: Sequence[ProjectBudget]) -> None:
    """Write all budgets, whole or not at all."""
    content = [b.model_dump(mode="json") for b in sorted(budgets, key=lambda b: b.project)]
    try:
        store.write(store.data_dir() / _FILE, json.dumps(content, indent=1))
    except OSError as error:
        raise UserError(f"budgets not saved: {error.strerror}", "plan budget ls") from None


def budget_of(project: str) -> ProjectBudget | None:
    """Find the budget of a project, ``None`` where none was set."""
    return next((b for b in all_budgets() if b.project == project), None)


def known(project: str) -> ProjectBudget:
    """Find the budget of a project. Raises ``UserError``."""
    found = budget_of(project)
    if found is None:
        names = [b.project for b in all_budgets()]
        raise UserError(
            f"no budget of project {project!r:.60}{did_you_mean(project, names)}",
            f"plan budget set project={shlex.quote(project)[:60]} 5000 --per month",
        )
    return found


def limit_of(project: str, now: datetime) -> Decimal:
    """What a project may spend in its period."""
    del now  # a budget has no history: it holds from when it was set
    return known(project).usd


def standing_of(project: str, now: datetime) -> Standing:
    """How the budget of a project stands. Raises ``UserError`` where it has none."""
    return standing(known(project), ledger.launches(), now)


def within(budget_usd: Decimal | None, project: str | None, now: datetime) -> Decimal | None:
    """Budget of one run: what was asked for, at most what its project has left. Raises ``UserError``."""
    if project is None:
        return budget_usd
    at = standing_of(project, now)
    if at.left_usd <= 0:
        raise UserError(
            f"project {project}: nothing is left of {units.usd(at.budget.usd)} ({at.budget.per})",
            f"plan budget set project={shlex.quote(project)[:60]} MORE --per {at.budget.per}",
        )
    return at.left_usd if budget_usd is None else min(budget_usd, at.left_usd)


# ------------------------------------------------------------------------------------- alerts


def alert(now: datetime) -> tuple[str, ...]:
    """Tell the owners of budgets that crossed a threshold since they were last told; returns what was said.

    A command or address that fails is a sentence in the answer too: nothing else stops for it.
    """
    told = _told()
    said: list[str] = []
    for budget in all_budgets():
        at = standing(budget, ledger.launches(), now)
        begun = beginning(budget.per, now)
        key = f"{budget.project} {'' if begun is None else begun.date().isoformat()}"
        if at.crossed is None or at.crossed <= told.get(key, 0):
            continue
        said.append(sentence(at))
        said += _tell(budget, said[-1])
        told[key] = at.crossed
        store.write(store.data_dir() / _TOLD, json.dumps(told))
    return tuple(said)


def sentence(at: Standing) -> str:
    """Say how a budget stands."""
    least = "" if at.is_complete else "at least "
    spent = f"{least}{units.usd(at.spent_usd)} of {units.usd(at.budget.usd)}"
    per = "in all" if at.budget.per == "total" else f"this {at.budget.per}"
    share = units.percent(float(at.spent_usd / at.budget.usd))
    return f"project {at.budget.project}: {spent} spent {per} ({share}), {units.usd(at.left_usd)} left"


def _told() -> dict[str, int]:
    """Read the threshold that was told last, by project and period; what cannot be read is told again."""
    try:
        found = json.loads((store.data_dir() / _TOLD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, int)} if isinstance(found, dict) else {}


def _tell(budget: ProjectBudget, words: str) -> list[str]:
    """Run the command, call the address; returns what failed, without the address: it may hold a secret."""
    failed = []
    if budget.command is not None:
        try:
            subprocess.run(
                [*shlex.split(budget.command), words], check=True, timeout=_TIMEOUT_S, capture_output=True
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            failed.append(f"project {budget.project}: the alert command failed ({type(error).__name__})")
    if budget.webhook is not None:
        import requests

        try:
            requests.post(budget.webhook, json={"text": words}, timeout=_TIMEOUT_S).raise_for_status()
        except requests.RequestException as error:
            failed.append(f"project {budget.project}: the alert address failed ({type(error).__name__})")
    return failed
