"""``plan suggest``: options to offers, the search, the plans saved, the screen drawn."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner import api
from planner.cli import calibration_store, store, text
from planner.cli.request import Options, Request, goal, request, top, words
from planner.cli.screens import suggest as screens_suggest
from planner.errors import UserError, did_you_mean
from planner.exits import NOTHING_FITS
from planner.results import Plan, SkippedProvider, Suggestion
from planner.search.market import considered
from planner.trust.nearness import Residuals
from planner.types import Goal, Offer
from providers import registry

if TYPE_CHECKING:
    from planner.cli.prices.own import Own
    from planner.guide.moving import Moving, Start

DEFAULT_TOP = 5


def run(options: Options) -> int:
    """Answer one ``plan suggest``; returns 3 where nothing fits."""
    now = datetime.now(UTC)
    asked, bounds = request(options), _within_project(goal(options), options, now)
    start = _start(options)
    _check_out(options["out"])
    _check_size(asked, bounds)
    shown = top(options) or DEFAULT_TOP
    mine = _brought(options, now)
    offers, skipped = offers_for(bounds, words(options["excluded"], "--not"), mine, now)
    bounds = _sorted_for_own(bounds, offers, options)
    answer = _answer(asked, bounds, offers, skipped, shown, calibration_store.known(options))
    if mine is not None and mine.assumptions:
        answer = answer.model_copy(update={"assumptions": (*answer.assumptions, *mine.assumptions)})
    plans = store.save_shown(answer.candidates, command_line(), now)
    store.save_field(plans, answer.field)
    way = None if start is None else _way(start, answer, options)
    _print(answer, way, options, now)
    fits = any(c.verdict != "over" for c in answer.candidates)
    if options["out"]:
        _write_plan(plans[0] if fits else None, options["out"])
    return 0 if fits else NOTHING_FITS


def _sorted_for_own(bounds: Goal, offers: Sequence[Offer], options: Options) -> Goal:
    """Rank by time where only machines of one's own are asked about and no order is: idle, they cost as much.

    Ranked by cost, most of them would stand idle beside the one whose run is a little cheaper.
    """
    if options["sort"] is not None:
        return bounds
    mine = all(o.market == "owned" for o in considered(offers, bounds))
    return bounds.model_copy(update={"sort": "time"}) if mine else bounds


def _within_project(bounds: Goal, options: Options, now: datetime) -> Goal:
    """Bound a search by what its project has left."""
    if options["project"] is None:
        return bounds
    from planner.cli import budgets

    left = budgets.within(bounds.budget_usd, options["project"], now)
    return bounds.model_copy(update={"budget_usd": left})


def _check_out(path: str | None) -> None:
    """Refuse a file that cannot be written before anything is searched or printed."""
    if path is not None and (Path(path).is_dir() or not Path(path).parent.is_dir()):
        raise UserError(f"--out: cannot write {path!r:.200} (a directory, or in none)", "--out plan.yaml")


def _check_size(asked: Request, bounds: Goal) -> None:
    """Refuse degrees that need more GPUs than are allowed."""
    pins = asked.pins
    least = (pins.dp or 1) * (pins.tp or 1) * (pins.pp or 1) * (pins.cp or 1)
    if least > bounds.max_gpus:
        raise UserError(
            f"dp × tp × pp × cp = {least} GPUs, more than --max-gpus {bounds.max_gpus}", f"--max-gpus {least}"
        )


def offers_for(
    bounds: Goal, excluded: Sequence[str], mine: Own | None, now: datetime
) -> tuple[tuple[Offer, ...], tuple[SkippedProvider, ...]]:
    """Offers of the catalog and of the user without those that were excluded.

    Raises ``UserError`` for unknown names.
    """
    more_providers, more_regions = (mine.providers, mine.regions) if mine is not None else ((), ())
    _check(bounds.providers, {*registry.provider_names(), *more_providers}, "--provider")
    if bounds.regions:
        _check(bounds.regions, {*registry.region_names(), *more_regions}, "--region")
    found = registry.offers(now=now)
    for problem in registry.problems():
        store.warn(problem)
    offers = found.offers if mine is None else mine.over(found.offers, now)
    return without(offers, excluded), _concerning(found.skipped, bounds)


def _concerning(skipped: Sequence[SkippedProvider], bounds: Goal) -> tuple[SkippedProvider, ...]:
    """Those of the providers that were asked about."""
    asked = {name.lower() for name in bounds.providers}
    return tuple(s for s in skipped if not asked or s.provider.lower() in asked)


def _brought(options: Options, now: datetime) -> Own | None:
    """Read the user's machines and prices; where there are none, nothing is imported for them."""
    if not (options["own"] or options["own_ray"] or options["price_list"]):
        return None
    from planner.cli.prices.own import own

    return own(options, now)


