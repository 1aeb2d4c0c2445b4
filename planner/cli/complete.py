"""What the shell offers after Tab: names of GPUs, providers and models, ids of saved plans."""

from __future__ import annotations

from collections.abc import Iterable


def gpu_names(incomplete: str) -> list[str]:
    """GPU ids that begin like this."""
    from planner.hardware.gpus import gpus

    return _starting(incomplete, (g.id for g in gpus()))


def provider_names(incomplete: str) -> list[str]:
    """Providers that begin like this."""
    from providers.registry import provider_names as names

    return _starting(incomplete, names())


def region_names(incomplete: str) -> list[str]:
    """Regions that begin like this."""
    from providers.registry import region_names as names

    return _starting(incomplete, names())


def model_names(incomplete: str) -> list[str]:
    """Presets that begin like this."""
    from planner.model.presets import preset_names

    return _starting(incomplete, preset_names())


def plan_ids(incomplete: str) -> list[str]:
    """Saved plans that begin like this."""
    from planner.cli.store import saved_ids

    return _starting(incomplete, saved_ids())


def topics(incomplete: str) -> list[str]:
    """Topics of ``plan explain`` that begin like this."""
    from planner.guide.pages import texts

    return _starting(incomplete, texts())


def help_pages(incomplete: str) -> list[str]:
    """Pages of ``plan help`` that begin like this."""
    from planner.cli.help_pages import PAGES

    return _starting(incomplete, PAGES)


def documented(incomplete: str) -> list[str]:
    """Commands with a schema that begin like this."""
    from planner.cli.schema import DOCUMENTS

    return _starting(incomplete, DOCUMENTS)


def launch_ids(incomplete: str) -> list[str]:
    """Launches that begin like this, those that are not gone."""
    from planner.cli.launch.ledger import launches

    return _starting(incomplete, (x.id for x in launches() if x.state != "gone"))


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    """Keep names that begin like what was typed, in any case."""
    return [name for name in names if name.lower().startswith(incomplete.lower())]
