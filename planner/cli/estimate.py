"""``plan estimate``: a saved plan, one run of the options, or a file of run descriptions."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import typer

from planner import api, runs, units
from planner.cli import calibration_store, json_output, store, text
from planner.cli.models import read_text
from planner.cli.request import Options, request, run_request
from planner.cli.screens import estimate as screens_estimate
from planner.cli.screens import explain as screens_explain
from planner.cli.screens import runs as screens_runs
from planner.errors import UserError
from planner.exits import FAILED
from planner.results import Candidate, Estimate, WholeRun
from planner.runs import RunRequest
from planner.trust.nearness import Residuals

_OF_THE_ANSWER = ("plan_id", "runs", "json", "quiet", "headroom", "explain", "no_calibration")


def run(options: Options) -> int:
    """Answer one ``plan estimate``; returns 1 where a line of ``--runs`` had an error."""
    _check_source(options)
    asked_headroom = options["headroom"]
    headroom = 0.2 if asked_headroom is None else units.parse_fraction(asked_headroom, "--headroom")
    if options["runs"] is not None:
        # a run description is judged as the contract says, without headroom, unless one is asked for
        return _file(options["runs"], options, 0.0 if asked_headroom is None else headroom)
    if options["plan_id"] is not None:
        candidate = store.find(options["plan_id"]).candidate
        _show(_of_plan(candidate), options, headroom, candidate)
        return 0
    asked = run_request(options, request(options))
    known = calibration_store.known(options)
    _show(api.estimate([asked], headroom, known)[0], options, headroom, None)
    return 0


def _check_source(options: Options) -> None:
    """Raise ``UserError`` unless exactly one thing is asked about."""
    sources = [name for name in ("plan_id", "runs") if options[name] is not None]
    given = [n for n, value in options.items() if value not in (None, False) and n not in _OF_THE_ANSWER]
    if len(sources) > 1 or (sources and given):
        raise UserError(
            "a plan, --runs and a run of the options exclude each other", "plan estimate --help has the forms"
        )


def _of_plan(candidate: Candidate) -> Estimate:
    """Take the figures as they were when the plan was shown."""
    hours = candidate.hours
    gpu_hours = hours.times(candidate.run.shape.num_gpus)
    return Estimate(
        run=candidate.run.model_copy(update={"id": candidate.id}),
        memory=candidate.memory,
        speed=candidate.speed,
        whole=WholeRun(hours=hours, gpu_hours=gpu_hours, cost_usd=candidate.cost_usd),
        warnings=candidate.warnings,
    )


def _show(answer: Estimate, options: Options, headroom: float, candidate: Candidate | None) -> None:
    if options["quiet"]:
        typer.echo(answer.run.id)
    elif options["json"]:
        typer.echo(json_output.estimate_document(answer).model_dump_json())
    elif options["explain"]:
        typer.echo(screens_explain.explain(answer, text.terminal()))
    else:
        changes = api.what_if(answer.run, calibration_store.known(options))
        sure = screens_explain.confidence(answer)
        typer.echo(screens_estimate.estimate(answer, headroom, text.terminal(), candidate, changes, sure))


# ------------------------------------------------------------------------------------- files of runs


def _file(path: str, options: Options, headroom: float) -> int:
    """Answer every line in order; a bad one never stops the others."""
    content = read_text(path, "--runs")
    # at line feeds only: JSON may hold other separators, such as U+2028, within a text
    lines = [(i, line) for i, line in enumerate(content.split("\n"), 1) if line.strip()]
    if not lines:
        raise UserError(f"--runs {path}: no run descriptions", "one JSON object a line")
    answers = list(_answers(lines, headroom, calibration_store.known(options)))
    if options["json"]:
        for document in answers:
            typer.echo(document.model_dump_json())
    elif options["quiet"]:
        for document in answers:
            typer.echo(document.id)
    else:
        typer.echo(screens_runs.runs(answers, text.terminal()))
    failed = sum(a.error is not None for a in answers)
    if failed:
        sys.stderr.write(f"{failed} of {len(answers)} lines could not be answered\n")
    return FAILED if failed else 0


def _answers(
    lines: list[tuple[int, str]], headroom: float, known: Residuals | None
) -> Iterator[json_output.EstimateDocument]:
    """Parse all lines, estimate those that could be read in one batch, and put both in order."""
    parsed = [_parsed(line) for _, line in lines]
    asked = [p for p in parsed if not isinstance(p, UserError)]
    estimates = iter(api.estimate_each(asked, headroom, known))
    for (number, line), request_or_error in zip(lines, parsed, strict=True):
        found = request_or_error if isinstance(request_or_error, UserError) else next(estimates)
        label = runs.line_id(line)
        name = f"line {number}" if label is None else str(label)
        if isinstance(found, UserError):
            yield json_output.error_document(name, f"line {number}: {found}", found.hint)
        else:
            yield json_output.estimate_document(found).model_copy(update={"id": name})


def _parsed(line: str) -> RunRequest | UserError:
    try:
        return runs.parse_line(line)
    except UserError as error:
        return error