def without(offers: Sequence[Offer], excluded: Sequence[str]) -> tuple[Offer, ...]:
    """Leave out what ``PROVIDER`` or ``PROVIDER:TYPE`` names."""
    kept = tuple(offers)
    for name in excluded:
        provider, _, instance = name.lower().partition(":")
        _check([provider], {o.provider for o in offers}, "--not")
        types = {o.instance_type for o in offers if o.provider.lower() == provider}
        if instance:
            _check([instance], types, f"--not {provider}:")
        kept = tuple(
            o
            for o in kept
            if o.provider.lower() != provider or (instance and o.instance_type.lower() != instance)
        )
    return kept


def command_line() -> str:
    """Write the command as it was typed, to paste."""
    return shlex.join(["plan", *sys.argv[1:]])


def _answer(
    asked: Request,
    bounds: Goal,
    offers: Sequence[Offer],
    skipped: Sequence[SkippedProvider],
    shown: int,
    known: Residuals | None,
) -> Suggestion:
    """Search; the defaults that were taken here stand first among the assumptions."""
    found = api.suggest(
        asked.model, asked.training, bounds, offers, pins=asked.pins, top=shown, skipped=skipped, known=known
    )
    return found.model_copy(update={"assumptions": (*asked.defaults, *found.assumptions)})


def _start(options: Options) -> Start | None:
    """Read ``--from``; where it is not given, nothing is imported for it."""
    if options.get("start") is None and options.get("upload_mbit") is None:
        return None
    from planner.cli.moving import start_of

    return start_of(options)


def _way(start: Start, answer: Suggestion, options: Options) -> Moving | None:
    """List what changes on the way to the first choice; ``None`` where there is none."""
    from planner.cli.moving import way

    if not answer.candidates:
        return None
    return way(start, answer.candidates[0], options, calibration_store.known(options))


def _print(answer: Suggestion, way: Moving | None, options: Options, now: datetime) -> None:
    if options["json"]:
        from planner.cli.json_output import suggest_document

        document = suggest_document(answer).model_copy(update={"moving": way})
        typer.echo(document.model_dump_json())
    elif options["quiet"]:
        for c in answer.candidates:
            typer.echo(c.id)
    else:
        typer.echo(screens_suggest.suggestion(answer, now, text.terminal()))
        if way is not None:
            from planner.cli.screens import moving as screens_moving

            typer.echo(f"\n{screens_moving.moving(way, text.terminal())}")


def _write_plan(plan: Plan | None, path: str) -> None:
    """Write the best choice as YAML; nothing where nothing fits."""
    import yaml

    if plan is None:
        store.warn(f"nothing fits, {path} not written")
        return
    content = yaml.safe_dump(plan.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    try:
        Path(path).write_text(content, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"--out: cannot write {path!r:.200} ({error})", "--out plan.yaml") from None


def _check(names: Sequence[str], known: Sequence[str] | set[str], option: str) -> None:
    """Raise ``UserError`` for the first name that is not known, in any case."""
    lower = {k.lower() for k in known}
    for name in names:
        if name.lower() not in lower:
            near = did_you_mean(name, known)
            few = ", ".join(sorted(known)[:12])
            raise UserError(f"{option}: unknown name {name!r:.60}{near}", f"known: {few}")
