"""``plan explain TOPIC``: a page with figures of the user's own run; alone it lists the topics."""

from __future__ import annotations

from collections import defaultdict

import typer

from planner import api, units
from planner.cli import calibration_store, text
from planner.cli.request import Options, request, run_request
from planner.cli.screens import pages as screens_pages
from planner.guide.pages import Page, Subject, texts
from planner.guide.topics import TOPICS, check_topic, explain
from planner.hardware.gpus import gpu
from planner.types import Offer, Record

SCHEMA_VERSION = 1
EXAMPLE = {"params": "1B", "gpu": "H100-SXM5-80GB", "gpus": "8"}
PRICED = ("rent-vs-buy", "spot")


class TopicDocument(Record):
    """A topic and what its page is about."""

    topic: str
    about: str


class ExplainDocument(Record):
    """``plan explain --json``: the topics, or one page. Figures are in the unit of their column."""

    schema_version: int
    topics: tuple[TopicDocument, ...]
    page: Page | None = None


def run(options: Options) -> int:
    """Print a page, or the list of topics."""
    topics = tuple(TopicDocument(topic=t, about=texts()[t].about) for t in TOPICS)
    found = None
    if options["topic"] is not None:
        topic = check_topic(options["topic"])
        found = explain(topic, _subject(options, topic in PRICED))
    if options["json"]:
        document = ExplainDocument(schema_version=SCHEMA_VERSION, topics=topics, page=found)
        typer.echo(document.model_dump_json())
    elif found is None:
        typer.echo(screens_pages.topics([(t.topic, t.about) for t in topics], text.terminal()))
    else:
        example = " ".join(f"--{name} {value}" for name, value in _assumed(options).items())
        typer.echo(screens_pages.page(found, example, text.terminal()))
    return 0


def _assumed(options: Options) -> dict[str, str]:
    """What stands for the user's own model and machine where they are not said."""
    named = any(options[name] is not None for name in ("params", "model", "spec"))
    found = {} if named else {"params": EXAMPLE["params"]}
    if options["gpu"] is None:
        found["gpu"] = EXAMPLE["gpu"]
        if options["gpus"] is None:
            found["gpus"] = EXAMPLE["gpus"]
    return found


def _subject(options: Options, priced: bool) -> Subject:
    """Estimate of the run that is asked about, and offers where the page needs prices."""
    filled: dict[str, object] = defaultdict(lambda: None, {**options, **_assumed(options)})
    asked = run_request(filled, request(filled))
    (answer,) = api.estimate([asked], 0.0, calibration_store.known({"no_calibration": False}))
    headroom = options["headroom"]
    return Subject(
        answer=answer,
        gpu=gpu(answer.run.shape.gpu),
        offers=_offers() if priced else (),
        headroom=0.2 if headroom is None else units.parse_fraction(headroom, "--headroom"),
    )


def _offers() -> tuple[Offer, ...]:
    from datetime import UTC, datetime

    from providers import registry

    return registry.offers(now=datetime.now(UTC)).offers
